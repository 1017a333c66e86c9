//! Limits how many similar events are written individually. For each cause and time window, further events are only
//! counted.
//!
//! The counts are complete: every event is either written or part of exactly one [`Suppressed`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::timestamp::Timestamp;

/// How many events are written: the first `first` events of each cause in each `window`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The number of events that are written.
    pub first: u32,
    /// The length of a window. A window begins with the first event of a cause after the last window ended.
    pub window: Duration,
}

/// The events of one cause in one window that were not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppressed<C> {
    /// Their cause.
    pub cause: C,
    /// When the window began.
    pub since: Timestamp,
    /// Their number, at least one.
    pub count: u64,
}

/// What to do with one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken<C> {
    /// Whether to write it.
    pub write: bool,
    /// The suppressed events of the window before, if that window was not [closed](Throttle::ended) yet.
    pub before: Option<Suppressed<C>>,
}

/// The windows. There is one in memory for each cause, so the type of causes must have few values.
#[derive(Debug)]
pub struct Throttle<C> {
    quota: Quota,
    windows: BTreeMap<C, Window>,
}

#[derive(Debug)]
struct Window {
    since: Timestamp,
    written: u32,
    suppressed: u64,
}

impl<C: Ord + Clone> Throttle<C> {
    /// A throttle without windows.
    pub fn new(quota: Quota) -> Self {
        Self { quota, windows: BTreeMap::new() }
    }

    /// Counts one event.
    pub fn take(&mut self, cause: &C, now: Timestamp) -> Taken<C> {
        let quota = self.quota;
        let ended = self.windows.get(cause).is_some_and(|window| window.is_over(quota, now));
        let before = if ended { self.close(cause) } else { None };
        let fresh = Window { since: now, written: 0, suppressed: 0 };
        let window = self.windows.entry(cause.clone()).or_insert(fresh);
        let write = window.written < quota.first;
        if write {
            window.written += 1;
        } else {
            window.suppressed += 1;
        }
        Taken { write, before }
    }

    /// Closes the windows that have ended, and returns their suppressed events.
    pub fn ended(&mut self, now: Timestamp) -> Vec<Suppressed<C>> {
        let over = self.windows.iter().filter(|(_, window)| window.is_over(self.quota, now));
        let causes: Vec<C> = over.map(|(cause, _)| cause.clone()).collect();
        causes.iter().filter_map(|cause| self.close(cause)).collect()
    }

    /// Closes all windows, for the end of the process, and returns their suppressed events.
    pub fn all(&mut self) -> Vec<Suppressed<C>> {
        let causes: Vec<C> = self.windows.keys().cloned().collect();
        causes.iter().filter_map(|cause| self.close(cause)).collect()
    }

    fn close(&mut self, cause: &C) -> Option<Suppressed<C>> {
        let window = self.windows.remove(cause)?;
        let sum = Suppressed { cause: cause.clone(), since: window.since, count: window.suppressed };
        (window.suppressed > 0).then_some(sum)
    }
}

impl Window {
    /// Whether the window has ended. Setting the clock back ends it too; otherwise the window would last too long.
    fn is_over(&self, quota: Quota, now: Timestamp) -> bool {
        now < self.since || self.since.until(now) >= quota.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const START: Timestamp = Timestamp::from_unix(1_000_000);

    fn throttle() -> Throttle<&'static str> {
        Throttle::new(Quota { first: 2, window: MINUTE })
    }

    fn suppressed(cause: &'static str, since: Timestamp, count: u64) -> Suppressed<&'static str> {
        Suppressed { cause, since, count }
    }

    #[test]
    fn first_events_of_a_cause_are_written_and_rest_counted_once() {
        let mut throttle = throttle();
        let written = |throttle: &mut Throttle<_>, cause, now| throttle.take(&cause, now).write;
        let first: Vec<bool> = (0..5).map(|_| written(&mut throttle, "a", START)).collect();
        assert_eq!(first, [true, true, false, false, false]);
        assert!(written(&mut throttle, "b", START), "one cause does not use up what another has");
        assert_eq!(throttle.ended(START.plus(Duration::from_secs(59))), vec![]);
        assert_eq!(throttle.ended(START.plus(MINUTE)), vec![suppressed("a", START, 3)]);
        assert_eq!(throttle.ended(START.plus(MINUTE)), vec![], "a sum is given once");
        assert!(written(&mut throttle, "a", START.plus(MINUTE)), "a new window");
    }

    #[test]
    fn a_window_that_nobody_closed_is_closed_by_the_next_event() {
        let mut throttle = throttle();
        for _ in 0..4 {
            throttle.take(&"a", START);
        }
        let later = START.plus(MINUTE * 3);
        let taken = Taken { write: true, before: Some(suppressed("a", START, 2)) };
        assert_eq!(throttle.take(&"a", later), taken);
        assert_eq!(throttle.take(&"a", later), Taken { write: true, before: None });
    }

    #[test]
    fn process_end_and_clock_set_back_close_windows() {
        let mut throttle = throttle();
        for _ in 0..3 {
            throttle.take(&"a", START);
        }
        assert_eq!(throttle.ended(START.minus(MINUTE * 60)), vec![suppressed("a", START, 1)]);
        for _ in 0..3 {
            throttle.take(&"b", START);
        }
        assert_eq!(throttle.all(), vec![suppressed("b", START, 1)]);
        assert_eq!(throttle.all(), vec![]);
    }

    #[test]
    fn a_hundred_thousand_events_over_ten_minutes_add_up() {
        let mut throttle = throttle();
        let mut written = 0;
        let mut counted = 0;
        for event in 0..100_000_u64 {
            let now = START.plus(Duration::from_secs(event / 166));
            let taken = throttle.take(&["a", "b", "c"][usize::try_from(event % 3).unwrap()], now);
            written += u64::from(taken.write);
            counted += taken.before.map_or(0, |sum| sum.count);
        }
        counted += throttle.all().iter().map(|sum| sum.count).sum::<u64>();
        assert_eq!(written + counted, 100_000);
        assert!(written <= 2 * 3 * 11, "{written}");
    }
}
