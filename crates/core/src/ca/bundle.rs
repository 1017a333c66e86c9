//! The trust bundle: a set of trust anchors that is never empty. Order and duplicates do not change its digest.

use std::time::Duration;

use ring::digest;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::ca::authority::{Authority, AuthorityError};
use crate::encoding::pem::{self, PemError};
use crate::timestamp::Timestamp;

/// The signature algorithms of authorities, and of issuers above them.
pub(crate) const ALGORITHMS: &[&dyn rustls_pki_types::SignatureVerificationAlgorithm] = &[
    webpki::ring::ECDSA_P256_SHA256,
    webpki::ring::ECDSA_P256_SHA384,
    webpki::ring::ECDSA_P384_SHA256,
    webpki::ring::ECDSA_P384_SHA384,
    webpki::ring::ED25519,
    webpki::ring::RSA_PKCS1_2048_8192_SHA256,
    webpki::ring::RSA_PKCS1_2048_8192_SHA384,
    webpki::ring::RSA_PKCS1_2048_8192_SHA512,
];

/// Why a trust bundle cannot be built, or why a certificate does not chain to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// There is no certificate, so no peer could be trusted (invariant I11).
    #[error("the trust bundle has no CA certificate")]
    Empty,
    /// The text contains something other than certificates.
    #[error("the trust bundle must contain certificates in PEM and nothing else: {0}")]
    NotCertificates(PemError),
    /// One of the certificates is not a CA certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// No anchor verifies the leaf at that time and for that purpose.
    #[error("the certificate does not verify: {0}")]
    NotVerified(String),
}

/// The purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// TLS client authentication.
    Client,
    /// TLS server authentication.
    Server,
}

/// A trust bundle: one or more anchors, sorted by their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    authorities: Vec<Authority>,
    anchors: Vec<TrustAnchor<'static>>,
}

impl Bundle {
    /// A bundle of these authorities, sorted and without duplicates.
    ///
    /// # Errors
    /// [`BundleError::Empty`].
    pub fn new(mut authorities: Vec<Authority>) -> Result<Self, BundleError> {
        authorities.sort_by(|a, b| a.certificate().as_ref().cmp(b.certificate().as_ref()));
        authorities.dedup();
        if authorities.is_empty() {
            return Err(BundleError::Empty);
        }
        let anchors = authorities.iter().map(|authority| authority.anchor().clone()).collect();
        Ok(Self { authorities, anchors })
    }

    /// Reads PEM blocks.
    ///
    /// # Errors
    /// [`BundleError`] if there is no certificate, or anything but CA certificates.
    pub fn from_pem(text: &[u8]) -> Result<Self, BundleError> {
        if text.trim_ascii().is_empty() {
            return Err(BundleError::Empty);
        }
        let certificates = pem::certificates(text).map_err(BundleError::NotCertificates)?;
        let read = certificates.iter().map(|der| Authority::from_der(der)).collect::<Result<Vec<_>, _>>()?;
        Self::new(read)
    }

    /// The anchors, sorted.
    pub fn anchors(&self) -> &[TrustAnchor<'static>] {
        &self.anchors
    }

    /// The authorities of the anchors, in the same order.
    pub fn authorities(&self) -> &[Authority] {
        &self.authorities
    }

    /// The certificates as PEM blocks, in the order of the digest.
    pub fn pem(&self) -> String {
        self.authorities.iter().map(Authority::pem).collect()
    }

    /// SHA-256 over the certificates in order, in hexadecimal: the ETag of `GET /v1/bundle`.
    pub fn digest(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        for authority in &self.authorities {
            context.update(authority.certificate());
        }
        data_encoding::HEXLOWER.encode(context.finish().as_ref())
    }

    /// Whether every anchor of `other` is one of this bundle.
    pub fn contains(&self, other: &Self) -> bool {
        other.authorities.iter().all(|authority| self.authorities.contains(authority))
    }

    /// [`Self::verify_chain`] without certificates in between: returns the authority that itself has signed the leaf.
    ///
    /// # Errors
    /// [`BundleError::NotVerified`] with webpki's reason.
    pub fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<&Authority, BundleError> {
        self.verify_chain(leaf, &[], purpose, now)
    }

    /// Verifies signature, times and purpose of `leaf` at `now`, and returns the anchor. `between` may have the
    /// certificates from the leaf's issuer up to an anchor.
    ///
    /// # Errors
    /// [`BundleError::NotVerified`] with webpki's reason.
    pub fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<&Authority, BundleError> {
        let refused = |error: webpki::Error| BundleError::NotVerified(error.to_string());
        let certificate = EndEntityCert::try_from(leaf).map_err(refused)?;
        let usage = match purpose {
            Purpose::Client => KeyUsage::client_auth(),
            Purpose::Server => KeyUsage::server_auth(),
        };
        let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.unix()).unwrap_or(0)));
        let path = certificate
            .verify_for_usage(ALGORITHMS, &self.anchors, between, time, usage, None, None)
            .map_err(refused)?;
        let used = self.anchors.iter().position(|anchor| anchor == path.anchor());
        used.and_then(|index| self.authorities.get(index)).ok_or_else(|| refused(webpki::Error::UnknownIssuer))
    }
}
