//! A certificate authority: its certificate, read and checked once. What is above it is in [`super::chain`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ring::digest;
use ring::rand::SecureRandom;
use rustls_pki_types::{CertificateDer, TrustAnchor};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::encoding::pem;
use crate::keys::private::{KeyError, PrivateKey, RcgenKey};
use crate::timestamp::Timestamp;

/// Certificates are backdated by this much, for clusters whose clocks are slow.
pub const BACKDATE: Duration = Duration::from_secs(300);

/// An authority is replaced this long before its end at the latest, even if its successor still waits: a successor that
/// some peers do not trust is better than none. A gateway's certificate is valid for just as long, so the gateway gets
/// the next one in time.
pub const LAST_CALL: Duration = Duration::from_secs(86_400);

/// Why a CA certificate cannot be read, used or created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The bytes are not one certificate in DER, or bytes are left over.
    #[error("the CA certificate cannot be read")]
    Unreadable,
    /// BasicConstraints or KeyUsage do not make it a CA (RFC 5280 sections 4.2.1.3 and 4.2.1.9).
    #[error("the certificate {0:?} is not a CA certificate (basic constraints and key usage)")]
    NotACa(String),
    /// The certificate could not be made.
    #[error("the CA certificate could not be made: {0}")]
    NotCreated(String),
    /// The key could not be used.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The id of an authority: the first 16 hexadecimal digits of the SHA-256 of its SubjectPublicKeyInfo.
///
/// Any text from outside is accepted as an id, such as one from the ledger: ids are only compared and written, and a
/// text of another form matches no authority.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AuthorityId(Box<str>);

impl AuthorityId {
    /// The id of the authority with this key (SubjectPublicKeyInfo).
    #[must_use]
    pub fn of(public_key_der: &[u8]) -> Self {
        let hash = digest::digest(&digest::SHA256, public_key_der);
        let first: Vec<u8> = hash.as_ref().iter().copied().take(8).collect();
        Self(data_encoding::HEXLOWER.encode(&first).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for AuthorityId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for AuthorityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A CA certificate whose role, name and times are known. Its clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority(Arc<Parts>);

#[derive(Debug, PartialEq, Eq)]
struct Parts {
    id: AuthorityId,
    name: String,
    certificate: CertificateDer<'static>,
    anchor: TrustAnchor<'static>,
    subject_der: Vec<u8>,
    public_key_der: Vec<u8>,
    key_id: Vec<u8>,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Authority {
    /// Makes a self-signed CA certificate for `key`, valid from 5 minutes before `now` for `duration`.
    ///
    /// The subject is `CN=<lineage> <id>`. Two authorities of one lineage never share a name, so a leaf has only one
    /// possible issuer.
    ///
    /// # Errors
    /// [`AuthorityError::NotCreated`] if rcgen refuses, or the error of reading the result back.
    pub fn self_signed(
        lineage: &str,
        key: &PrivateKey,
        now: Timestamp,
        duration: Duration,
        rng: &dyn SecureRandom,
    ) -> Result<Self, AuthorityError> {
        let not_made = |error: &dyn fmt::Display| AuthorityError::NotCreated(error.to_string());
        let mut serial = [0_u8; 16];
        rng.fill(&mut serial).map_err(|_| KeyError::Random)?;
        let id = AuthorityId::of(key.public_key_der());
        let mut params = rcgen::CertificateParams::default();
        let mut name = rcgen::DistinguishedName::new();
        name.push(rcgen::DnType::CommonName, format!("{lineage} {id}"));
        params.distinguished_name = name;
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&serial));
        params.not_before = rcgen_time(now.minus(BACKDATE)).ok_or_else(|| not_made(&"the clock is wrong"))?;
        params.not_after = rcgen_time(now.plus(duration)).ok_or_else(|| not_made(&"it ends too late"))?;
        // With path length 0, no certificate that it signs can be a CA.
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        params.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(key_identifier(key.public_key_der()));
        let certificate = params.self_signed(&RcgenKey { key, rng }).map_err(|error| not_made(&error))?;
        Self::from_der(certificate.der())
    }

    /// Reads one CA certificate.
    ///
    /// # Errors
    /// [`AuthorityError`] if it is not a CA certificate, or bytes are left over.
    pub fn from_der(der: &[u8]) -> Result<Self, AuthorityError> {
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| AuthorityError::Unreadable)?;
        if !rest.is_empty() {
            return Err(AuthorityError::Unreadable);
        }
        let name = parsed.subject().to_string();
        let signs = matches!(parsed.key_usage(), Ok(Some(usage)) if usage.value.key_cert_sign());
        if !parsed.is_ca() || !signs {
            return Err(AuthorityError::NotACa(name));
        }
        let certificate = CertificateDer::from(der.to_vec());
        let anchor = webpki::anchor_from_trusted_cert(&certificate).map_err(|_| AuthorityError::Unreadable)?;
        let anchor = anchor.to_owned();
        let public_key_der = parsed.public_key().raw.to_vec();
        Ok(Self(Arc::new(Parts {
            id: AuthorityId::of(&public_key_der),
            subject_der: parsed.subject().as_raw().to_vec(),
            key_id: subject_key_id(&parsed).unwrap_or_else(|| key_identifier(&public_key_der)),
            not_before: Timestamp::from_unix(parsed.validity().not_before.timestamp()),
            not_after: Timestamp::from_unix(parsed.validity().not_after.timestamp()),
            name,
            anchor,
            public_key_der,
            certificate,
        })))
    }

    /// Its id, which follows from its key.
    pub fn id(&self) -> &AuthorityId {
        &self.0.id
    }
    /// Its subject, for messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.0.certificate
    }
    /// The anchor that verifiers use.
    pub fn anchor(&self) -> &TrustAnchor<'static> {
        &self.0.anchor
    }
    /// Its subject in DER: the issuer of its leaves.
    pub fn subject_der(&self) -> &[u8] {
        &self.0.subject_der
    }
    /// Its SubjectPublicKeyInfo.
    pub fn public_key_der(&self) -> &[u8] {
        &self.0.public_key_der
    }
    /// Its subject key identifier.
    pub fn key_id(&self) -> &[u8] {
        &self.0.key_id
    }
    /// The first second in which it is valid.
    pub fn not_before(&self) -> Timestamp {
        self.0.not_before
    }
    /// The last second in which it is valid.
    pub fn not_after(&self) -> Timestamp {
        self.0.not_after
    }
    /// Its certificate as one PEM block with a final newline.
    pub fn pem(&self) -> String {
        crate::encoding::pem::encode("CERTIFICATE", &self.0.certificate)
    }
}

