//! Logs which backend responses were cut short. A backend and its agent can break as many as they like.

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::Mutex;

use super::upload::BodyError;
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::identity::PeerIdentity;
use addon_signer_core::throttle::{Quota, Suppressed, Throttle};
use addon_signer_platform::clock::Clock;

/// How many broken responses of one addon on one cluster are logged; the others are counted.
const LOGGED: Quota = Quota { first: 5, window: Duration::from_secs(60) };

/// Logs which responses were cut short.
pub(super) struct BrokenAnswers {
    clock: Clock,
    throttle: Mutex<Throttle<String>>,
}

impl BrokenAnswers {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, throttle: Mutex::new(Throttle::new(LOGGED)) }
    }

    pub(super) fn say(&self, peer: &Peer, route: &RouteName, error: &BodyError) {
        let PeerIdentity { cluster, addon, agent } = &peer.identity;
        let now = self.clock.now();
        let taken = self.throttle.lock().take(&format!("{cluster}/{addon}"), now);
        taken.before.iter().for_each(more);
        if taken.write {
            tracing::warn!(
                %cluster, %addon, %agent, %route, %error,
                "The gateway could not pass on the backend's response completely"
            );
        }
    }

    /// Runs forever: logs how many responses were suppressed in each window that has ended.
    pub(super) async fn keep(&self) -> Infallible {
        loop {
            tokio::time::sleep(LOGGED.window).await;
            let now = self.clock.now();
            self.throttle.lock().ended(now).iter().for_each(more);
        }
    }
}

fn more(sum: &Suppressed<String>) {
    tracing::warn!(addon = sum.cause, count = sum.count, "Further broken backend responses were not logged");
}

#[cfg(test)]
mod tests {
    use tracing::Dispatch;
    use tracing::level_filters::LevelFilter;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unlogged_answers_are_counted_once_when_their_window_ends() {
        // With a second subscriber no other test's thread decides whether lines of this one are written.
        let _second = Dispatch::new(tracing_subscriber::fmt().with_max_level(LevelFilter::OFF).finish());
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = file.reopen().unwrap();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.try_clone().unwrap()).finish();
        let _guard = tracing::subscriber::set_default(log);
        let clock = Clock::default();
        let broken = BrokenAnswers::new(clock.clone());
        for _ in 0..LOGGED.first + 3 {
            broken.throttle.lock().take(&"spoke1/telemetry".to_owned(), clock.now());
        }
        let said = || std::fs::read_to_string(file.path()).unwrap();
        assert!(tokio::time::timeout(LOGGED.window * 2, broken.keep()).await.is_err(), "it runs forever");
        assert_eq!(said(), "", "their time is not over by the clock");
        clock.advance(LOGGED.window + Duration::from_secs(1));
        assert!(tokio::time::timeout(LOGGED.window * 3, broken.keep()).await.is_err());
        let said = said();
        let line = "Further broken backend responses were not logged addon=\"spoke1/telemetry\" count=3\n";
        assert!(said.ends_with(line), "{said}");
        assert!(said.lines().count() == 1, "{said}");
    }
}
