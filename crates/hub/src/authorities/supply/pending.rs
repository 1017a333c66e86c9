//! The key of the next authority while that has no certificate. It waits in a Secret of its own and never leaves it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use ring::rand::SystemRandom;
use zeroize::Zeroizing;

use super::Question;
use crate::authorities::store::{AuthorityStore, StoreError};
use crate::lease::Leads;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::encoding::pem;
use addon_signer_core::keys::private::PrivateKey;

const KEY: &str = "tls.key";
const REQUEST: &str = "request.csr";
const CHAIN: &str = "tls.crt";
const ISSUER: &str = "issuer";

/// A key that waits for its certificate.
pub(super) struct Pending {
    pub(super) key: PrivateKey,
    pub(super) pkcs8: Zeroizing<Vec<u8>>,
    pub(super) request: String,
    /// What an issuer has answered that is not asked twice.
    pub(super) answer: Option<IssuerAnswer>,
}

/// The certificates that an issuer has given for a key.
pub(super) struct IssuerAnswer {
    /// In PEM.
    pub(super) chain: String,
    /// Who gave them.
    pub(super) issuer: String,
}

/// What the Secret of such keys has.
pub(super) struct Kept {
    /// The `resourceVersion` of the Secret; `None` if there is none.
    pub(super) version: Option<String>,
    /// The key in it, which the line may have taken.
    pub(super) pending: Option<Pending>,
}

impl Pending {
    /// The id of its authority.
    pub(super) fn id(&self) -> AuthorityId {
        AuthorityId::of(self.key.public_key_der())
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let key = pem::encode_private(&self.pkcs8);
        let request = ByteString(self.request.clone().into_bytes());
        let mut data =
            BTreeMap::from([(KEY.to_owned(), ByteString(key.as_bytes().to_vec())), (REQUEST.to_owned(), request)]);
        if let Some(IssuerAnswer { chain, issuer }) = &self.answer {
            data.insert(CHAIN.to_owned(), ByteString(chain.clone().into_bytes()));
            data.insert(ISSUER.to_owned(), ByteString(issuer.clone().into_bytes()));
        }
        data
    }
}

impl Question<'_> {
    /// Whether the line has this authority, or has given it up.
    pub(super) fn had(&self, id: &AuthorityId) -> bool {
        self.line.is_some_and(|line| line.member(id).is_some() || line.gone().contains(id))
    }

    /// The key that waits. A new one is made if there is none, or if the line has taken it.
    pub(super) async fn pending(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
    ) -> Result<Result<Pending, String>, StoreError> {
        match self.kept(store).await? {
            Ok(Kept { pending: Some(pending), .. }) if !self.had(&pending.id()) => Ok(Ok(pending)),
            Ok(Kept { version, .. }) => Ok(self.new_pending(store, leads, version).await?.map(|(pending, _)| pending)),
            Err(why) => Ok(Err(why)),
        }
    }

    /// What is in the Secret.
    pub(super) async fn kept(&self, store: &AuthorityStore) -> Result<Result<Kept, String>, StoreError> {
        let name = self.names.pending();
        let Some(secret) = store.secret(&name).await? else { return Ok(Ok(Kept { version: None, pending: None })) };
        let pending = secret.0.data.as_ref().and_then(read);
        let is_empty = secret.0.data.as_ref().is_none_or(BTreeMap::is_empty);
        Ok(match pending {
            pending if pending.is_some() || is_empty => {
                Ok(Kept { version: secret.0.metadata.resource_version.clone(), pending })
            }
            _ => Err(format!("The Secret {name} has no readable key: delete it for a new request")),
        })
    }

    /// Makes a key in place of the one in the Secret of this version. Returns it with the version after that.
    pub(super) async fn new_pending(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
        version: Option<String>,
    ) -> Result<Result<(Pending, Option<String>), String>, StoreError> {
        let pending = match self.make() {
            Ok(pending) => pending,
            Err(why) => return Ok(Err(why)),
        };
        let version = self.keep(store, leads, version, &pending).await?;
        Ok(Ok((pending, version)))
    }

    /// Empties the Secret of this version, whose key the line has taken: no second copy of it stays. Returns the
    /// version after that.
    pub(super) async fn forget(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
        version: Option<String>,
    ) -> Result<Option<String>, StoreError> {
        store.keep_pending(leads, self.names, version, BTreeMap::new()).await
    }

    /// Writes a key, and what was answered for it, into the Secret of this version.
    pub(super) async fn keep(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
        version: Option<String>,
        pending: &Pending,
    ) -> Result<Option<String>, StoreError> {
        store.keep_pending(leads, self.names, version, pending.data()).await
    }

    /// The content of the request for an authority with this key.
    pub(super) fn wish(&self, key: &PrivateKey) -> CsrParams {
        let common_name = format!("{} {}", self.names.authority, AuthorityId::of(key.public_key_der()));
        CsrParams { common_name, ..CsrParams::default() }
    }

    fn make(&self) -> Result<Pending, String> {
        let rng = SystemRandom::new();
        let (key, pkcs8) = PrivateKey::generate(self.authority.key, &rng).map_err(|error| error.to_string())?;
        let request = self.wish(&key).sign_for_authority(&key, &rng).map_err(|error| error.to_string())?;
        Ok(Pending { key, pkcs8, request, answer: None })
    }
}

fn read(data: &BTreeMap<String, ByteString>) -> Option<Pending> {
    let (key, pkcs8) = PrivateKey::from_pem(&data.get(KEY)?.0, &SystemRandom::new()).ok()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok(); // what is no text counts as missing
    let answer = text(CHAIN).zip(text(ISSUER)).map(|(chain, issuer)| IssuerAnswer { chain, issuer });
    Some(Pending { key, pkcs8, request: text(REQUEST)?, answer })
}
