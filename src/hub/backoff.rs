//! Pauses before something that failed is tried again.

use std::time::Duration;

use addon_signer_core::backoff::doubled;
use kube::runtime::utils::Backoff;

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(3);

/// The pauses of a watch: they double up to 3 seconds. kube's own default grows up to a minute. For that long after the
/// API server is back nobody would get a certificate, and a detached cluster would keep its access. A hub has only a
/// few watches, so frequent retries are no burden.
#[derive(Debug, Default)]
pub(super) struct WatchBackoff {
    failures: u32,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = doubled(SHORTEST, self.failures, LONGEST);
        self.failures = self.failures.saturating_add(1);
        Some(pause)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_three_seconds_and_begin_anew() {
        let mut backoff = WatchBackoff::default();
        let pauses: Vec<u128> = backoff.by_ref().take(5).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 3_000, 3_000]);
        backoff.reset();
        assert_eq!(backoff.next(), Some(SHORTEST));
    }
}
