//! The UID of a CSR, by which the ledger finds what it has for the CSR.

use std::fmt;

/// `metadata.uid` of a CertificateSigningRequest. The API server chooses it, so every text is one; it is empty for an
/// object without a UID.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CsrUid(Box<str>);

impl CsrUid {
    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for CsrUid {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for CsrUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
