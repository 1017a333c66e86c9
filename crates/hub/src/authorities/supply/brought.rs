//! Authorities that somebody brings: with the key, in a Secret that a person or cert-manager writes; or the certificate
//! alone, for a key that the hub makes, which an administrator brings days later by `ca csr` and `ca import`.
//!
//! An annotation of such a Secret names its AddOnSigner, because whoever may write AddOnSigners may name any Secret.

use std::fmt::Display;

use ring::rand::SystemRandom;

use super::pending::PendingKey;
use super::{NoAnswer, Question, Supply, SupplyAnswer, not_used, unused};
use crate::authorities::store::{AuthorityStore, LineageKind};
use crate::authorities::stored::WipedSecret;
use crate::lease::Leads;
use addon_signer_core::ca::authority::Authority;
use addon_signer_core::encoding::pem;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::names::ANNOTATION_AUTHORITY_OF;

const ORIGIN: &str = "the certificate of `ca import`";

impl Question<'_> {
    /// The CSR of the next authority, and the authority if its certificate was imported.
    pub(super) async fn requested(&self, store: &AuthorityStore, leads: &Leads) -> Result<SupplyAnswer, NoAnswer> {
        let pending = self.pending(store, leads).await?;
        let supply = match self.brought {
            None => Supply::Nothing(self.next()),
            Some(text) => self.answer(text, &pending),
        };
        Ok(SupplyAnswer { supply, request: Some(pending.request) })
    }

    /// What a rotation waits for.
    fn next(&self) -> String {
        let lineage = if self.names.kind == LineageKind::Signer { "" } else { " --serving" };
        format!("the certificate of the CSR that `ca csr{lineage}` prints (`ca import{lineage}`)")
    }

    /// What came of the certificate that was imported last.
    fn answer(&self, text: &str, pending: &PendingKey) -> Supply {
        let chain = match pem::certificates(text.as_bytes()) {
            Ok(chain) => chain,
            Err(error) => return not_used(ORIGIN, &error),
        };
        let first = chain.first().and_then(|der| Authority::from_der(der).ok());
        if first.as_ref().is_some_and(|first| self.had(first.id())) {
            return Supply::Nothing(self.next());
        }
        let when = text.split(' ').next().unwrap_or_default();
        let id = first.map_or_else(String::new, |first| format!(" ({}, {when})", first.id()));
        self.examine(&format!("{ORIGIN}{id}"), (&chain, &[]), (pending.key.public_key_der(), pending.pkcs8.clone()))
    }

    /// The content of the Secret: `tls.crt` (the authority and its chain), `tls.key`, and `ca.crt` (the root), which
    /// may be missing if the chain has the root.
    pub(super) async fn imported(&self, store: &AuthorityStore, name: &str) -> Result<Supply, NoAnswer> {
        let origin = format!("the Secret {name}");
        let refused = |why: &dyn Display| NoAnswer::Refused(unused(&origin, why));
        // A flag of the hub names the Secret of a gateway lineage, so that needs no annotation. The author of an
        // AddOnSigner does not learn which Secrets there are.
        let (lineage, needs_annotation) = (self.names.lineage(), self.names.kind == LineageKind::Signer);
        let is_named = |secret: &WipedSecret| {
            let annotations = secret.0.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(ANNOTATION_AUTHORITY_OF)).is_some_and(|of| of == lineage)
        };
        let secret = store.secret(name).await?.filter(|secret| !needs_annotation || is_named(secret));
        let secret = secret.ok_or_else(|| {
            let unnamed = format!(", or its annotation {ANNOTATION_AUTHORITY_OF} does not name {lineage}");
            let unnamed = if needs_annotation { &*unnamed } else { "" };
            refused(&format_args!("it does not exist in the hub's namespace{unnamed}"))
        })?;
        let data = secret.0.data.as_ref();
        let field = |key: &str| data.and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
        let pair = field("tls.crt").zip(field("tls.key"));
        let (certificate, key) = pair.ok_or_else(|| refused(&"it lacks tls.crt or tls.key"))?;
        let certificates =
            |key: &str, text: &[u8]| pem::certificates(text).map_err(|error| refused(&format_args!("{key}: {error}")));
        let chain = certificates("tls.crt", certificate)?;
        let roots = field("ca.crt").filter(|roots| !roots.trim_ascii().is_empty());
        let roots = roots.map(|roots| certificates("ca.crt", roots)).transpose()?.unwrap_or_default();
        let key = PrivateKey::from_pem(key, &SystemRandom::new());
        let (key, pkcs8) = key.map_err(|error| refused(&format_args!("tls.key: {error}")))?;
        let supply = self.examine(&origin, (&chain, &roots), (key.public_key_der(), pkcs8));
        let older = match &supply {
            Supply::New(given) => self.older(&given.certified),
            _ => None,
        };
        older.map_or(Ok(supply), |why| Err(refused(&why)))
    }
}
