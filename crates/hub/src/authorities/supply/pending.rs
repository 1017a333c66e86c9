//! The key of the next authority while it has no certificate. It waits in a Secret of its own and never leaves it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use ring::rand::SystemRandom;
use zeroize::Zeroizing;

use super::{NoAnswer, Question};
use crate::authorities::store::{AuthorityStore, StoreError};
use crate::lease::Leads;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::encoding::pem;
use addon_signer_core::keys::private::PrivateKey;

const KEY: &str = "tls.key";
const REQUEST: &str = "request.csr";

/// A key that waits for its certificate.
pub(super) struct PendingKey {
    pub(super) key: PrivateKey,
    pub(super) pkcs8: Zeroizing<Vec<u8>>,
    pub(super) request: String,
}

/// The content of the Secret for such a key.
pub(super) struct KeptKey {
    /// The `resourceVersion` of the Secret; `None` if there is none.
    pub(super) version: Option<String>,
    /// The key in it, which the lineage may have taken.
    pub(super) pending: Option<PendingKey>,
}

impl PendingKey {
    /// The id of its authority.
    pub(super) fn id(&self) -> AuthorityId {
        AuthorityId::of(self.key.public_key_der())
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let key = pem::encode_private(&self.pkcs8);
        let request = ByteString(self.request.clone().into_bytes());
        [(KEY.to_owned(), ByteString(key.as_bytes().to_vec())), (REQUEST.to_owned(), request)].into()
    }
}

impl Question<'_> {
    /// Whether the lineage has or had this authority.
    pub(super) fn had(&self, id: &AuthorityId) -> bool {
        self.lineage.is_some_and(|lineage| lineage.member(id).is_some() || lineage.gone().contains(id))
    }

    /// The waiting key. A new one is made if there is none, or if the lineage has taken it.
    pub(super) async fn pending(&self, store: &AuthorityStore, leads: &Leads) -> Result<PendingKey, NoAnswer> {
        match self.kept(store).await? {
            KeptKey { pending: Some(pending), .. } if !self.had(&pending.id()) => Ok(pending),
            KeptKey { version, .. } => self.new_pending(store, leads, version).await,
        }
    }

    /// Reads the Secret.
    pub(super) async fn kept(&self, store: &AuthorityStore) -> Result<KeptKey, NoAnswer> {
        let name = self.names.pending();
        let Some(secret) = store.secret(&name).await? else { return Ok(KeptKey { version: None, pending: None }) };
        let data = secret.0.data.as_ref();
        let pending = data.and_then(read);
        if pending.is_none() && data.is_some_and(|data| !data.is_empty()) {
            return Err(NoAnswer::Refused(format!("The Secret {name} has no readable key: delete it for a new CSR")));
        }
        Ok(KeptKey { version: secret.0.metadata.resource_version.clone(), pending })
    }

    /// Replaces the key in the Secret of this version by a new one.
    pub(super) async fn new_pending(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
        version: Option<String>,
    ) -> Result<PendingKey, NoAnswer> {
        let pending = self.make().map_err(NoAnswer::Refused)?;
        store.keep_pending(leads, self.names, version, pending.data()).await?;
        Ok(pending)
    }

    /// Empties the Secret of this version, so that no second copy of the key stays once the lineage has it. Returns the
    /// new version.
    pub(super) async fn forget(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
        version: Option<String>,
    ) -> Result<Option<String>, StoreError> {
        store.keep_pending(leads, self.names, version, BTreeMap::new()).await
    }

    fn make(&self) -> Result<PendingKey, String> {
        let rng = SystemRandom::new();
        let (key, pkcs8) = PrivateKey::generate(self.authority.key, &rng).map_err(|error| error.to_string())?;
        let common_name = format!("{} {}", self.names.authority, AuthorityId::of(key.public_key_der()));
        let wish = CsrParams { common_name, ..CsrParams::default() };
        let request = wish.sign_for_authority(&key, &rng).map_err(|error| error.to_string())?;
        Ok(PendingKey { key, pkcs8, request })
    }
}

fn read(data: &BTreeMap<String, ByteString>) -> Option<PendingKey> {
    let (key, pkcs8) = PrivateKey::from_pem(&data.get(KEY)?.0, &SystemRandom::new()).ok()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok(); // invalid text counts as missing
    Some(PendingKey { key, pkcs8, request: text(REQUEST)? })
}
