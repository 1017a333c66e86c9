//! An authority whose key the hub makes, and whose certificate an administrator brings days later: `ca csr`,
//! `ca import`.

use super::pending::PendingKey;
use super::{Question, Supply, SupplyAnswer, not_used};
use crate::authorities::store::{AuthorityStore, LineageKind, StoreError};
use crate::lease::Leads;
use addon_signer_core::ca::authority::Authority;
use addon_signer_core::encoding::pem;

const ORIGIN: &str = "the certificate of `ca import`";

impl Question<'_> {
    /// The CSR of the next authority, and the authority if its certificate was brought.
    pub(super) async fn requested(&self, store: &AuthorityStore, leads: &Leads) -> Result<SupplyAnswer, StoreError> {
        let pending = match self.pending(store, leads).await? {
            Ok(pending) => pending,
            Err(why) => return Ok(Supply::Refused(why).into()),
        };
        let supply = match self.brought {
            None => Supply::Nothing(self.next()),
            Some(text) => self.answer(text, &pending),
        };
        Ok(SupplyAnswer { supply, request: Some(pending.request) })
    }

    /// What a rotation waits for.
    fn next(&self) -> String {
        let lineage = if self.names.kind == LineageKind::Agents { "" } else { " --serving" };
        format!("the certificate of the CSR that `ca csr{lineage}` prints (`ca import{lineage}`)")
    }

    /// What became of the certificate that was brought last.
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
}
