//! Keeps certificates that were signed and that the watch has not shown yet.
//!
//! So a request never gets a second certificate because the answer to the first write was lost or the watch is late.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use addon_signer_core::ca::issuer::Issued;
use addon_signer_core::timestamp::Timestamp;

/// A certificate whose publication nobody confirmed is forgotten after this time.
const REMEMBER: Duration = Duration::from_secs(3_600);
/// How far the watch may be behind our own write before the request is looked at as the watch shows it.
pub(super) const WATCH_BEHIND: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
struct UnconfirmedCertificate {
    issued: Issued,
    since: Timestamp,
    /// Whether the API server has confirmed the write.
    published: bool,
}

/// The unconfirmed certificates, by the UID of the request.
#[derive(Debug, Default)]
pub struct Unconfirmed(Mutex<HashMap<String, UnconfirmedCertificate>>);

fn uid(csr: &CertificateSigningRequest) -> &str {
    csr.metadata.uid.as_deref().unwrap_or_default()
}

impl Unconfirmed {
    fn known(&self) -> MutexGuard<'_, HashMap<String, UnconfirmedCertificate>> {
        // Every change is one operation on the map, so that a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificate that was signed for this request before.
    pub(super) fn recall(&self, csr: &CertificateSigningRequest) -> Option<Issued> {
        self.known().get(uid(csr)).map(|known| known.issued.clone())
    }

    pub(super) fn remember(&self, csr: &CertificateSigningRequest, issued: &Issued, now: Timestamp) {
        let mut known = self.known();
        if known.contains_key(uid(csr)) {
            return; // a request has one certificate
        }
        known.retain(|_, known| known.since.until(now) < REMEMBER);
        known.insert(
            uid(csr).to_owned(),
            UnconfirmedCertificate { issued: issued.clone(), since: now, published: false },
        );
    }

    pub(super) fn mark_published(&self, csr: &CertificateSigningRequest) {
        if let Some(known) = self.known().get_mut(uid(csr)) {
            known.published = true;
        }
    }

    /// Whether the certificate was published so recently that the watch may not show it yet.
    pub(super) fn was_published(&self, csr: &CertificateSigningRequest, now: Timestamp) -> bool {
        self.known().get(uid(csr)).is_some_and(|known| known.published && known.since.until(now) < WATCH_BEHIND)
    }

    pub(super) fn forget(&self, csr: &CertificateSigningRequest) {
        self.known().remove(uid(csr));
    }
}
