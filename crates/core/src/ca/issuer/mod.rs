//! Issuing: [`Issuer::prepare`] fixes every byte that will be signed. [`Issuer::sign`] signs them, parses the result,
//! compares it with what was intended, and verifies it with another library against the published trust bundle.

use der::Decode;
use der::Encode;
use der::asn1::{AnyRef, BitStringRef};
use ring::rand::SecureRandom;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::ca::authority::{Authority, AuthorityId, BACKDATE};
use crate::ca::bundle::{Bundle, BundleError, Purpose};
use crate::ca::serial::Serial;
use crate::ca::tbs::{self, Frame};
use crate::encoding::asn1;
use crate::keys::private::{KeyError, PrivateKey};
use crate::policy::{Approved, MIN_LIFETIME, Profile};
use crate::timestamp::Timestamp;

/// Why a certificate was not issued, or must not be published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The key does not belong to the CA certificate.
    #[error("the private key is not the key of the CA certificate {0:?}")]
    WrongKey(String),
    /// The CA is not yet valid, or expires within the shortest lifetime of a leaf (invariant I4).
    #[error("the CA {id} is valid from {not_before} to {not_after}, which leaves no time for a new certificate")]
    OutsideValidity {
        /// The id of the CA.
        id: AuthorityId,
        /// The first second in which the CA is valid.
        not_before: Timestamp,
        /// The last second in which the CA is valid.
        not_after: Timestamp,
    },
    /// The certificate could not be encoded.
    #[error("the certificate could not be encoded: {0}")]
    Encoding(String),
    /// The signature could not be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The signed certificate is not the intended one, because of a bug or a broken key.
    #[error("the signed certificate differs from what was intended in its {0}")]
    NotAsIntended(&'static str),
    /// The published trust bundle does not verify the certificate.
    #[error("the signed certificate is not accepted by the published bundle: {0}")]
    NotAccepted(#[from] BundleError),
}

/// Why a record of the ledger does not belong to its CSR. The text completes the sentence "the record holds …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The serial number cannot be read.
    #[error("a serial number that cannot be read")]
    Serial,
    /// The certificate cannot be read.
    #[error("a certificate that cannot be read")]
    Unreadable,
    /// The certificate has another subject.
    #[error("a certificate whose subject is not the CSR's")]
    OtherSubject,
    /// The certificate has another key.
    #[error("a certificate whose public key is not the CSR's")]
    OtherKey,
    /// The certificate has another serial number.
    #[error("a certificate whose serial number is not the one that was decided on")]
    OtherSerial,
}

impl From<der::Error> for IssueError {
    fn from(error: der::Error) -> Self {
        Self::Encoding(error.to_string())
    }
}

/// An authority with its key.
#[derive(Debug)]
pub struct Issuer {
    authority: Authority,
    key: PrivateKey,
}

/// A certificate of which every byte that will be signed is decided. Only [`Issuer::prepare`] makes one, and signing
/// consumes it (invariant I2).
#[derive(Debug)]
pub struct Prepared {
    tbs: Vec<u8>,
    approved: Approved,
    issuer: AuthorityId,
    serial: Serial,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Prepared {
    /// The last second in which the certificate will be valid.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }
    /// What the certificate will be for.
    pub fn profile(&self) -> &Profile {
        self.approved.profile()
    }
    /// The serial number of the certificate.
    pub fn serial(&self) -> Serial {
        self.serial
    }
    /// The id of the authority that will sign.
    pub fn issuer(&self) -> &AuthorityId {
        &self.issuer
    }
    /// The first second in which the certificate will be valid.
    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }
    /// SHA-256 over the bytes that will be signed, in hexadecimal. Preparing the same certificate again gives the same
    /// digest.
    pub fn digest(&self) -> String {
        sha256(&self.tbs)
    }
}

