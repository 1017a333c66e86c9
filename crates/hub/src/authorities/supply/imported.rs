//! An authority with its key in a Secret that somebody else writes: a person, or cert-manager. An annotation of the
//! Secret names its AddOnSigner, because whoever may write AddOnSigners may name any Secret.

use ring::rand::SystemRandom;

use super::{Question, Supply, not_used};
use crate::authorities::store::{AuthorityStore, LineageKind, StoreError};
use addon_signer_core::encoding::pem;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::names::ANNOTATION_AUTHORITY_OF;

impl Question<'_> {
    /// What is in the Secret: `tls.crt` (the authority and what is above it), `tls.key`, and `ca.crt` (the root), which
    /// may be missing if the chain has the root.
    pub(super) async fn imported(&self, store: &AuthorityStore, name: &str) -> Result<Supply, StoreError> {
        let origin = format!("the Secret {name}");
        let refused = |why: String| Ok(not_used(&origin, &why));
        let Some(secret) = store.secret(name).await? else {
            return refused("it does not exist in the hub's namespace".to_owned());
        };
        let annotations = secret.0.metadata.annotations.as_ref();
        let of = annotations.and_then(|all| all.get(ANNOTATION_AUTHORITY_OF)).map(String::as_str);
        // The Secret of a lineage of the gateway is named by a flag of the hub.
        if self.names.kind == LineageKind::Agents && of != Some(self.names.lineage()) {
            let lineage = self.names.lineage();
            return refused(format!("its annotation {ANNOTATION_AUTHORITY_OF} does not name {lineage}"));
        }
        let data = secret.0.data.as_ref();
        let field = |key: &str| data.and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
        let (Some(certificate), Some(key)) = (field("tls.crt"), field("tls.key")) else {
            return refused("it lacks tls.crt or tls.key".to_owned());
        };
        let chain = match pem::certificates(certificate) {
            Ok(chain) => chain,
            Err(error) => return refused(format!("tls.crt: {error}")),
        };
        let roots = match field("ca.crt").filter(|roots| !roots.trim_ascii().is_empty()).map(pem::certificates) {
            None => Vec::new(),
            Some(Ok(roots)) => roots,
            Some(Err(error)) => return refused(format!("ca.crt: {error}")),
        };
        match PrivateKey::from_pem(key, &SystemRandom::new()) {
            Ok((key, pkcs8)) => {
                let supply = self.examine(&origin, (&chain, &roots), (key.public_key_der(), pkcs8));
                let older = match &supply {
                    Supply::New(given) => self.older(&given.certified),
                    _ => None,
                };
                Ok(older.map_or(supply, |why| not_used(&origin, &why)))
            }
            Err(error) => refused(format!("tls.key: {error}")),
        }
    }
}
