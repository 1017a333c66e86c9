//! How old is what the hub knows of clusters and addons: a watch that is silent may have missed a revocation.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use addon_signer_core::registry::{Registry, SharedRegistry};
use addon_signer_platform::contacts::Contacts;

/// The resources whose watches feed the registry.
const WATCHED: [&str; 2] = ["managedclusters", "managedclusteraddons"];
/// How often the hub looks whether the registry is outdated.
const ROUND: Duration = Duration::from_secs(1);

/// From which age on something happens.
#[derive(Debug, Clone, Copy)]
pub struct AgeBounds {
    /// From this age on the readiness probe says so.
    pub stale: Duration,
    /// From this age on the gateway refuses everybody; `None` for never.
    pub outdated: Option<Duration>,
}

/// The API server sends a bookmark each minute, and a watch begins again within half a minute.
const STALE: Duration = Duration::from_secs(120);

/// A gateway that refuses everybody is an outage of all addons, and an API server that is away is no reason for that
/// unless somebody says so.
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
}

impl RegistryAge {
    /// The age; zero before the first watch is asked for, because then the registry is not read yet.
    pub(crate) fn age(&self) -> Duration {
        self.contacts.age(&WATCHED).unwrap_or_default()
    }

    /// Says in the log and in the registry when it becomes outdated, and when it is not any more, until `stop` is
    /// cancelled.
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
                let seconds = self.age().as_secs();
                warn!(
                    seconds,
                    "The API server is silent, so the hub does not know who is registered: it refuses everybody"
                );
            } else {
                // Requests that were put off come again within the longest pause between two tries.
                info!("The API server answers again: the hub knows who is registered");
            }
        }
    }
}
