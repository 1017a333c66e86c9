//! Pauses before something that failed is tried again.

use std::time::Duration;

use addon_signer_core::doubling::doubled;
use kube::runtime::utils::Backoff;
use tokio::time::Instant;

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(3);

/// Pauses that double from the shortest to the longest while something fails, and start over after twice the longest
/// without a failure.
#[derive(Debug)]
pub struct Pauses {
    shortest: Duration,
    longest: Duration,
    failures: u32,
    last: Option<Instant>,
}

impl Pauses {
    /// Pauses between these bounds, before the first failure.
    pub fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, failures: 0, last: None }
    }

    /// The pause after a failure.
    pub fn after_failure(&mut self) -> Duration {
        if self.last.replace(Instant::now()).is_some_and(|last| last.elapsed() > 2 * self.longest) {
            self.failures = 0;
        }
        let pause = doubled(self.shortest, self.failures, self.longest);
        self.failures = self.failures.saturating_add(1);
        pause
    }
}

/// The pauses of a watch: they double up to 3 seconds. kube's own default grows up to a minute. For that long after the
/// API server came back, no agent would get a certificate, and a detached cluster would keep its access. A hub has only
/// a few watches, so frequent retries are no burden.
#[derive(Debug)]
pub struct WatchBackoff(Pauses);

impl Default for WatchBackoff {
    fn default() -> Self {
        Self(Pauses::new(SHORTEST, LONGEST))
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0.after_failure())
    }
}

impl Backoff for WatchBackoff {
    /// Does nothing: kube calls this at each event, and the first event of a list comes before the request to the API
    /// server, even if that fails.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use kube::runtime::WatchStreamExt;
    use kube::runtime::watcher::{self, Event};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_three_seconds_and_begin_anew() {
        let mut backoff = WatchBackoff::default();
        let pauses: Vec<u128> = backoff.by_ref().take(5).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 3_000, 3_000]);
        tokio::time::advance(2 * LONGEST).await;
        assert_eq!(backoff.next(), Some(LONGEST));
        tokio::time::advance(2 * LONGEST + SHORTEST).await;
        assert_eq!(backoff.next(), Some(SHORTEST));
    }

    #[tokio::test(start_paused = true)]
    async fn failing_lists_back_off_even_if_each_begins_with_an_event() {
        let failure = || Err(watcher::Error::NoResourceVersion);
        let events = stream::iter((0..8).map(|n| if n % 2 == 0 { Ok(Event::<()>::Init) } else { failure() }));
        let began = Instant::now();
        let seen = events.backoff(WatchBackoff::default()).map(|event| (event.is_ok(), began.elapsed().as_millis()));
        let inits: Vec<u128> = seen.filter_map(async |(is_init, at)| is_init.then_some(at)).collect().await;
        assert_eq!(inits, [0, 500, 1_500, 3_500]);
    }
}
