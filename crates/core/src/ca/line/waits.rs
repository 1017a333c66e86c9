//! What the next step of a line is waiting for: facts for a program, and one sentence for people.

use std::fmt;

use crate::ca::authority::AuthorityId;
use crate::identity::AddOnKey;
use crate::list::few_of;
use crate::timestamp::Timestamp;

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

/// What the next step of a line is waiting for. The text has no verb: "waits for" precedes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// The Leases of the gateways have not been read.
    GatewaysRead,
    /// Not every gateway trusts the Next of a client line.
    Gateways {
        /// Those that do not, by name.
        missing: Vec<String>,
        /// How many gateways live.
        live: usize,
    },
    /// Not all AddOnSigners have been read, so the last certificate is not known.
    AddOnSigners,
    /// The authorities of this AddOnSigner have not been read.
    Authorities(String),
    /// The certificates of this AddOnSigner are not known.
    UnservedSigner(String),
    /// The addons of AddOnSigners that are not served are not known.
    UncountedAddOns,
    /// An addon has just lost its AddOnSigner, so nothing waits for it any more.
    UnnamedAddOn,
    /// The anchor of the gateway's Next is in no trust bundle yet.
    Publication,
    /// The ManifestWorks have not been read.
    ManifestWorks,
    /// The ManifestWorks have an older trust bundle.
    AnchorInManifestWorks,
    /// The hub writes no ManifestWork, because no policy restricts its right to.
    Policy,
    /// Clusters have not applied the ManifestWork with the anchor.
    Clusters {
        /// How many addons on clusters have applied it.
        ready: usize,
        /// How many addons on clusters get one.
        total: usize,
        /// Those that have not.
        stragglers: Stragglers,
    },
    /// Clusters have applied the anchor so recently that pods and agents may not use it yet.
    Pods {
        /// How many addons on clusters have applied it.
        ready: usize,
        /// How many addons on clusters get one.
        total: usize,
        /// Those that have applied it recently.
        stragglers: Stragglers,
    },
    /// No ManifestWork brings the anchor to some agents; each of their certificates brings it.
    LastCertificate {
        /// When the last certificate issued without the anchor expires.
        at: Timestamp,
        /// Who gets no ManifestWork; `None` if nobody gets one.
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
    /// The line has as many authorities as it may have.
    OldestAuthority,
    /// The issuer outside has no new authority that can be used: what it must do.
    Issuer(String),
    /// The line has not been compared with the ledger.
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
    /// How many addons on clusters are ready, and out of how many, if that is what the step is waiting for.
    pub fn progress(&self) -> Option<(usize, usize)> {
        match self {
            Self::Clusters { ready, total, .. } | Self::Pods { ready, total, .. } => Some((*ready, *total)),
            Self::Both(both) => both.0.progress().or_else(|| both.1.progress()),
            _ => None,
        }
    }

    /// The first few addons on clusters that it is waiting for.
    pub fn stragglers(&self) -> Vec<&AddOnKey> {
        match self {
            Self::Clusters { stragglers, .. }
            | Self::Pods { stragglers, .. }
            | Self::LastCertificate { without: Some(stragglers), .. } => stragglers.first.iter().collect(),
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
            Self::GatewaysRead => f.write_str("the Leases of the gateways to be read"),
            Self::Gateways { missing, live } => {
                let names = few_of(missing, missing.len());
                write!(f, "{} of {live} gateways to trust the new authority: {names}", missing.len())
            }
            Self::AddOnSigners => f.write_str("the AddOnSigners to be read"),
            Self::Authorities(name) => write!(f, "the authorities of the AddOnSigner {name} to be read"),
            Self::UnservedSigner(name) => {
                write!(f, "the AddOnSigner {name}, which is not served, to be fixed or deleted")
            }
            Self::UncountedAddOns => f.write_str(
                "AddOnSigners that are not served to be fixed or deleted, because their addons are not counted",
            ),
            Self::UnnamedAddOn => f.write_str(
                "five minutes to pass since an addon was removed from every AddOnSigner, possibly by mistake",
            ),
            Self::Publication => f.write_str("the new anchor to be published"),
            Self::ManifestWorks => f.write_str("the ManifestWorks to be read"),
            Self::AnchorInManifestWorks => f.write_str("the ManifestWorks to bring the new anchor"),
            Self::Policy => f.write_str(
                "the ValidatingAdmissionPolicy addon-signer-manifest-works to be in force, without which the hub \
                 writes no ManifestWork (TrustDistributed of the AddOnSigners says what to do)",
            ),
            Self::Clusters { ready, total, stragglers } => write!(
                f,
                "clusters to apply the new anchor: {ready} of {total} addons have it, and not yet: {stragglers}"
            ),
            Self::Pods { stragglers, .. } => write!(f, "pods and agents to use the new anchor: {stragglers}"),
            Self::LastCertificate { at, without } => {
                write!(f, "the last certificate issued without the new anchor to expire at {at}, because ")?;
                match without {
                    None => f.write_str("no ManifestWork brings it to agents"),
                    Some(who) => write!(f, "{} addons on clusters get no ManifestWork: {who}", who.count),
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
            Self::OldestAuthority => f.write_str("the oldest authority to be dropped, because the line is full"),
            Self::Issuer(what) => f.write_str(what),
            Self::Ledger => f.write_str("the ledger to report what it knows about this line"),
            Self::ServerTime => f.write_str("the API server to report the time"),
            Self::Clock { minutes } => {
                write!(f, "the hub's clock to be set: it is {minutes} minutes ahead of the API server's")
            }
        }
    }
}