fn subject_key_id(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}

/// The leftmost 160 bits of the SHA-256 of the SubjectPublicKeyInfo: the input of method 4 in RFC 7093 section 2, cut
/// to the length of method 1.
pub(crate) fn key_identifier(public_key_der: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA256, public_key_der).as_ref().iter().copied().take(20).collect()
}

fn rcgen_time(at: Timestamp) -> Option<time::OffsetDateTime> {
    time::OffsetDateTime::from_unix_timestamp(at.unix()).ok()
}

/// How many characters of the issuer's name are kept: its owner chose it.
const LONGEST_ISSUER: usize = 100;

/// The issuer that a certificate names. It proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    issuer: String,
    not_after: Timestamp,
}

impl Origin {
    /// Reads the first certificate of a chain in PEM. `None` if it cannot be read.
    #[must_use]
    pub fn read(chain: &[u8]) -> Option<Self> {
        let first: CertificateDer<'_> = pem::certificates(chain).ok()?.into_iter().next()?;
        let (_, parsed) = X509Certificate::from_der(&first).ok()?;
        Some(Self {
            issuer: kept(&parsed.issuer().to_string()),
            not_after: Timestamp::from_unix(parsed.validity().not_after.timestamp()),
        })
    }

    /// The beginning of the issuer's name, for messages.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The end of the certificate.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Whether the certificate names this authority, or one of the same lineage, which may have been removed: the
    /// subjects of authorities that the hub makes differ in the id at their end ([`Authority::self_signed`]). Those of
    /// authorities from outside do not show a lineage.
    #[must_use]
    pub fn is_of_lineage(&self, authority: &Authority) -> bool {
        let lineage = authority.name().strip_suffix(authority.id().as_str());
        self.issuer == kept(authority.name()) || lineage.is_some_and(|lineage| self.issuer.starts_with(&kept(lineage)))
    }
}

fn kept(issuer: &str) -> String {
    issuer.chars().take(LONGEST_ISSUER).collect()
}
