//! A queue in which no tenant starves: each tenant has its own lane, lanes take turns, and a lane has a bounded number
//! of entries in work.
//!
//! An entry has a name, and there is at most one entry of a name: it waits in its lane, waits for its time, or is in
//! work. If it is woken while it is in work, it is queued again afterwards. Moments are any ordered type, so that tests
//! and a monotonic clock can both be used.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// The queue. `T` is the type of moments.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// How many entries of one lane are in work at most.
    at_once: usize,
    entries: HashMap<Arc<str>, QueueEntry<T>>,
    lanes: HashMap<Arc<str>, Lane>,
    /// Lanes that have ready entries and may work on one more, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    /// Entries that wait for their time.
    timers: BTreeSet<(T, Arc<str>)>,
}

#[derive(Debug)]
struct QueueEntry<T> {
    tenant: Arc<str>,
    place: QueuePlace<T>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueuePlace<T> {
    Ready,
    Waiting(T),
    InWork { again: bool },
}

#[derive(Debug, Default)]
struct Lane {
    ready: VecDeque<Arc<str>>,
    in_work: usize,
    /// Whether the lane is in `turns`.
    has_turn: bool,
}

impl<T: Copy + Ord> FairQueue<T> {
    /// An empty queue whose lanes have at most `at_once` entries in work.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self {
            at_once,
            entries: HashMap::new(),
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Makes an entry ready, at the end of its tenant's lane. An entry that is ready already keeps its place.
    pub fn wake(&mut self, name: &str, tenant: &str) {
        let Some(entry) = self.entries.get_mut(name) else {
            let name: Arc<str> = name.into();
            let tenant: Arc<str> = tenant.into();
            self.entries
                .insert(Arc::clone(&name), QueueEntry { tenant: Arc::clone(&tenant), place: QueuePlace::Ready });
            return self.line_up(name, &tenant);
        };
        match &mut entry.place {
            QueuePlace::Ready => {}
            QueuePlace::InWork { again } => *again = true,
            QueuePlace::Waiting(_) => self.is_due(name),
        }
    }

