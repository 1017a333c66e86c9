//! When to try again. Pauses grow exponentially up to a cap, with jitter, so that the agents of a fleet do not all
//! retry at the same moment.

use std::time::Duration;

use addon_signer_core::doubling::doubled;
use ring::rand::{SecureRandom, SystemRandom};

/// Pauses that double from `first` to `cap`.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, failures: 0 }
    }

    /// The pause after one more failure.
    pub(crate) fn after_failure(&mut self) -> Duration {
        let pause = doubled(self.first, self.failures, self.cap);
        self.failures = self.failures.saturating_add(1);
        jittered(pause)
    }

    /// The pause after a success. A later failure starts a new series.
    pub(crate) fn after_success(&mut self) -> Duration {
        self.failures = 0;
        jittered(self.first)
    }
}

/// Between 80 and 120 % of `pause`.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let mut byte = [128_u8];
    // If there are no random bytes, the pause has no jitter. Nothing secret depends on it.
    let _ = SystemRandom::new().fill(&mut byte);
    let [byte] = byte;
    pause.saturating_mul(800 + u32::from(byte) * 400 / 255) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(pause: Duration, seconds: u64) -> bool {
        let middle = Duration::from_secs(seconds);
        pause >= middle * 4 / 5 && pause <= middle * 6 / 5
    }

    #[test]
    fn pauses_double_up_to_the_cap_and_start_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(600));
        for expected in [30, 60, 120, 240, 480, 600, 600] {
            assert!(near(backoff.after_failure(), expected), "{expected}");
        }
        assert!(near(backoff.after_success(), 30));
        assert!(near(backoff.after_failure(), 30));
    }

    #[test]
    fn thousands_of_failures_stay_at_the_cap() {
        let mut backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(600));
        let last = (0..5000).map(|_| backoff.after_failure()).last().unwrap();
        assert!(near(last, 600));
    }
}
