//! What the next step of a lineage is waiting for: facts for a program, and one sentence for people.

use std::fmt;

use crate::ca::authority::AuthorityId;
use crate::identity::AddOnKey;
use crate::list::few_of;
use crate::timestamp::Timestamp;

/// Why the last certificate is awaited where no cluster could be left out.
pub const NO_WORKS: &str = "no ManifestWork brings it to agents";

/// How many stragglers are named: a status must not grow with the fleet.
const STRAGGLERS: usize = 10;

/// Addons on clusters that a step is waiting for: how many there are, and the first few by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stragglers {
    count: usize,
    first: Vec<AddOnKey>,
}

impl Stragglers {
    /// These addons.
    pub fn of<'k>(keys: impl Iterator<Item = &'k AddOnKey>) -> Self {
        let mut stragglers = Self::default();
        for key in keys {
            stragglers.count += 1;
            if stragglers.first.len() < STRAGGLERS {
                stragglers.first.push(key.clone());
            }
        }
        stragglers
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The first ten of them.
    pub fn first(&self) -> &[AddOnKey] {
        &self.first
    }
}

impl fmt::Display for Stragglers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&few_of(&self.first, self.count))
    }
}

/// What the next step of a lineage is waiting for. The text has no verb: "waits for" precedes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// This has not been read.
    Read(String),
    /// Not every gateway trusts the Next of a client lineage.
    Gateways {
        /// Those that do not, by name.
        missing: Vec<String>,
        /// How many gateways live.
        live: usize,
    },
    /// The addons and certificates of this AddOnSigner are not known, because it is not served.
    Unserved(String),
    /// An addon has lost its AddOnSigner within the last five minutes, perhaps by mistake.
    UnnamedAddOn,
    /// The anchor of the gateway's Next is in no trust bundle yet.
    Publication,
    /// A ManifestWork brings the anchor to these agents, which may not use it yet.
    Works {
        /// How many addons on clusters have applied it.
        ready: usize,
        /// How many addons on clusters get one.
        total: usize,
        /// Those that the step waits for.
        stragglers: Stragglers,
        /// Whether the hub writes ManifestWorks: not before a policy restricts its right to.
        written: bool,
        /// Whether their clusters have applied it, but so recently that pods and agents may not use it yet.
        applied: bool,
    },
    /// No ManifestWork brings the anchor to some agents; each of their certificates brings it.
    LastCertificate {
        /// When the last certificate issued without the anchor expires.
        at: Timestamp,
        /// The addons that get no ManifestWork; `None` if no addon gets one.
        without: Option<Stragglers>,
    },
    /// The owners of backends still have time to trust the new anchor.
    Backends {
        /// Until when.
        at: Timestamp,
    },
    /// Both of these conditions.
    Both(Box<(Self, Self)>),
    /// The Old authority's last certificate has not expired.
    OldCertificates {
        /// The Old authority.
        authority: AuthorityId,
        /// When its last certificate expires.
        at: Timestamp,
    },
    /// The lineage has as many authorities as it may have.
    OldestAuthority,
    /// The issuer outside has no new authority that can be used: what it must do.
    Issuer(String),
    /// The lineage has not been compared with the ledger.
    Ledger,
    /// The API server did not report the time.
    ServerTime,
    /// The hub's clock is ahead of the API server's by this many minutes. The time itself is left out: this text is
    /// part of a condition, which must not change every round.
    Clock {
        /// How many.
        minutes: u64,
    },
}

impl WaitsFor {
    /// Both of these conditions.
    pub(super) fn and(self, other: Self) -> Self {
        Self::Both(Box::new((self, other)))
    }

    /// How many addons on clusters are ready, and out of how many, if that is what the step is waiting for.
    pub fn progress(&self) -> Option<(usize, usize)> {
        match self {
            Self::Works { ready, total, .. } => Some((*ready, *total)),
            Self::Both(both) => both.0.progress().or_else(|| both.1.progress()),
            _ => None,
        }
    }

    /// The first few addons on clusters that it is waiting for.
    pub fn stragglers(&self) -> Vec<&AddOnKey> {
        match self {
            Self::Works { stragglers, .. } | Self::LastCertificate { without: Some(stragglers), .. } => {
                stragglers.first.iter().collect()
            }
            Self::Both(both) => {
                let mut all = [both.0.stragglers(), both.1.stragglers()].concat();
                all.truncate(STRAGGLERS);
                all
            }
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(what) => write!(f, "{what} to be read"),
            Self::Gateways { missing, live } => {
                let names = few_of(missing, missing.len());
                write!(f, "{} of {live} gateways to trust the new authority: {names}", missing.len())
            }
            Self::Unserved(name) => {
                write!(f, "the AddOnSigner {name}, which is not served, to be fixed or deleted")
            }
            Self::UnnamedAddOn => f.write_str(
                "five minutes to pass since an addon was removed from every AddOnSigner, possibly by mistake",
            ),
            Self::Publication => f.write_str("the new anchor to be published"),
            Self::Works { stragglers, applied: true, .. } => {
                write!(f, "pods and agents to use the new anchor: {stragglers}")
            }
            Self::Works { written: false, .. } => f.write_str(
                "the ValidatingAdmissionPolicy addon-signer-manifest-works to be in force, without which the hub \
                 writes no ManifestWork (TrustDistributed of the AddOnSigners says what to do)",
            ),
            Self::Works { ready, total, stragglers, .. } => write!(
                f,
                "clusters to apply the new anchor: {ready} of {total} addons have it, and not yet: {stragglers}"
            ),
            Self::LastCertificate { at, without } => {
                write!(f, "the last certificate issued without the new anchor to expire at {at}, because ")?;
                match without {
                    None => f.write_str(NO_WORKS),
                    Some(who) => write!(f, "no ManifestWork brings it to {who}"),
                }
            }
            Self::Backends { at } => {
                write!(
                    f,
                    "the owners of backends, who have until {at} to trust the anchor in their AddOnRoutes' statuses"
                )
            }
            Self::Both(both) => write!(f, "{}; {}", both.0, both.1),
            Self::OldCertificates { authority, at } => {
                write!(f, "the last certificate of {authority} to expire at {at}")
            }
            Self::OldestAuthority => f.write_str("the oldest authority to be dropped, because the lineage is full"),
            Self::Issuer(what) => f.write_str(what),
            Self::Ledger => f.write_str("the ledger to report what it knows about this lineage"),
            Self::ServerTime => f.write_str("the API server to report the time"),
            Self::Clock { minutes } => {
                write!(f, "the hub's clock to be set: it is {minutes} minutes ahead of the API server's")
            }
        }
    }
}
