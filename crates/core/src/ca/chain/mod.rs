//! An authority whose certificate comes from an issuer above it: its chain, and what must hold for it before the
//! authority may wait to sign.
//!
//! Gateways pin the authority itself, so for them nothing above it matters. Other verifiers may trust the root alone,
//! and they check all that [`Certified::check`] checks.

mod constraints;
mod links;
mod roots;

use std::net::IpAddr;
use std::time::Duration;

use rustls_pki_types::CertificateDer;

use super::authority::{Authority, AuthorityError};
use super::bundle::Purpose;
use crate::encoding::pem::{self, PemError};
use crate::timestamp::Timestamp;

pub use roots::Roots;

/// The most certificates above an authority. Agents get all but the root with every certificate.
pub const MOST_ABOVE: usize = 4;

/// The largest certificate in bytes. A TLS handshake message has at most 64 KiB for all of them, and a Secret 1 MiB.
pub const LARGEST: usize = 8 * 1024;

/// An authority with the certificates above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certified {
    authority: Authority,
    above: Vec<CertificateDer<'static>>,
    anchor: Authority,
}

/// What an authority from outside must be good for.
#[derive(Debug, Clone, Copy)]
pub struct Demands<'d> {
    /// The current time.
    pub now: Timestamp,
    /// How long the longest certificate may be valid.
    pub longest: Duration,
    /// How long before it ends an authority is replaced.
    pub renew_before: Duration,
    /// The purpose of its certificates.
    pub purpose: Purpose,
    /// The DNS names in its certificates.
    pub dns_names: &'d [String],
    /// The addresses in its certificates.
    pub addresses: &'d [IpAddr],
}

/// Why an authority from outside is not used. The text is a sentence without a period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotUsable {
    /// There is no certificate.
    #[error("there is no certificate")]
    Empty,
    /// The text has something else.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// There is no root with which the chain could end.
    #[error("there is no root (ca.crt), and the chain does not end with one")]
    NoRoot,
    /// The chain is longer than needed.
    #[error("there are {0} certificates above the authority, and at most {MOST_ABOVE} are accepted")]
    TooMany(usize),
    /// A certificate is too large for every handshake.
    #[error("a certificate has {0} bytes, and at most {LARGEST} are accepted")]
    TooLarge(usize),
    /// A certificate cannot be read, or is no CA certificate.
    #[error(transparent)]
    Certificate(#[from] AuthorityError),
    /// A certificate has no subject, which is the issuer in those below it.
    #[error(
        "certificate {0} has an empty subject, which no CA may have (RFC 5280, section 4.1.2.6): Java cannot read \
         certificates that it issues"
    )]
    NoSubject(usize),
    /// The key is not that of the first certificate.
    #[error("the private key is not the key of the first certificate, {0:?}")]
    OtherKey(String),
    /// The key is that of a later certificate.
    #[error(
        "the certificates are in the wrong order: {0:?} is the authority, so it comes first, and its issuer's next"
    )]
    Order(String),
    /// One certificate did not sign the one before it.
    #[error("{issuer:?} did not sign {name:?}, which comes before it: each certificate is followed by its issuer's")]
    Link {
        /// The certificate.
        name: String,
        /// The one after it.
        issuer: String,
    },
    /// The chain ends below the root.
    #[error("the chain ends with {name:?}, and no root has signed that: the certificate of {issuer:?} is missing")]
    Missing {
        /// The last certificate.
        name: String,
        /// The issuer that it names.
        issuer: String,
    },
    /// The algorithm of a signature is not accepted.
    #[error(
        "{0:?} is signed with {1}: use SHA-256, SHA-384 or SHA-512 with RSA, SHA-256 or SHA-384 with ECDSA, or Ed25519"
    )]
    Signature(String, String),
    /// The kind of a key is not accepted.
    #[error("{0:?}: {1}")]
    Key(String, crate::keys::public::PublicKeyError),
    /// A P-521 key.
    #[error("{0:?} has a P-521 key, which many TLS libraries do not verify, ours among them: use P-256 or P-384")]
    P521(String),
    /// A CA above permits no CA at this depth.
    #[error("{0:?} has the path length {1}, which permits no CA at this depth")]
    PathLength(String, u32),
    /// A certificate is limited to other purposes.
    #[error("{0:?} is not for the authentication of TLS {1}s (extended key usage)")]
    Usage(String, &'static str),
    /// A critical extension that TLS libraries do not know.
    #[error("{0:?} has the critical extension {1}, which TLS libraries do not accept")]
    Extension(String, String),
    /// Name constraints exclude what is issued.
    #[error("the name constraints of {0:?} do not permit {1}")]
    Names(String, String),
    /// It is not valid yet.
    #[error("{0:?} is not valid before {1}")]
    NotYet(String, Timestamp),
    /// It has expired.
    #[error("{0:?} expired at {1}")]
    Expired(String, Timestamp),
    /// It ends after its issuer.
    #[error("{name:?} ends at {end}, after its issuer, which ends at {issuer}: ask for a shorter one")]
    Outlives {
        /// The certificate.
        name: String,
        /// Its end.
        end: Timestamp,
        /// The end of its issuer.
        issuer: Timestamp,
    },
    /// The longest certificate would outlive it.
    #[error("{0:?} ends at {1}, sooner than a certificate issued now might")]
    EndsSoon(String, Timestamp),
    /// The next rotation would begin at once.
    #[error("{0:?} ends at {1}, within renewBefore from now: another rotation would begin at once")]
    RenewsAtOnce(String, Timestamp),
}

