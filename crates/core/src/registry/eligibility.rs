//! Changes of an addon's eligibility on a cluster, and revocations of its certificates.

use super::NotRegistered;
use crate::identity::{AddOnName, ClusterName};
use crate::named;
use crate::timestamp::Timestamp;

/// Which certificates of an addon on a cluster are revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Certificates that begin before this time are revoked, and the hub makes no such certificate. `notBefore`
    /// decides, so it does not matter when a certificate was signed. Leaves are backdated, so the time errs on the side
    /// of revoking too many.
    pub before: Timestamp,
    /// The user who asked for it, according to the annotation; empty if it names none. It is not proven.
    pub by: String,
}

named! {
    /// How the eligibility of an addon on a cluster changed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Eligibility {
        /// It became eligible: it was installed, or its cluster was accepted.
        Registered = "registered",
        /// It is no longer suspended.
        Resumed = "resumed",
        /// It was suspended.
        Suspended = "suspended",
        /// It lost its eligibility: it was removed, or its cluster was removed or is no longer accepted.
        Detached = "detached",
    }
    /// The name in logs and entries.
    pub fn name(self) -> &'static str;
}

impl Eligibility {
    /// The change between two results of [`Registry::check`](super::Registry::check). An addon that is
    /// ineligible both before and after has not changed, even if the reasons differ.
    pub fn between(before: Result<(), NotRegistered>, after: Result<(), NotRegistered>) -> Option<Self> {
        match (before, after) {
            (Err(NotRegistered::AddOnSuspended), Ok(())) => Some(Self::Resumed),
            (Err(_), Ok(())) => Some(Self::Registered),
            (Ok(()), Err(NotRegistered::AddOnSuspended)) => Some(Self::Suspended),
            (Ok(()), Err(_)) => Some(Self::Detached),
            (Ok(()), Ok(())) | (Err(_), Err(_)) => None,
        }
    }
}

/// What changed for an addon on a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Its eligibility.
    Eligibility(Eligibility),
    /// More of its certificates are revoked than before.
    Revoked(Revocation),
    /// Revoked certificates are valid again, because the time was set back or removed.
    Unrevoked(Option<Revocation>),
}

impl Change {
    /// The name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Eligibility(eligibility) => eligibility.name(),
            Self::Revoked(_) => "revoked",
            Self::Unrevoked(_) => "unrevoked",
        }
    }

    /// The change between two revocations. Only their times count, not the users who asked for them.
    pub fn moved(before: Option<&Revocation>, after: Option<&Revocation>) -> Option<Self> {
        let was = before.map(|revocation| revocation.before);
        let is = after.map(|revocation| revocation.before);
        match after {
            Some(after) if was < is => Some(Self::Revoked(after.clone())),
            _ if was > is => Some(Self::Unrevoked(after.cloned())),
            _ => None,
        }
    }

    /// The revocation that is in effect after the change, if there is one.
    pub fn revocation(&self) -> Option<&Revocation> {
        match self {
            Self::Revoked(revocation) => Some(revocation),
            Self::Unrevoked(left) => left.as_ref(),
            Self::Eligibility(_) => None,
        }
    }
}

/// A change of eligibility of an addon on a cluster, or of the revocation of its certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EligibilityChange {
    /// The cluster.
    pub cluster: ClusterName,
    /// The addon.
    pub addon: AddOnName,
    /// The change.
    pub change: Change,
    /// Why the addon is not eligible now; `None` if it is.
    pub cause: Option<NotRegistered>,
}
