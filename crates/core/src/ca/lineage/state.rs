//! The states of an authority, the steps of a rotation that a lineage can be at, and what contradicts them.

use std::fmt;
use std::str::FromStr;

use crate::ca::authority::AuthorityId;

/// The state of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Trusted, not signing yet.
    Next,
    /// Trusted and signing.
    Active,
    /// Trusted until its last leaf has expired.
    Old,
}

impl State {
    /// The name in status and store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Next => "Next",
            Self::Active => "Active",
            Self::Old => "Old",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The step of a rotation that a lineage is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No rotation is under way.
    Settled,
    /// Next is trusted and waits to sign.
    Activate,
    /// Old is trusted until no certificate depends on it.
    Finish,
}

impl Phase {
    /// All of them, in the order of a rotation.
    pub const ALL: [Self; 3] = [Self::Settled, Self::Activate, Self::Finish];

    /// The name in status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "Settled",
            Self::Activate => "Activate",
            Self::Finish => "Finish",
        }
    }
}

/// The text is not a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a state of an authority: Next, Active or Old")]
pub struct UnknownState(String);

impl FromStr for State {
    type Err = UnknownState;
    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let known = [Self::Next, Self::Active, Self::Old].into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| UnknownState(text.to_owned()))
    }
}

/// Why the stored authorities are not a lineage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    /// More than one Active, or more than one Next.
    #[error("the lineage has {0} authorities in the state {1}; only one is allowed")]
    TooMany(usize, State),
    /// Old or Next authorities without an Active one.
    #[error("the lineage has no Active authority")]
    NoActive,
    /// Two authorities have the same key.
    #[error("the authority {0} is in the lineage twice")]
    Duplicate(AuthorityId),
}
