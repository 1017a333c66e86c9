//! How the standing of an addon on a cluster changed, and since when its certificates are good.

use super::NotRegistered;
use crate::identity::{AddOnName, ClusterName};
use crate::timestamp::Timestamp;

/// Certificates of an addon on a cluster that count no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// A certificate that begins before this time is revoked, and the hub makes none that does. `notBefore` decides,
    /// so that nobody has to know when a certificate was signed: leaves are backdated, so more are revoked rather
    /// than fewer.
    pub before: Timestamp,
    /// Who asked, by their own word; empty where nobody says.
    pub by: String,
}

/// How the standing of an addon on a cluster changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has standing now and had none: it was installed, or its cluster was accepted.
    Registered,
    /// It was suspended and is not any more.
    Resumed,
    /// It is suspended now.
    Suspended,
    /// It lost its standing: it was removed, or its cluster was, or is not accepted any more.
    Detached,
}

impl Standing {
    /// As logs and entries write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Resumed => "resumed",
            Self::Suspended => "suspended",
            Self::Detached => "detached",
        }
    }

    /// Without standing before and after, nothing changed, whatever the reasons are.
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

/// What changed of an addon on a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Its standing.
    Standing(Standing),
    /// More of its certificates are revoked than before.
    Revoked(Revocation),
    /// Revoked certificates are good again: the time was set back, or removed.
    Unrevoked(Option<Revocation>),
}

impl Change {
    /// As logs write it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Standing(standing) => standing.name(),
            Self::Revoked(_) => "revoked",
            Self::Unrevoked(_) => "unrevoked",
        }
    }

    /// The time alone counts: another word on who asked changes nothing.
    pub fn moved(before: Option<&Revocation>, after: Option<&Revocation>) -> Option<Self> {
        let was = before.map(|revocation| revocation.before);
        let is = after.map(|revocation| revocation.before);
        match after {
            Some(after) if was < is => Some(Self::Revoked(after.clone())),
            _ if was > is => Some(Self::Unrevoked(after.cloned())),
            _ => None,
        }
    }

    /// The time of [`Self::Revoked`], and of [`Self::Unrevoked`] where one is left.
    pub fn revocation(&self) -> Option<&Revocation> {
        match self {
            Self::Revoked(revocation) => Some(revocation),
            Self::Unrevoked(left) => left.as_ref(),
            Self::Standing(_) => None,
        }
    }
}

/// An addon on a cluster gained or lost standing, or certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingChange {
    /// The cluster.
    pub cluster: ClusterName,
    /// The addon.
    pub addon: AddOnName,
    /// What happened.
    pub change: Change,
    /// Why it has no standing now; `None` when it has.
    pub cause: Option<NotRegistered>,
}
