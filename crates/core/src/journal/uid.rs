//! The UID of a request, by which the ledger finds what it has for the request.

use std::fmt;

/// `metadata.uid` of a CertificateSigningRequest. The API server chooses it, so every text is one; it is empty for an
/// object without a UID.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestUid(Box<str>);

impl RequestUid {
    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for RequestUid {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for RequestUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