/// A certificate that matches its intent and that the published trust bundle accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// Its serial number.
    pub serial: Serial,
    /// The id of the authority that signed it.
    pub issuer: AuthorityId,
    /// The first second in which it is valid.
    pub not_before: Timestamp,
    /// The last second in which it is valid.
    pub not_after: Timestamp,
}

impl Issued {
    /// A certificate that was signed earlier for the same CSR, read back from the ledger. The caller must verify it
    /// against the published trust bundle.
    ///
    /// # Errors
    /// [`RecordFault`] if it does not have this CSR's key and subject, or not that serial number.
    pub fn recorded(
        der: Vec<u8>,
        issuer: AuthorityId,
        serial: Serial,
        approved: &Approved,
    ) -> Result<Self, RecordFault> {
        let (rest, leaf) = X509Certificate::from_der(&der).map_err(|_| RecordFault::Unreadable)?;
        let checks = [
            (rest.is_empty(), RecordFault::Unreadable),
            (leaf.subject().as_raw() == approved.subject_der(), RecordFault::OtherSubject),
            (leaf.public_key().raw == approved.public_key_der(), RecordFault::OtherKey),
            (Serial::of_leaf(&leaf) == Some(serial), RecordFault::OtherSerial),
        ];
        if let Some((_, fault)) = checks.into_iter().find(|(holds, _)| !holds) {
            return Err(fault);
        }
        let not_before = Timestamp::from_unix(leaf.validity().not_before.timestamp());
        let not_after = Timestamp::from_unix(leaf.validity().not_after.timestamp());
        Ok(Self { certificate: CertificateDer::from(der), serial, issuer, not_before, not_after })
    }

    /// The certificate as one PEM block with a final newline, for `status.certificate`.
    pub fn pem(&self) -> String {
        crate::encoding::pem::encode("CERTIFICATE", &self.certificate)
    }
}

impl Issuer {
    /// Joins an authority and its key.
    ///
    /// # Errors
    /// [`IssueError::WrongKey`].
    pub fn new(authority: Authority, key: PrivateKey) -> Result<Self, IssueError> {
        if authority.public_key_der() == key.public_key_der() {
            Ok(Self { authority, key })
        } else {
            Err(IssueError::WrongKey(authority.name().to_owned()))
        }
    }

    /// The authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// [`Self::prepare_until`] the end of this authority.
    ///
    /// # Errors
    /// [`IssueError::OutsideValidity`] if the CA expires within the shortest lifetime; [`IssueError::Encoding`].
    pub fn prepare(&self, approved: Approved, serial: Serial, now: Timestamp) -> Result<Prepared, IssueError> {
        self.prepare_until(approved, serial, now, self.authority.not_after())
    }

    /// Fixes serial number, times and every byte to be signed. The certificate ends at `latest` or before, unless that
    /// leaves less than the shortest lifetime. It begins 5 minutes before `now`, but not
    /// before its CA begins. It does not begin before the time of a revocation either, because then it would be revoked
    /// itself. If that time is in the future, [`Self::sign`] refuses the certificate, because it is not valid yet.
    ///
    /// # Errors
    /// [`IssueError::OutsideValidity`] if the CA expires within the shortest lifetime; [`IssueError::Encoding`].
    pub fn prepare_until(
        &self,
        approved: Approved,
        serial: Serial,
        now: Timestamp,
        latest: Timestamp,
    ) -> Result<Prepared, IssueError> {
        let first = self.authority.not_before();
        let last = self.authority.not_after();
        if now < first || now.until(last) < MIN_LIFETIME {
            return Err(IssueError::OutsideValidity {
                id: self.authority.id().clone(),
                not_before: first,
                not_after: last,
            });
        }
        let backdated = now.minus(BACKDATE).max(first);
        let not_before = approved.valid_from().map_or(backdated, |valid_from| backdated.max(valid_from));
        let latest = latest.max(now.plus(MIN_LIFETIME));
        let not_after = now.plus(approved.lifetime()).min(latest).min(last);
        let frame = Frame {
            serial: serial.as_bytes(),
            not_before,
            not_after,
            issuer: &self.authority,
            algorithm: self.key.algorithm(),
        };
        let tbs = tbs::encode(&approved, &frame)?;
        let issuer = self.authority.id().clone();
        Ok(Prepared { tbs, approved, issuer, serial, not_before, not_after })
    }

