//! How far a certificate has come, as the ledger's index writes it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The state of a certificate in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateState {
    /// The certificate was decided on; nothing was signed yet.
    Intent,
    /// It was signed, and is not known to be published.
    Signed,
    /// It was published on its CSR.
    Published,
    /// It was signed and could not be published.
    Unpublished,
    /// It was never signed.
    Abandoned,
}

impl CertificateState {
    const ALL: [Self; 5] = [Self::Intent, Self::Signed, Self::Published, Self::Unpublished, Self::Abandoned];

    /// The state as the ledger writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Signed => "signed",
            Self::Published => "published",
            Self::Unpublished => "unpublished",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether the state is final, so that nothing is left to do.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Intent | Self::Signed)
    }

    /// Whether the certificate was signed.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::Signed | Self::Published | Self::Unpublished)
    }
}

impl fmt::Display for CertificateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CertificateState {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.name() == name).ok_or(())
    }
}
