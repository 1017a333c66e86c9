//! What a certificate says of the authority that signed it. It proves nothing.

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer;

use super::authority::Authority;
use crate::encoding::pem;
use crate::timestamp::Timestamp;

/// How much is kept of the issuer's name, in characters, and of its key's id, in bytes; their owner chose them.
const LONGEST_ISSUER: usize = 100;
const LONGEST_KEY_ID: usize = 64;

/// The issuer that a certificate names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    issuer: String,
    key_id: Vec<u8>,
    not_after: Timestamp,
}

impl Origin {
    /// Reads the first certificate of a chain in PEM. `None` if it cannot be read.
    #[must_use]
    pub fn read(chain: &[u8]) -> Option<Self> {
        let first: CertificateDer<'_> = pem::certificates(chain)?.into_iter().next()?;
        let (_, parsed) = X509Certificate::from_der(&first).ok()?;
        let key_id = parsed.iter_extensions().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref(),
            _ => None,
        });
        Some(Self {
            issuer: parsed.issuer().to_string().chars().take(LONGEST_ISSUER).collect(),
            key_id: key_id.map(|id| id.0.to_vec()).filter(|id| id.len() <= LONGEST_KEY_ID).unwrap_or_default(),
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

    /// Whether the certificate names the key of this authority (AuthorityKeyIdentifier, RFC 5280 section 4.2.1.1), as
    /// all do that the authority signs.
    #[must_use]
    pub fn is_of(&self, authority: &Authority) -> bool {
        self.key_id == authority.key_id()
    }
}
