//! The CA certificates of a backend.

use std::ops::Deref;
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use rustls_pki_types::CertificateDer;

/// The CA certificates of which one must have signed a backend's. Owners of AddOnRoutes choose their size, and each
/// request compares backends: so copies share them, and only their digests are compared.
#[derive(Debug, Clone)]
pub struct BackendAnchors {
    certificates: Arc<[CertificateDer<'static>]>,
    digest: Vec<u8>,
}

impl From<Vec<CertificateDer<'static>>> for BackendAnchors {
    fn from(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut digest = Context::new(&SHA256);
        for certificate in &certificates {
            digest.update(&certificate.len().to_be_bytes());
            digest.update(certificate);
        }
        Self { certificates: certificates.into(), digest: digest.finish().as_ref().to_vec() }
    }
}

impl Default for BackendAnchors {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl PartialEq for BackendAnchors {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for BackendAnchors {}

impl Deref for BackendAnchors {
    type Target = [CertificateDer<'static>];

    fn deref(&self) -> &Self::Target {
        &self.certificates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(certificates: &[&[u8]]) -> BackendAnchors {
        certificates.iter().map(|der| CertificateDer::from(der.to_vec())).collect::<Vec<_>>().into()
    }

    #[test]
    fn anchors_are_the_same_if_their_certificates_are() {
        assert_eq!(mk(&[b"a", b"b"]), mk(&[b"a", b"b"]));
        for other in [mk(&[b"ab"]), mk(&[b"b", b"a"]), mk(&[b"a"]), BackendAnchors::default()] {
            assert_ne!(mk(&[b"a", b"b"]), other);
        }
    }
}
