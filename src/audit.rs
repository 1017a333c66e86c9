//! Decisions of consequence, one line each on the tracing target `audit`, with fixed field names.

use tracing::info;

use crate::policy::Refusal;

/// A certificate was given to somebody.
pub(crate) fn granted(signer: &str, csr: &str, requester: &str, identity: &str, serial: &str, not_after: &str) {
    info!(target: "audit", event = "granted", signer, csr, requester, identity, serial, not_after, "Signed a certificate");
}

/// A request was refused.
pub(crate) fn refused(signer: &str, csr: &str, requester: &str, refusal: &Refusal) {
    let (rule, reason) = (refusal.rule(), refusal.reason());
    info!(target: "audit", event = "refused", signer, csr, requester, rule, reason, cause = %refusal, "Refused a request");
}

/// An authority was created, prepared, activated or retired.
pub(crate) fn authority(line: &str, id: &str, step: &str) {
    info!(target: "audit", event = "authority", line, authority = id, step, "Took a step of a line of authorities");
}

/// The API server asked the inventory on behalf of a user; `request` is path and query, `status` the code of the answer.
pub(crate) fn inventory(user: &str, request: &str, status: u16) {
    info!(target: "audit", event = "inventory", user, request, status, "Answered a question about the ledger");
}
