//! Says in the log which answers of backends were broken off. A backend and its agent can break as many as they like.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::body::BodyError;
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::identity::PeerIdentity;
use addon_signer_core::throttle::{Quota, Suppressed, Throttle};
use addon_signer_platform::clock::Clock;

/// How many broken answers of one addon on one cluster are logged; the others are counted.
const LOGGED: Quota = Quota { first: 5, window: Duration::from_secs(60) };

/// Says in the log which answers were broken off.
pub(super) struct BrokenAnswers {
    clock: Clock,
    throttle: Mutex<Throttle<String>>,
}

impl BrokenAnswers {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, throttle: Mutex::new(Throttle::new(LOGGED)) }
    }

    pub(super) fn say(&self, peer: &Peer, error: &BodyError) {
        let PeerIdentity { cluster, addon, agent } = &peer.identity;
        let now = self.clock.now();
        let taken = self.lock().take(&format!("{cluster}/{addon}"), now);
        taken.before.iter().for_each(more);
        if taken.write {
            tracing::warn!(
                %cluster, %addon, %agent, %error,
                "The gateway could not pass on the backend's response completely"
            );
        }
    }

    /// Says for ever how many answers were not logged, once their time is over.
    pub(super) async fn keep(&self) -> Infallible {
        loop {
            tokio::time::sleep(LOGGED.window).await;
            let now = self.clock.now();
            self.lock().ended(now).iter().for_each(more);
        }
    }

    /// Ignores poisoning: the methods of the throttle do not panic.
    fn lock(&self) -> MutexGuard<'_, Throttle<String>> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn more(sum: &Suppressed<String>) {
    tracing::warn!(addon = sum.cause, count = sum.count, "More broken answers of backends were not logged");
}
