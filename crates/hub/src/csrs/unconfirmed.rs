//! Keeps signed certificates that the watch has not shown yet.
//!
//! So a CSR never gets a second certificate if the response to the first write was lost or the watch is late.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use parking_lot::Mutex;

use crate::csrs::action::uid;
use addon_signer_core::ca::issuer::Issued;
use addon_signer_core::journal::CsrUid;
use addon_signer_core::timestamp::Timestamp;

/// A certificate without a confirmed publication is forgotten after this time.
const REMEMBER: Duration = Duration::from_secs(3_600);
/// How far the watch may lag behind the hub's own write before the CSR is handled as the watch shows it.
pub(super) const WATCH_BEHIND: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
struct UnconfirmedCertificate {
    issued: Issued,
    since: Timestamp,
    /// Whether the API server has confirmed the write.
    published: bool,
}

/// The unconfirmed certificates, by the UID of the CSR.
#[derive(Debug, Default)]
pub(crate) struct Unconfirmed(Mutex<HashMap<CsrUid, UnconfirmedCertificate>>);

impl Unconfirmed {
    /// The certificate that was already signed for this CSR.
    pub(super) fn recall(&self, csr: &CertificateSigningRequest) -> Option<Issued> {
        self.0.lock().get(&uid(csr)).map(|known| known.issued.clone())
    }

    pub(super) fn remember(&self, csr: &CertificateSigningRequest, issued: &Issued, now: Timestamp) {
        let mut known = self.0.lock();
        if known.contains_key(&uid(csr)) {
            return; // a CSR has one certificate
        }
        known.retain(|_, known| known.since.until(now) < REMEMBER);
        known.insert(uid(csr), UnconfirmedCertificate { issued: issued.clone(), since: now, published: false });
    }

    pub(super) fn mark_published(&self, csr: &CertificateSigningRequest, now: Timestamp) {
        if let Some(known) = self.0.lock().get_mut(&uid(csr)) {
            known.since = now;
            known.published = true;
        }
    }

    /// Whether the certificate was published so recently that the watch may not show it yet.
    pub(super) fn was_published(&self, csr: &CertificateSigningRequest, now: Timestamp) -> bool {
        self.0.lock().get(&uid(csr)).is_some_and(|known| known.published && known.since.until(now) < WATCH_BEHIND)
    }

    /// Forgets a CSR that is done or was deleted.
    pub(super) fn forget(&self, csr: &CertificateSigningRequest) {
        self.0.lock().remove(&uid(csr));
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::CertificateDer;

    use super::*;
    use addon_signer_core::ca::serial::Serial;

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

    fn mk_csr(uid: &str) -> CertificateSigningRequest {
        let mut csr = CertificateSigningRequest::default();
        csr.metadata.uid = Some(uid.to_owned());
        csr
    }

    fn mk_issued(n: u8) -> Issued {
        Issued {
            certificate: CertificateDer::from(vec![n]),
            serial: Serial::from_hex(&format!("{n:040x}")).unwrap(),
            issuer: "0123456789abcdef".into(),
            not_before: NOW,
            not_after: NOW,
        }
    }

    #[test]
    fn request_keeps_one_certificate_and_rests_while_watch_may_lag() {
        let unconfirmed = Unconfirmed::default();
        let csr = mk_csr("a");
        assert_eq!(unconfirmed.recall(&csr), None);
        unconfirmed.remember(&csr, &mk_issued(1), NOW);
        unconfirmed.remember(&csr, &mk_issued(2), NOW);
        assert_eq!(unconfirmed.recall(&csr), Some(mk_issued(1)));
        assert_eq!(unconfirmed.recall(&mk_csr("b")), None);
        assert!(!unconfirmed.was_published(&csr, NOW));
        // The time counts from the write, however long ago the certificate was signed.
        let published = NOW.plus(WATCH_BEHIND * 2);
        unconfirmed.mark_published(&csr, published);
        assert!(unconfirmed.was_published(&csr, published.plus(WATCH_BEHIND - Duration::from_secs(1))));
        assert!(!unconfirmed.was_published(&csr, published.plus(WATCH_BEHIND)));
        unconfirmed.forget(&csr);
        assert_eq!(unconfirmed.recall(&csr), None);
    }

    #[test]
    fn a_certificate_that_nobody_confirms_is_forgotten() {
        let unconfirmed = Unconfirmed::default();
        unconfirmed.remember(&mk_csr("a"), &mk_issued(1), NOW);
        unconfirmed.remember(&mk_csr("b"), &mk_issued(2), NOW.plus(REMEMBER));
        assert_eq!(unconfirmed.recall(&mk_csr("a")), None);
        assert_eq!(unconfirmed.recall(&mk_csr("b")), Some(mk_issued(2)));
    }
}
