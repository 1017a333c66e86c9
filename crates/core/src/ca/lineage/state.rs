//! The states of an authority, the steps of a rotation that a lineage can be at, and what contradicts them.

use std::str::FromStr;

use crate::ca::authority::AuthorityId;
use crate::named;

named! {
    /// The state of an authority.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum State {
        /// Trusted, not signing yet.
        Next = "Next",
        /// Trusted and signing.
        Active = "Active",
        /// Trusted until its last leaf has expired.
        Old = "Old",
    }
    /// The name in status and store.
    pub fn as_str(self) -> &'static str;
}

named! {
    /// The step of a rotation that a lineage is at, in the order of a rotation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Phase {
        /// No rotation is under way.
        Settled = "Settled",
        /// Next is trusted and waits to sign.
        Activate = "Activate",
        /// Old is trusted until no certificate depends on it.
        Finish = "Finish",
    }
    /// The name in status and metrics.
    pub fn as_str(self) -> &'static str;
}

/// The text is not a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a state of an authority: Next, Active or Old")]
pub struct UnknownState(String);

impl FromStr for State {
    type Err = UnknownState;
    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == text);
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
