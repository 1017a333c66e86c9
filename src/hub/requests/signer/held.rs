//! Requests whose row of the ledger cannot be used: it was altered, or it is another hub's. Nothing is signed for them,
//! because nobody knows what was given out, and somebody has to look: they wait longer each time.

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
use addon_signer_core::timestamp::Timestamp;

/// A ledger that was mended is noticed after this time, or at once by a hub that is started anew.
const LONGEST: Duration = Duration::from_secs(300);

/// What the ledger has of a request, and why it is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "row {row} of the ledger, which is about the request {csr}, holds {fault}: the ledger was altered, or restored from another \
     hub's; find out by `addon-signer certs verify`, put the right ledger back, or delete the request, whose agent then makes a \
     new one"
)]
pub struct Unusable {
    /// The row.
    pub row: u64,
    /// The name of the request.
    pub csr: String,
    /// What it holds.
    pub fault: RecordFault,
}

/// How often each of them was tried, by its UID.
#[derive(Debug, Default)]
pub struct HeldRequests(Mutex<HashMap<String, Tries>>);

#[derive(Debug)]
struct Tries {
    failures: u32,
    last: Timestamp,
}

impl HeldRequests {
    /// Counts one more try: how long to wait until the next, and whether this was the first.
    fn again(&self, uid: &str, now: Timestamp) -> (Duration, bool) {
        // Every change is one operation on the map, so that a panic elsewhere leaves it whole.
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever is not tried any more is gone.
        held.retain(|_, tries| tries.last.until(now) <= LONGEST * 2);
        let tries = held.entry(uid.to_owned()).or_insert(Tries { failures: 0, last: now });
        let pause = doubled(RETRY, tries.failures, LONGEST);
        let first = tries.failures == 0;
        *tries = Tries { failures: tries.failures.saturating_add(1), last: now };
        (pause, first)
    }
}

impl Signer {
    /// Says so on the request, once, and lets it wait.
    pub(super) async fn hold(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        unusable: &Unusable,
        now: Timestamp,
    ) -> Result<Requeue, SignerError> {
        let (pause, first) = self.held.again(csr.metadata.uid.as_deref().unwrap_or_default(), now);
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
                warn!(%error, csr = csr.name_any(), "Writing the event of a request that is held");
            }
        }
        Ok(Requeue::requeue(pause))
    }
}

/// As conditions have it.
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
        let seconds: Vec<u64> = (0..10).map(|_| held.again("a", NOW).0.as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(held.again("b", NOW), (RETRY, true), "each by itself");
        assert!(!held.again("b", NOW.plus(LONGEST)).1);
    }

    #[test]
    fn request_that_is_gone_is_forgotten() {
        let held = HeldRequests::default();
        held.again("a", NOW);
        held.again("b", NOW.plus(LONGEST * 2 + Duration::from_secs(1)));
        assert_eq!(held.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn sentence_names_row_request_and_what_to_do() {
        let unusable = Unusable { row: 12, csr: "addon-1".to_owned(), fault: RecordFault::OtherKey };
        assert_eq!(
            sentence(&unusable),
            "Row 12 of the ledger, which is about the request addon-1, holds a certificate whose public key is not the request's: \
             the ledger was altered, or restored from another hub's; find out by `addon-signer certs verify`, put the right ledger \
             back, or delete the request, whose agent then makes a new one."
        );
    }
}
