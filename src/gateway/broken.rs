//! Says in the log which answers of backends were broken off. A backend and its agent can break as many as they like.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::body::BodyError;
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::identity::PeerIdentity;
use addon_signer_core::throttle::{Quota, Throttle};
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
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = throttle.take(&format!("{cluster}/{addon}"), now);
        for sum in throttle.ended(now).into_iter().chain(taken.before) {
            tracing::warn!(addon = sum.cause, count = sum.count, "More broken answers of backends were not logged");
        }
        if taken.write {
            tracing::warn!(
                %cluster, %addon, %agent, %error,
                "The gateway could not pass on the backend's response completely"
            );
        }
    }
}
