//! Pauses that double: after failures, and before the hub writes again what another program keeps changing back.

use std::ops::Add;
use std::time::Duration;

/// `shortest`, doubled once for each of `failures`, but never more than `longest`.
pub fn doubled(shortest: Duration, failures: u32, longest: Duration) -> Duration {
    shortest.saturating_mul(2_u32.saturating_pow(failures)).min(longest)
}

/// The last writes of one object. A GitOps tool, another controller or a cluster's own agent may undo each write at
/// once, and both would write without end. `T` is the time of the caller's clock.
#[derive(Debug, Clone)]
pub struct RevertBackoff<T> {
    shortest: Duration,
    longest: Duration,
    writes: u32,
    last: Option<T>,
}

impl<T: Copy + Ord + Add<Duration, Output = T>> RevertBackoff<T> {
    /// Before the first write. The pauses double from the shortest to the longest; if there is no write for the longest
    /// time after a pause, the next one counts as the first.
    pub const fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, writes: 0, last: None }
    }

    /// Notes a write, or one that failed. Returns the pause after it.
    pub fn wrote(&mut self, now: T) -> Duration {
        self.writes = if self.is_calm(now) { 1 } else { self.writes.saturating_add(1) };
        self.last = Some(now);
        self.pause()
    }

    /// When the next write may be; `None` if at once.
    pub fn due(&self) -> Option<T> {
        self.last.map(|last| last + self.pause())
    }

    /// Whether a write now counts as the first.
    pub fn is_calm(&self, now: T) -> bool {
        self.due().is_none_or(|due| now >= due + self.longest)
    }

    /// How many writes there were, each soon after the one before.
    pub fn writes(&self) -> u32 {
        self.writes
    }

    /// The time of the last write.
    pub fn last(&self) -> Option<T> {
        self.last
    }

    fn pause(&self) -> Duration {
        doubled(self.shortest, self.writes.saturating_sub(1), self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn mk_reverts() -> RevertBackoff<Duration> {
        RevertBackoff::new(at(1), at(15))
    }

    #[test]
    fn answers_to_repeated_undoing_slow_down_until_calm_returns() {
        let mut reverts = mk_reverts();
        assert_eq!(reverts.due(), None);
        assert!(reverts.is_calm(at(0)));
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.push(reverts.wrote(now).as_secs());
            now = reverts.due().unwrap();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 15, 15, 15]);
        assert_eq!(reverts.writes(), 7);
        let last = reverts.last().unwrap();
        assert!(!reverts.is_calm(last + at(29)));
        assert!(reverts.is_calm(last + at(30)));
        assert_eq!(reverts.wrote(last + at(30)), at(1));
    }
}