impl From<Authority> for Certified {
    /// An authority that signed its own certificate.
    fn from(authority: Authority) -> Self {
        Self { anchor: authority.clone(), authority, above: Vec::new() }
    }
}

impl Certified {
    /// Reads what [`Self::pem`] wrote. It was checked before.
    ///
    /// # Errors
    /// [`NotUsable::Pem`] or [`NotUsable::Certificate`].
    pub fn read(text: &[u8]) -> Result<Self, NotUsable> {
        Self::of(&pem::certificates(text)?)
    }

    fn of(chain: &[CertificateDer<'static>]) -> Result<Self, NotUsable> {
        let (first, above) = chain.split_first().ok_or(NotUsable::Empty)?;
        let authority = Authority::from_der(first)?;
        Ok(Self { above: above.to_vec(), ..Self::from(authority) })
    }

    /// An authority for the key `public_key`, of which nothing else is checked.
    ///
    /// # Errors
    /// [`NotUsable::Order`] or [`NotUsable::OtherKey`] if the first certificate has another key, whatever it is;
    /// [`NotUsable::NoSubject`].
    pub fn brought(chain: &[CertificateDer<'static>], public_key: &[u8]) -> Result<Self, NotUsable> {
        let parsed = links::check_owner(chain, public_key)?;
        (1..).zip(&parsed).try_for_each(links::check_subject)?;
        Self::of(chain)
    }

    /// Checks an authority from outside with the key `public_key` (SubjectPublicKeyInfo). `chain` begins with the
    /// authority, and each certificate is followed by its issuer's; one of `roots` has signed the last one, or is it.
    /// Without `roots` the chain must end with a root.
    ///
    /// # Errors
    /// The first [`NotUsable`].
    pub fn check(
        chain: &[CertificateDer<'static>],
        roots: &[CertificateDer<'static>],
        public_key: &[u8],
        demands: &Demands<'_>,
    ) -> Result<Self, NotUsable> {
        if let Some(large) = chain.iter().chain(roots).map(|der| der.len()).find(|bytes| *bytes > LARGEST) {
            return Err(NotUsable::TooLarge(large));
        }
        let certificates = links::path(chain, roots, public_key)?;
        let path: Vec<_> = certificates.iter().map(|der| links::read(der)).collect::<Result<_, _>>()?;
        (1..).zip(&path).try_for_each(links::check_subject)?;
        for (depth, certificate) in path.iter().enumerate() {
            constraints::check(certificate, depth, demands)?;
        }
        links::check_dates(&path, demands)?;
        Self::of(&certificates)
    }

    /// The same, trusted by its root and not by its own certificate, where there is a root above it.
    ///
    /// # Errors
    /// [`NotUsable::Certificate`] if the root cannot be an anchor.
    pub fn trusted_by_root(self) -> Result<Self, NotUsable> {
        let anchor = self.above.last().map_or_else(|| Ok(self.authority.clone()), |root| Authority::from_der(root))?;
        Ok(Self { anchor, ..self })
    }

    /// What verifiers trust for it: the authority itself, or the root above it. In the second case every CA of that
    /// root is trusted as well.
    pub fn anchor(&self) -> &Authority {
        &self.anchor
    }

    /// Whether verifiers trust it by its root.
    pub fn is_trusted_by_root(&self) -> bool {
        self.anchor != self.authority
    }

    /// The authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The certificates above it, its issuer's first and the root last. Empty if it signed its own.
    pub fn above(&self) -> &[CertificateDer<'static>] {
        &self.above
    }

    /// All certificates as PEM blocks, its own first.
    pub fn pem(&self) -> String {
        let above = self.above.iter().map(|der| pem::encode("CERTIFICATE", der));
        std::iter::once(self.authority.pem()).chain(above).collect()
    }

    /// What follows a leaf for verifiers that trust the root alone, as PEM blocks: all but the root. Empty if the
    /// authority signed its own certificate.
    pub fn pem_below_root(&self) -> String {
        let Some((_, intermediates)) = self.above.split_last() else { return String::new() };
        let intermediates = intermediates.iter().map(|der| pem::encode("CERTIFICATE", der));
        std::iter::once(self.authority.pem()).chain(intermediates).collect()
    }
}

#[cfg(test)]
mod tests;
