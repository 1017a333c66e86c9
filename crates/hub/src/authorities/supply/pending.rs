//! The key of the next authority while that has no certificate. It waits in a Secret of its own and never leaves it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use ring::rand::SystemRandom;
use zeroize::Zeroizing;

use super::Question;
use crate::authorities::store::{AuthorityStore, StoreError};
use crate::authorities::stored::WipedSecret;
use crate::lease::Leads;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::encoding::pem;
use addon_signer_core::keys::private::PrivateKey;

const KEY: &str = "tls.key";
const REQUEST: &str = "request.csr";

/// A key that waits for its certificate.
pub(super) struct Pending {
    pub(super) key: PrivateKey,
    pub(super) pkcs8: Zeroizing<Vec<u8>>,
    pub(super) request: String,
}

/// The Secret of such keys, and the key in it, which the line may have taken.
pub(super) struct Kept {
    pub(super) secret: Option<WipedSecret>,
    pub(super) pending: Option<Pending>,
}

impl Pending {
    /// The id of its authority.
    pub(super) fn id(&self) -> AuthorityId {
        AuthorityId::of(self.key.public_key_der())
    }
}

impl Question<'_> {
    /// Whether the line has this authority, or has given it up.
    pub(super) fn had(&self, id: &AuthorityId) -> bool {
        self.line.is_some_and(|line| line.member(id).is_some() || line.gave_up(id))
    }

    /// The key that waits. A new one is made if there is none, or if the line has taken it.
    pub(super) async fn pending(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
    ) -> Result<Result<Pending, String>, StoreError> {
        match self.kept(store).await? {
            Ok(Kept { pending: Some(pending), .. }) if !self.had(&pending.id()) => Ok(Ok(pending)),
            Ok(Kept { secret, .. }) => self.new_pending(store, leads, secret).await,
            Err(why) => Ok(Err(why)),
        }
    }

    /// What is in the Secret.
    pub(super) async fn kept(&self, store: &AuthorityStore) -> Result<Result<Kept, String>, StoreError> {
        let name = self.names.pending();
        let Some(secret) = store.secret(&name).await? else { return Ok(Ok(Kept { secret: None, pending: None })) };
        let pending = secret.0.data.as_ref().and_then(read);
        Ok(match pending {
            Some(_) => Ok(Kept { secret: Some(secret), pending }),
            None => Err(format!("The Secret {name} has no readable key: delete it for a new request")),
        })
    }

    /// Makes a key in place of the one in this Secret.
    pub(super) async fn new_pending(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
        earlier: Option<WipedSecret>,
    ) -> Result<Result<Pending, String>, StoreError> {
        let pending = match self.make() {
            Ok(pending) => pending,
            Err(why) => return Ok(Err(why)),
        };
        let key = pem::encode_private(&pending.pkcs8);
        let data = BTreeMap::from([
            (KEY.to_owned(), ByteString(key.as_bytes().to_vec())),
            (REQUEST.to_owned(), ByteString(pending.request.clone().into_bytes())),
        ]);
        store.keep_pending(leads, self.names, earlier, data).await?;
        Ok(Ok(pending))
    }

    fn make(&self) -> Result<Pending, String> {
        let rng = SystemRandom::new();
        let (key, pkcs8) = PrivateKey::generate(self.authority.key, &rng).map_err(|error| error.to_string())?;
        let common_name = format!("{} {}", self.names.authority, AuthorityId::of(key.public_key_der()));
        let wish = CsrParams { common_name, ..CsrParams::default() };
        let request = wish.sign_for_authority(&key, &rng).map_err(|error| error.to_string())?;
        Ok(Pending { key, pkcs8, request })
    }
}

fn read(data: &BTreeMap<String, ByteString>) -> Option<Pending> {
    let (key, pkcs8) = PrivateKey::from_pem(&data.get(KEY)?.0, &SystemRandom::new()).ok()?;
    let request = String::from_utf8(data.get(REQUEST)?.0.clone()).ok()?;
    Some(Pending { key, pkcs8, request })
}
