//! CSRs whose row of the ledger cannot be used, because the ledger was altered or belongs to another hub. The hub
//! signs nothing for them, because it does not know which certificate they got.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use tracing::{debug, error, warn};

use super::{Outcome, Signer, SignerError};
use crate::csrs::action::{self, RECORD_UNUSABLE};
use crate::lease::Leads;
use addon_signer_core::ca::issuer::RecordFault;
use addon_signer_core::conditions::LEDGER_ROW_UNUSABLE;
use addon_signer_core::timestamp::Timestamp;

/// A row of the ledger that cannot be used for its CSR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "row {row} of the ledger, which is about the CSR {csr}, holds {fault}: the ledger was altered, or restored \
     from another hub's backup; check it with `addon-signer certs verify`, restore the right ledger, or delete the \
     CSR, whose agent then makes a new one"
)]
pub(crate) struct Unusable {
    /// The number of the row.
    pub row: u64,
    /// The name of the CSR.
    pub csr: String,
    /// What is wrong with the row.
    pub fault: RecordFault,
}

impl Signer {
    /// Says on the CSR, once, that its row cannot be used, and lets it wait.
    pub(super) async fn hold(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        now: Timestamp,
        unusable: &Unusable,
    ) -> Result<Outcome, SignerError> {
        if action::has_condition(csr, RECORD_UNUSABLE) {
            debug!(csr = csr.name_any(), "A CSR still cannot be worked on");
        } else if self.may_answer(csr, now).is_ok() {
            let answers = self.answers(leads);
            let reason = LEDGER_ROW_UNUSABLE;
            let sentence = sentence(unusable);
            self.counted(csr, answers.add_condition(csr, RECORD_UNUSABLE, reason, &sentence)).await?;
            error!(csr = csr.name_any(), error = %unusable, "A CSR cannot be worked on");
            self.shared.metrics.quarantined(&self.name());
            if let Err(error) = answers.event(csr, &self.shared.recorder, reason, &sentence).await {
                // The condition on the CSR says the same; an event is a convenience.
                warn!(%error, csr = csr.name_any(), "Could not write an event about a quarantined CSR");
            }
        }
        Ok(Outcome::Quarantined)
    }
}

/// The error as a sentence, for a condition.
fn sentence(unusable: &Unusable) -> String {
    let text = unusable.to_string();
    let mut letters = text.chars();
    letters.next().map(|first| format!("{}{}.", first.to_uppercase(), letters.as_str())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_names_row_request_and_what_to_do() {
        let unusable = Unusable { row: 12, csr: "addon-1".to_owned(), fault: RecordFault::OtherKey };
        assert_eq!(
            sentence(&unusable),
            "Row 12 of the ledger, which is about the CSR addon-1, holds a certificate whose public key is not the \
             CSR's: the ledger was altered, or restored from another hub's backup; check it with `addon-signer \
             certs verify`, restore the right ledger, or delete the CSR, whose agent then makes a new one."
        );
    }
}
