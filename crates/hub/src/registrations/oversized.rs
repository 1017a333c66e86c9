//! Logs which addons have a larger status than the hub reads, a few for each cluster.

use std::time::Duration;

use tracing::{info, warn};

use addon_signer_core::identity::{AddOnKey, ClusterName};
use addon_signer_core::throttle::{Quota, Throttle};
use addon_signer_core::timestamp::Timestamp;

/// How many log lines one cluster's addons may cause; the others are counted. Its agent may change a status endlessly.
const LOGGED: Quota = Quota { first: 2, window: Duration::from_secs(3_600) };

/// The recent log lines.
pub(super) struct Oversized(Throttle<ClusterName>);

impl Default for Oversized {
    fn default() -> Self {
        Self(Throttle::new(LOGGED))
    }
}

impl Oversized {
    /// Logs that the hub leaves an addon's registrations alone.
    pub(super) fn note(&mut self, key: &AddOnKey, now: Timestamp) {
        let AddOnKey { cluster, addon } = key;
        let taken = self.0.take(cluster, now);
        for sum in self.0.ended(now).into_iter().chain(taken.before) {
            info!(cluster = %sum.cause, count = sum.count, "More addons with too large a status were not logged");
        }
        if taken.write {
            warn!(
                %cluster, %addon,
                "The status or metadata of the addon is larger than the hub reads, so the hub writes no registration \
                 into it; its eligibility does not depend on that"
            );
        }
    }
}
