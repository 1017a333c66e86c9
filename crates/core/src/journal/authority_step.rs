//! The steps of an authority in entries.

/// The state of an authority in its lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorityStep {
    /// It has a key, its anchor is published, and it signs nothing yet.
    Prepared,
    /// It signs.
    Activated,
    /// Another authority signs; its certificates are still valid.
    Retired,
    /// Its anchor and its key are removed.
    Removed,
    /// Somebody else may know its key. This comes beside its state.
    Tainted,
}

impl AuthorityStep {
    /// The name in entries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Activated => "activated",
            Self::Retired => "retired",
            Self::Removed => "removed",
            Self::Tainted => "tainted",
        }
    }
}