    /// The next entry to work on: of the tenant whose turn it is, the one that has been ready for longest. The caller
    /// must report its end with [`Self::done`].
    pub fn next(&mut self, now: T) -> Option<Arc<str>> {
        while let Some((due, name)) = self.timers.first().filter(|(due, _)| *due <= now).cloned() {
            self.timers.remove(&(due, Arc::clone(&name)));
            self.is_due(&name);
        }
        let tenant = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&tenant)?;
        lane.has_turn = false;
        let name = lane.ready.pop_front()?;
        lane.in_work += 1;
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.place = QueuePlace::InWork { again: false };
        }
        self.give_turn(&tenant);
        Some(name)
    }

    /// Ends the work on an entry. It is queued again at `next`, or at once if it was woken meanwhile; otherwise it
    /// leaves the queue.
    pub fn done(&mut self, name: &str, next: Option<T>) {
        let Some((name, entry)) = self.entries.get_key_value(name) else { return };
        let QueuePlace::InWork { again } = entry.place else { return };
        let name = Arc::clone(name);
        let tenant = Arc::clone(&entry.tenant);
        if let Some(lane) = self.lanes.get_mut(&tenant) {
            lane.in_work -= 1;
        }
        match next {
            _ if again => {
                self.put(&name, QueuePlace::Ready);
                self.line_up(name, &tenant);
            }
            Some(time) => {
                self.put(&name, QueuePlace::Waiting(time));
                self.timers.insert((time, name));
                self.give_turn(&tenant);
            }
            None => {
                self.entries.remove(&name);
                self.give_turn(&tenant);
            }
        }
    }

    /// The moment at which the first of the waiting entries is due.
    #[must_use]
    pub fn next_due(&self) -> Option<T> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn put(&mut self, name: &str, place: QueuePlace<T>) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.place = place;
        }
    }

    /// Moves a waiting entry into its lane.
    fn is_due(&mut self, name: &str) {
        let Some((name, entry)) = self.entries.get_key_value(name) else { return };
        let name = Arc::clone(name);
        let tenant = Arc::clone(&entry.tenant);
        if let QueuePlace::Waiting(due) = entry.place {
            self.timers.remove(&(due, Arc::clone(&name)));
        }
        self.put(&name, QueuePlace::Ready);
        self.line_up(name, &tenant);
    }

    fn line_up(&mut self, name: Arc<str>, tenant: &Arc<str>) {
        self.lanes.entry(Arc::clone(tenant)).or_default().ready.push_back(name);
        self.give_turn(tenant);
    }

    /// Puts a lane at the end of the turns if it can use one, and forgets it if it is empty.
    fn give_turn(&mut self, tenant: &Arc<str>) {
        let Some(lane) = self.lanes.get_mut(tenant) else { return };
        if lane.ready.is_empty() && lane.in_work == 0 {
            self.lanes.remove(tenant);
        } else if !lane.ready.is_empty() && lane.in_work < self.at_once && !lane.has_turn {
            lane.has_turn = true;
            self.turns.push_back(Arc::clone(tenant));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(queue: &mut FairQueue<u64>, now: u64) -> Vec<String> {
        std::iter::from_fn(|| queue.next(now)).map(|name| name.to_string()).collect()
    }

    #[test]
    fn a_tenant_with_ten_thousand_entries_does_not_delay_another() {
        let mut queue = FairQueue::new(4);
        for n in 0..10_000 {
            queue.wake(&format!("loud-{n}"), "loud");
        }
        assert_eq!(drain(&mut queue, 0).len(), 4, "no more than four in work");
        queue.wake("quiet-1", "quiet");
        assert_eq!(drain(&mut queue, 0), ["quiet-1"]);
        queue.done("loud-0", None);
        queue.wake("quiet-2", "quiet");
        assert_eq!(drain(&mut queue, 0), ["loud-4", "quiet-2"], "turn by turn");
    }

    #[test]
    fn an_entry_that_is_woken_while_it_is_in_work_comes_again() {
        let mut queue = FairQueue::new(1);
        queue.wake("a", "t");
        assert_eq!(drain(&mut queue, 0), ["a"]);
        queue.wake("a", "t");
        assert_eq!(drain(&mut queue, 0), Vec::<String>::new(), "one at a time");
        queue.done("a", Some(100));
        assert_eq!(drain(&mut queue, 0), ["a"], "at once, whatever the work said");
        queue.done("a", None);
        assert!(queue.is_empty());
        assert!(queue.lanes.is_empty());
    }

    #[test]
    fn an_entry_comes_at_its_time_or_when_it_is_woken() {
        let mut queue = FairQueue::new(1);
        for name in ["a", "b"] {
            queue.wake(name, name);
            assert_eq!(drain(&mut queue, 0), [name]);
            queue.done(name, Some(10));
        }
        assert_eq!((queue.next(9), queue.next_due()), (None, Some(10)));
        queue.wake("b", "b");
        assert_eq!(drain(&mut queue, 9), ["b"]);
        assert_eq!(drain(&mut queue, 10), ["a"]);
        assert_eq!((queue.len(), queue.next_due()), (2, None));
    }

    proptest! {
        /// After any steps, every entry is either in work, waits, or is handed out, and no lane has too many in work.
        #[test]
        fn nothing_is_lost_or_doubled(steps in prop::collection::vec((0..4u8, 0..12u8, 0..50u64), 0..300)) {
            let mut queue = FairQueue::new(2);
            let mut in_work: BTreeSet<String> = BTreeSet::new();
            let mut now = 0;
            for (step, which, time) in steps {
                let name = format!("n{which}");
                let tenant = format!("t{}", which % 3);
                match step {
                    0 => queue.wake(&name, &tenant),
                    1 => {
                        now += time;
                        if let Some(next) = queue.next(now) {
                            prop_assert!(in_work.insert(next.to_string()), "{next} is in work twice");
                        }
                    }
                    _ => {
                        in_work.remove(&name);
                        queue.done(&name, (step == 2).then_some(now + time));
                    }
                }
                for tenant in 0..3_u8 {
                    let of_tenant = |name: &&String| name[1..].parse::<u8>().unwrap() % 3 == tenant;
                    prop_assert!(in_work.iter().filter(of_tenant).count() <= 2);
                }
            }
            let waiting = queue.len() - in_work.len();
            let mut handed_out = 0;
            while let Some(next) = queue.next(u64::MAX) {
                handed_out += 1;
                queue.done(&next, None);
                while let Some(name) = in_work.pop_first() {
                    queue.done(&name, None);
                }
            }
            for name in in_work {
                queue.done(&name, None);
                while let Some(next) = queue.next(u64::MAX) {
                    handed_out += 1;
                    queue.done(&next, None);
                }
            }
            prop_assert!(handed_out >= waiting, "{handed_out} of {waiting}");
            prop_assert!(queue.is_empty());
            prop_assert!(queue.lanes.is_empty());
            prop_assert!(queue.turns.is_empty());
        }
    }
}
