//! Requests whose row of the ledger cannot be used, because the ledger was altered or belongs to another hub. The hub
//! signs nothing for them, because it does not know which certificate they got. They wait longer after each try,
//! because a person has to find the cause.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use kube::runtime::controller::Action as Requeue;
use tracing::{debug, error, warn};

use super::{RETRY, Signer, SignerError};
use crate::hub::lease::Leads;
use crate::hub::requests::plan::{self, RECORD_UNUSABLE};
use addon_signer_core::backoff::doubled;
use addon_signer_core::ca::issuer::RecordFault;
use addon_signer_core::journal::uid::RequestUid;
use addon_signer_core::timestamp::Timestamp;

/// The longest pause between two tries. The hub notices a repaired ledger within this time; a restarted hub at once.
const LONGEST: Duration = Duration::from_secs(300);

/// A row of the ledger that cannot be used for its request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "row {row} of the ledger, which is about the request {csr}, holds {fault}: the ledger was altered, or restored \
     from another hub's backup; check it by `addon-signer certs verify`, put the right ledger back, or delete the \
     request, whose agent then makes a new one"
)]
pub struct Unusable {
    /// The number of the row.
    pub row: u64,
    /// The name of the request.
    pub csr: String,
    /// What is wrong with the row.
    pub fault: RecordFault,
}

/// How often each held request was tried, by its UID.
#[derive(Debug, Default)]
pub struct HeldRequests(Mutex<HashMap<RequestUid, Tries>>);

#[derive(Debug)]
struct Tries {
    failures: u32,
    last: Timestamp,
}

impl HeldRequests {
    /// Counts one more try; returns the pause before the next one, and whether this was the first.
    fn again(&self, uid: RequestUid, now: Timestamp) -> (Duration, bool) {
        // Every change is one operation on the map, so that a panic elsewhere leaves it whole.
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A request that was not tried for so long is gone.
        held.retain(|_, tries| tries.last.until(now) <= LONGEST * 2);
        let tries = held.entry(uid).or_insert(Tries { failures: 0, last: now });
        let pause = doubled(RETRY, tries.failures, LONGEST);
        let first = tries.failures == 0;
        *tries = Tries { failures: tries.failures.saturating_add(1), last: now };
        (pause, first)
    }
}

impl Signer {
    /// Says on the request, once, that its row cannot be used, and lets it wait.
    pub(super) async fn hold(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        unusable: &Unusable,
        now: Timestamp,
    ) -> Result<Requeue, SignerError> {
        let (pause, first) = self.held.again(plan::uid(csr), now);
        if first {
            error!(csr = csr.name_any(), error = %unusable, "A request cannot be worked on");
        } else {
            debug!(csr = csr.name_any(), ?pause, "A request still cannot be worked on");
        }
        if !plan::has_condition(csr, RECORD_UNUSABLE) {
            let answers = self.answers(leads);
            let reason = "LedgerRowUnusable";
            let sentence = sentence(unusable);
            answers.add_condition(csr, RECORD_UNUSABLE, reason, &sentence).await?;
            self.shared.metrics.held(&self.name());
            if let Err(error) = answers.event(csr, &self.shared.recorder, reason, &sentence).await {
                // The condition on the request says the same; an event is a convenience.
                warn!(%error, csr = csr.name_any(), "Could not write an event about a held request");
            }
        }
        Ok(Requeue::requeue(pause))
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

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

    #[test]
    fn request_that_is_held_waits_twice_as_long_each_time() {
        let held = HeldRequests::default();
        let seconds: Vec<u64> = (0..10).map(|_| held.again("a".into(), NOW).0.as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(held.again("b".into(), NOW), (RETRY, true), "each by itself");
        assert!(!held.again("b".into(), NOW.plus(LONGEST)).1);
    }

    #[test]
    fn request_that_is_gone_is_forgotten() {
        let held = HeldRequests::default();
        held.again("a".into(), NOW);
        held.again("b".into(), NOW.plus(LONGEST * 2 + Duration::from_secs(1)));
        assert_eq!(held.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn sentence_names_row_request_and_what_to_do() {
        let unusable = Unusable { row: 12, csr: "addon-1".to_owned(), fault: RecordFault::OtherKey };
        assert_eq!(
            sentence(&unusable),
            "Row 12 of the ledger, which is about the request addon-1, holds a certificate whose public key is not the \
             request's: the ledger was altered, or restored from another hub's backup; check it by `addon-signer certs \
             verify`, put the right ledger back, or delete the request, whose agent then makes a new one."
        );
    }
}
