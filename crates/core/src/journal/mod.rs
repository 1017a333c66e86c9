//! The ledger's format: entries that have the hash of the entry before, checkpoints that vouch for all entries up to
//! one, and the check of both. `docs/ledger-format.md` documents every byte, so that others can check a ledger without
//! this program.

pub mod checkpoint;
pub mod entry;
pub mod hash_chain;
pub mod record;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::named;

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

named! {
    /// The state of a certificate in the ledger.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum CertificateState {
        /// The certificate was decided on; nothing was signed yet.
        Intent = "intent",
        /// It was signed, and is not known to be published.
        Signed = "signed",
        /// It was published on its CSR.
        Published = "published",
        /// It was signed and could not be published.
        Unpublished = "unpublished",
        /// It was never signed.
        Abandoned = "abandoned",
    }
    /// The state as the ledger writes it.
    pub fn name(self) -> &'static str;
}

impl CertificateState {
    /// Whether the state is final, so that nothing is left to do.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Intent | Self::Signed)
    }

    /// Whether the certificate was signed.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::Signed | Self::Published | Self::Unpublished)
    }
}

impl FromStr for CertificateState {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.name() == name).ok_or(())
    }
}

named! {
    /// The state of an authority in its lineage.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AuthorityStep {
        /// It has a key, its anchor is published, and it signs nothing yet.
        Prepared = "prepared",
        /// It signs.
        Activated = "activated",
        /// Another authority signs; its certificates are still valid.
        Retired = "retired",
        /// Its anchor and its key are removed.
        Removed = "removed",
        /// Its key may be compromised. This is recorded beside its state.
        Tainted = "tainted",
    }
    /// The name in entries.
    pub fn name(self) -> &'static str;
}
