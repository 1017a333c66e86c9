//! Finds CSRs whose certificates the ledger does not have: the ledger was lost or restored from a backup, or another
//! program signed them. They keep their certificates.

use crate::metrics::Difference;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use tracing::{error, warn};

use crate::csrs::action;
use crate::csrs::signer::Signer;
use crate::recording::answered;
use addon_signer_core::journal::CsrUid;
use addon_signer_core::timestamp::Timestamp;

/// How many issued CSRs are compared. Kubernetes deletes them after an hour.
const MOST: usize = 10_000;
/// How many of them a log line names.
const NAMED: usize = 5;

/// A CSR that had its certificate before this hub led.
pub(super) struct IssuedCsr {
    name: String,
    id: (Timestamp, CsrUid),
}

/// The issued CSRs of the first list, by signer name, until their signers are served.
#[derive(Default)]
pub(super) struct IssuedBefore {
    of: HashMap<String, Vec<IssuedCsr>>,
    count: usize,
    is_complete: bool,
}

impl IssuedBefore {
    /// Notes that a list begins.
    pub(super) fn begin(&mut self) {
        if !self.is_complete {
            *self = Self::default();
        }
    }

    /// Notes a listed CSR that has its certificate.
    pub(super) fn note(&mut self, csr: &CertificateSigningRequest) {
        // Kubernetes' own signers are never ours, and they have most of the CSRs.
        if self.is_complete || csr.spec.signer_name.starts_with("kubernetes.io/") {
            return;
        }
        self.count += 1;
        if self.count <= MOST {
            let request = IssuedCsr { name: csr.name_any(), id: (action::requested(csr), action::uid(csr)) };
            self.of.entry(csr.spec.signer_name.clone()).or_default().push(request);
        } else if self.count == MOST + 1 {
            warn!(compared = MOST, "There are more CSRs with certificates than the hub compares with the ledger");
        }
    }

    /// Notes that a list is complete.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Takes the CSRs of a signer, once. Empty before the list is complete.
    pub(super) fn take(&mut self, signer_name: &str) -> Vec<IssuedCsr> {
        let taken = self.is_complete.then(|| self.of.remove(signer_name));
        taken.flatten().unwrap_or_default()
    }
}

/// Compares the CSRs of a signer with the ledger, and logs which certificates it does not have.
pub(super) async fn compare(signer: Arc<Signer>, issued: Vec<IssuedCsr>) {
    let ids: Vec<_> = issued.iter().map(|request| request.id.clone()).collect();
    let Ok(recorded) = answered(|| signer.shared.links.ledger.recorded(&ids)).await else { return }; // the hub ends
    let unknown: Vec<_> = issued.iter().filter(|request| !recorded.contains(&request.id.1)).collect();
    if unknown.is_empty() {
        return;
    }
    let names: Vec<_> = unknown.iter().take(NAMED).map(|request| request.name.as_str()).collect();
    error!(
        signer = signer.name(),
        count = unknown.len(),
        requests = names.join(" "),
        "The ledger does not have the certificates of some CSRs: it was restored from a backup or lost, or another \
         program signed them. See \"Restoring a backup\" in docs/operations.md"
    );
    signer.shared.links.metrics.differs(Difference::Requests, unknown.len());
}
