//! Tracks the age of the hub's view of clusters and addons: a silent watch may have missed a revocation.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Roles;
use addon_signer_core::registry::{Registry, SharedRegistry};
use addon_signer_hub::gateways::LEASES;
use addon_signer_platform::contacts::Contacts;

/// The resources whose watches feed the registry.
const WATCHED: [&str; 2] = ["managedclusters", "managedclusteraddons"];
/// The same for a gateway without a signer, and the AddOnSigners, from which it reads its trust, and its own Lease: an
/// API server that cannot reach etcd sends bookmarks but accepts no writes, and signers do not wait for a gateway whose
/// Lease is older than its bound.
const HEARD_BY_GATEWAY: [&str; 4] = ["managedclusters", "managedclusteraddons", "addonsigners", LEASES];
/// How often the hub checks whether the registry is outdated.
const ROUND: Duration = Duration::from_secs(1);

/// The ages at which the process reacts.
#[derive(Debug, Clone, Copy)]
pub struct AgeBounds {
    /// The age from which the readiness probe reports it.
    pub stale: Duration,
    /// The age from which the gateway refuses all clients; `None` for never.
    pub outdated: Option<Duration>,
}

/// The API server sends a bookmark every minute, and a watch restarts within half a minute.
const STALE: Duration = Duration::from_secs(120);

/// A gateway that refuses all clients is an outage of all addons; by default, an unavailable API server does not
/// justify that.
impl Default for AgeBounds {
    fn default() -> Self {
        Self { stale: STALE, outdated: None }
    }
}

/// The age of a registry.
#[derive(Debug, Clone)]
pub(crate) struct RegistryAge {
    pub(crate) contacts: Contacts,
    pub(crate) registry: SharedRegistry,
    pub(crate) bounds: AgeBounds,
    watched: &'static [&'static str],
}

impl RegistryAge {
    pub(crate) fn new(contacts: Contacts, registry: SharedRegistry, bounds: AgeBounds, roles: Roles) -> Self {
        let watched: &[_] = if roles.has_signer() { &WATCHED } else { &HEARD_BY_GATEWAY };
        Self { contacts, registry, bounds, watched }
    }

    /// The age; zero before the first watch is requested, because the registry has not been read yet.
    pub(crate) fn age(&self) -> Duration {
        self.contacts.age(self.watched).unwrap_or_default()
    }

    /// Whether the watches are fine, and only the writes of the gateway's Lease fail: they may be refused.
    pub(crate) fn lacks_lease(&self) -> bool {
        let watched: Vec<_> = self.watched.iter().copied().filter(|resource| *resource != LEASES).collect();
        let bound = self.bounds.outdated.map_or(self.bounds.stale, |outdated| outdated.min(self.bounds.stale));
        self.age() > bound && self.contacts.age(&watched).is_some_and(|age| age <= bound)
    }

    /// The age as a sentence.
    pub(crate) fn sentence(&self) -> String {
        let seconds = self.age().as_secs();
        if self.lacks_lease() {
            format!("the gateway has not written its Lease for {seconds} s, and its log says why")
        } else if let Some(status) = self.contacts.refusal(self.watched) {
            format!("the API server has refused watches for {seconds} s, now with {status}; see the log")
        } else {
            format!("the API server has been silent for {seconds} s")
        }
    }

    /// Notes in the log and in the registry when the registry becomes outdated and when it is current again, until
    /// `stop` is cancelled.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        let Some(bound) = self.bounds.outdated else { return stop.cancelled().await };
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was = false;
        while stop.run_until_cancelled(rounds.tick()).await.is_some() {
            let is = self.age() > bound;
            if is == was {
                continue;
            }
            was = is;
            self.registry.write(|registry: &mut Registry| registry.set_outdated(is));
            if is {
                warn!(cause = self.sentence(), "What is known may be outdated: refusing everybody");
            } else {
                // Deferred CSRs are retried within the longest pause between two attempts.
                info!("What is known is current again: no longer refusing everybody");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// An administrator must know whether to check the API server, or why Leases are refused.
    #[test]
    fn old_lease_is_told_from_a_silent_api_server() {
        let (contacts, registry) = (Contacts::default(), SharedRegistry::default());
        // It refuses all clients before it would warn of that.
        let bounds = AgeBounds { outdated: Some(Duration::from_secs(90)), ..AgeBounds::default() };
        let age = RegistryAge::new(contacts.clone(), registry, bounds, Roles::Gateway);
        let now = Instant::now();
        let long_ago = now.checked_sub(Duration::from_secs(100)).unwrap();
        for (watched, lease, sentence) in [
            (now, long_ago, "the gateway has not written its Lease for 100 s, and its log says why"),
            (long_ago, now, "the API server has been silent for 100 s"),
            (long_ago, long_ago, "the API server has been silent for 100 s"),
        ] {
            for resource in ["managedclusters", "managedclusteraddons", "addonsigners"] {
                contacts.answered(resource, watched);
            }
            contacts.answered(LEASES, lease);
            assert_eq!(age.sentence(), sentence);
        }
    }
}
