//! What a certificate says about the authority that signed it. It proves nothing.

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::authority::Authority;
use crate::encoding::pem;
use crate::timestamp::Timestamp;

/// How many characters of the issuer's name are kept: its owner chose it.
const LONGEST_ISSUER: usize = 100;

/// The issuer that a certificate names.
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

    /// The beginning of the issuer's name, for people.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The end of the certificate.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Whether the certificate names this authority, or one of the same lineage, which may be gone: the subjects of
    /// authorities that the hub makes differ in the id at their end ([`Authority::self_signed`]). Those of others say
    /// nothing about their lineage.
    #[must_use]
    pub fn is_of_lineage(&self, authority: &Authority) -> bool {
        let lineage = authority.name().strip_suffix(authority.id().as_str());
        self.issuer == kept(authority.name()) || lineage.is_some_and(|lineage| self.issuer.starts_with(&kept(lineage)))
    }
}

fn kept(issuer: &str) -> String {
    issuer.chars().take(LONGEST_ISSUER).collect()
}