    /// Signs, reads the result back, compares it with what was intended, and verifies it against the `published` trust
    /// bundle.
    ///
    /// # Errors
    /// [`IssueError`]. The signed certificate is then dropped and never published.
    pub fn sign(
        &self,
        prepared: Prepared,
        published: &Bundle,
        now: Timestamp,
        rng: &dyn SecureRandom,
    ) -> Result<Issued, IssueError> {
        let signature = self.key.sign(&prepared.tbs, rng)?;
        let der = asn1::Signed {
            content: AnyRef::from_der(&prepared.tbs)?,
            algorithm: self.key.algorithm(),
            signature: BitStringRef::from_bytes(&signature)?,
        }
        .to_der()?;
        compare(&der, &prepared, &self.authority)?;
        let certificate = CertificateDer::from(der);
        published.verify(&certificate, purpose(&prepared.approved), now)?;
        let Prepared { serial, issuer, not_before, not_after, .. } = prepared;
        Ok(Issued { certificate, serial, issuer, not_before, not_after })
    }
}

/// Compares the certificate with what was intended. It is read with another library than the one that wrote it.
fn compare(der: &[u8], intent: &Prepared, issuer: &Authority) -> Result<(), IssueError> {
    let differs = IssueError::NotAsIntended;
    let (rest, leaf) = X509Certificate::from_der(der).map_err(|_| differs("encoding"))?;
    let checks = [
        (rest.is_empty(), "length"),
        (leaf.issuer().as_raw() == issuer.subject_der(), "issuer"),
        (leaf.subject().as_raw() == intent.approved.subject_der(), "subject"),
        (leaf.public_key().raw == intent.approved.public_key_der(), "public key"),
        (Serial::of_leaf(&leaf) == Some(intent.serial), "serial number"),
        (leaf.validity().not_before.timestamp() == intent.not_before.unix(), "start"),
        (leaf.validity().not_after.timestamp() == intent.not_after.unix(), "end"),
        (leaf.validity().not_after.timestamp() <= issuer.not_after().unix(), "end, which is after its CA's"),
        (!leaf.is_ca(), "CA flag"),
        (purposes_match(&leaf, intent.approved.profile()), "purpose"),
    ];
    match checks.into_iter().find(|(holds, _)| !holds) {
        Some((_, what)) => Err(differs(what)),
        None => Ok(()),
    }
}

/// The purpose for which a certificate with this profile is verified.
pub(crate) fn purpose(approved: &Approved) -> Purpose {
    match approved.profile() {
        Profile::Client { .. } | Profile::GatewayClient => Purpose::Client,
        Profile::Serving { .. } => Purpose::Server,
    }
}

fn purposes_match(leaf: &X509Certificate<'_>, profile: &Profile) -> bool {
    let Ok(Some(usage)) = leaf.extended_key_usage() else { return false };
    let client = usage.value.client_auth;
    let server = usage.value.server_auth;
    let others = usage.value.any || !usage.value.other.is_empty();
    match profile {
        Profile::Client { .. } | Profile::GatewayClient => client && !server && !others,
        Profile::Serving { .. } => server && !client && !others,
    }
}

/// [`Prepared::digest`] of a certificate that was signed; `None` if it cannot be read.
#[must_use]
pub fn digest_of(certificate: &[u8]) -> Option<String> {
    let (_, leaf) = X509Certificate::from_der(certificate).ok()?;
    Some(sha256(leaf.tbs_certificate.as_ref()))
}

fn sha256(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
pub(crate) mod tests;
