//! Decides when the hub rewrites an addon's registrations that another program keeps changing: a few times soon, and
//! then rarely.
//!
//! A program of addon-framework replaces the whole list whenever the list changes, so writing against it would never
//! end. The hub still writes a few times, because others change the list for good reasons, and a registration that was
//! lost by accident must come back. Times are durations since the writer began.

use std::collections::HashMap;
use std::time::Duration;

use crate::doubling::doubled;
use crate::identity::AddOnKey;
use crate::revert_backoff::RevertBackoff;

/// How often the hub restores the registrations before it leaves them to the other program.
const PUT_BACKS: u32 = 3;
/// The shortest and the longest pause between two writes of one addon, whatever the reason.
const PAUSES: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(600));
/// How long the hub waits before it retries registrations that it left alone. The pause doubles with each try.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// The longest such pause. It is long because OCM's agent makes and deletes a Secret at each try.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// If the registrations are unchanged this long after a try, the dispute is over. Two tries are never closer together.
const STANDS: Duration = Duration::from_secs(60);

/// What the hub sees about an addon.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Whether its registrations differ from what they should be.
    pub differs: bool,
    /// Whether its status says that the hub leaves them to another program.
    pub says_left: bool,
}

/// What to do about an addon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisputeStep {
    /// Nothing, until something changes.
    Rest,
    /// Nothing before this time; then check again.
    Wait(Duration),
    /// Write the registrations as they should be.
    Write,
    /// Write into the addon's status that the hub leaves the registrations to another program.
    SayLeft,
    /// Remove from the addon's status what [`Self::SayLeft`] wrote.
    TakeBack,
}

#[derive(Debug)]
struct Dispute {
    /// The writes. After a restart the first is when the hub first saw an addon that it had left.
    reverts: RevertBackoff<Duration>,
    /// `Some` if the hub leaves the registrations to another program.
    left: Option<Left>,
}

#[derive(Debug)]
struct Left {
    /// How often the hub has tried since it left the registrations.
    tries: u32,
    /// When the next try is due.
    due: Duration,
    /// Whether the addon's status has reported it. If another program removes that, the hub does not write it again.
    said: bool,
}

/// The addons whose registrations the hub wrote recently or leaves to another program.
#[derive(Debug, Default)]
pub struct Disputes {
    of: HashMap<AddOnKey, Dispute>,
}

impl Disputes {
    /// Decides what to do about an addon now. The caller reports a step that it took, by [`Self::wrote`],
    /// [`Self::said`] or [`Self::took_back`]. A failed step is not reported and does not count.
    pub fn judge(&mut self, key: &AddOnKey, seen: Observation, now: Duration) -> DisputeStep {
        let Some(dispute) = self.of.get_mut(key) else { return self.begin(key, seen, now) };
        let stands = dispute.reverts.last().unwrap_or_default() + STANDS;
        match &mut dispute.left {
            Some(left) if seen.differs && now >= left.due => DisputeStep::Write,
            Some(left) if seen.differs => {
                left.said |= seen.says_left;
                if left.said { DisputeStep::Wait(left.due) } else { DisputeStep::SayLeft }
            }
            Some(_) if now < stands => DisputeStep::Wait(stands),
            Some(_) => {
                if seen.says_left {
                    return DisputeStep::TakeBack;
                }
                self.of.remove(key);
                DisputeStep::Rest
            }
            None if !seen.differs => DisputeStep::Rest,
            None if dispute.reverts.writes() > PUT_BACKS && !dispute.reverts.is_calm(now) => {
                dispute.left = Some(Left { tries: 0, due: now + LOOK_AGAIN, said: false });
                DisputeStep::SayLeft
            }
            None => match dispute.reverts.due() {
                Some(due) if now < due => DisputeStep::Wait(due),
                _ => DisputeStep::Write,
            },
        }
    }

    /// Decides about an addon about which nothing is known. After a restart the hub relies on the addon's status.
    fn begin(&mut self, key: &AddOnKey, seen: Observation, now: Duration) -> DisputeStep {
        if seen.says_left {
            let left = Left { tries: 0, due: now + LOOK_AGAIN, said: true };
            let mut reverts = RevertBackoff::new(PAUSES.0, PAUSES.1);
            reverts.wrote(now);
            self.of.insert(key.clone(), Dispute { reverts, left: Some(left) });
            return DisputeStep::Wait(now + if seen.differs { LOOK_AGAIN } else { STANDS });
        }
        if seen.differs { DisputeStep::Write } else { DisputeStep::Rest }
    }

    /// Notes that the addon's registrations were written.
    pub fn wrote(&mut self, key: &AddOnKey, now: Duration) {
        let new = || Dispute { reverts: RevertBackoff::new(PAUSES.0, PAUSES.1), left: None };
        let dispute = self.of.entry(key.clone()).or_insert_with(new);
        dispute.reverts.wrote(now);
        if let Some(left) = &mut dispute.left {
            left.tries = left.tries.saturating_add(1);
            left.due = now + doubled(LOOK_AGAIN, left.tries, LONGEST);
        }
    }

    /// Notes that the addon's status no longer says that the registrations are left.
    pub fn took_back(&mut self, key: &AddOnKey) {
        self.of.remove(key);
    }

    /// Notes that the addon's status says that the registrations are left.
    pub fn said(&mut self, key: &AddOnKey) {
        if let Some(left) = self.of.get_mut(key).and_then(|dispute| dispute.left.as_mut()) {
            left.said = true;
        }
    }

    /// Notes that people changed a setting. The resulting writes are not a dispute, and the hub retries registrations
    /// that it left alone.
    pub fn people_changed_something(&mut self) {
        for dispute in self.of.values_mut() {
            match &mut dispute.left {
                Some(left) => {
                    (left.tries, left.due) = (0, dispute.reverts.last().unwrap_or_default() + STANDS);
                }
                None => dispute.reverts.restart(),
            }
        }
    }

    /// Forgets an addon that was deleted.
    pub fn forget(&mut self, key: &AddOnKey) {
        self.of.remove(key);
    }

    /// Forgets addons that are not `there`, and addons that the hub neither leaves alone nor has written to within some
    /// ten minutes.
    pub fn tidy(&mut self, now: Duration, there: impl Fn(&AddOnKey) -> bool) {
        self.of.retain(|key, dispute| there(key) && (dispute.left.is_some() || !dispute.reverts.is_calm(now)));
    }

    /// The addons whose registrations the hub leaves to another program.
    pub fn left(&self) -> impl Iterator<Item = &AddOnKey> {
        self.of.iter().filter(|(_, dispute)| dispute.left.is_some()).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: Observation = Observation { differs: false, says_left: false };
    const WRONG: Observation = Observation { differs: true, says_left: false };
    const LEFT: Observation = Observation { differs: true, says_left: true };
    const STANDING: Observation = Observation { differs: false, says_left: true };

    fn mk_key() -> AddOnKey {
        AddOnKey { cluster: "c1".parse().unwrap(), addon: "telemetry".parse().unwrap() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Decides what to do, and reports that it was done; returns the step.
    fn act(disputes: &mut Disputes, seen: Observation, now: Duration) -> DisputeStep {
        let step = disputes.judge(&mk_key(), seen, now);
        match step {
            DisputeStep::Write => disputes.wrote(&mk_key(), now),
            DisputeStep::SayLeft => disputes.said(&mk_key()),
            DisputeStep::TakeBack => disputes.took_back(&mk_key()),
            DisputeStep::Rest | DisputeStep::Wait(_) => {}
        }
        step
    }

    /// Writes against a program that undoes each write at once, until the hub leaves the registrations to it. Returns
    /// the times of the writes, and when the hub left the registrations.
    fn mk_left(disputes: &mut Disputes) -> (Vec<u64>, Duration) {
        let mut writes = Vec::new();
        let mut now = Duration::ZERO;
        loop {
            match act(disputes, WRONG, now) {
                DisputeStep::Write => writes.push(now.as_secs()),
                DisputeStep::Wait(due) => now = due,
                other => {
                    assert_eq!(other, DisputeStep::SayLeft);
                    return (writes, now);
                }
            }
        }
    }

    #[test]
    fn entry_is_restored_three_times_with_growing_pauses_then_left() {
        let mut disputes = Disputes::default();
        assert_eq!(mk_left(&mut disputes).0, [0, 6, 18, 42]);
        assert_eq!(disputes.left().collect::<Vec<_>>(), [&mk_key()]);
    }

    #[test]
    fn entry_left_alone_is_retried_with_pauses_up_to_six_hours() {
        let mut disputes = Disputes::default();
        let (_, mut now) = mk_left(&mut disputes);
        let mut pauses = Vec::new();
        while pauses.len() < 8 {
            let DisputeStep::Wait(due) = act(&mut disputes, LEFT, now) else { panic!() };
            pauses.push((due - now).as_secs() / 60);
            now = due;
            assert_eq!(act(&mut disputes, LEFT, now), DisputeStep::Write);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 360, 360]);
    }

    #[test]
    fn a_try_that_stands_for_a_minute_ends_the_dispute() {
        let mut disputes = Disputes::default();
        let tried = mk_left(&mut disputes).1 + LOOK_AGAIN;
        assert_eq!(act(&mut disputes, LEFT, tried), DisputeStep::Write);
        assert_eq!(act(&mut disputes, STANDING, tried + at(1)), DisputeStep::Wait(tried + STANDS));
        assert_eq!(disputes.judge(&mk_key(), STANDING, tried + STANDS), DisputeStep::TakeBack);
        assert_eq!(act(&mut disputes, STANDING, tried + STANDS), DisputeStep::TakeBack, "the first one failed");
        assert_eq!(disputes.left().count(), 0);
        assert_eq!(act(&mut disputes, RIGHT, tried + STANDS), DisputeStep::Rest);
    }

    #[test]
    fn an_addon_is_reported_once_whoever_takes_that_away() {
        let mut disputes = Disputes::default();
        let (_, left) = mk_left(&mut disputes);
        assert_eq!(act(&mut disputes, WRONG, left + at(1)), DisputeStep::Wait(left + LOOK_AGAIN));
    }

    #[test]
    fn after_a_restart_what_the_addon_says_counts() {
        let mut disputes = Disputes::default();
        assert_eq!(act(&mut disputes, LEFT, at(5)), DisputeStep::Wait(at(605)));
        assert_eq!(act(&mut disputes, LEFT, at(605)), DisputeStep::Write);
        let mut disputes = Disputes::default();
        assert_eq!(act(&mut disputes, STANDING, at(5)), DisputeStep::Wait(at(65)));
        assert_eq!(act(&mut disputes, STANDING, at(65)), DisputeStep::TakeBack);
    }

    #[test]
    fn what_was_calm_for_ten_minutes_is_put_back_at_once() {
        let mut disputes = Disputes::default();
        mk_left(&mut disputes);
        disputes.forget(&mk_key());
        for second in [0, 6, 18, 42] {
            assert_eq!(act(&mut disputes, WRONG, at(second)), DisputeStep::Write);
        }
        let calm = 42 + 48 + 600;
        assert_eq!(act(&mut disputes, WRONG, at(calm)), DisputeStep::Write);
        assert_eq!(act(&mut disputes, WRONG, at(calm)), DisputeStep::Wait(at(calm + 6)), "and counts as the first");
    }

    #[test]
    fn what_is_calm_or_not_there_is_forgotten() {
        let mut disputes = Disputes::default();
        assert_eq!(act(&mut disputes, WRONG, at(0)), DisputeStep::Write);
        disputes.tidy(at(605), |_| true);
        assert_eq!(disputes.of.len(), 1);
        disputes.tidy(at(606), |_| true);
        assert_eq!(disputes.of.len(), 0);
        let (_, left) = mk_left(&mut disputes);
        disputes.tidy(left + LONGEST, |_| true);
        assert_eq!(disputes.left().count(), 1);
        disputes.tidy(left, |_| false);
        assert_eq!(disputes.left().count(), 0);
    }

    #[test]
    fn what_failed_does_not_count() {
        let mut disputes = Disputes::default();
        for _ in 0..10 {
            assert_eq!(disputes.judge(&mk_key(), WRONG, at(0)), DisputeStep::Write);
        }
        let (_, left) = mk_left(&mut disputes);
        for _ in 0..10 {
            assert_eq!(disputes.judge(&mk_key(), LEFT, left + LOOK_AGAIN), DisputeStep::Write);
        }
    }

    #[test]
    fn human_edits_are_no_dispute_with_at_most_ten_writes_a_minute() {
        let mut disputes = Disputes::default();
        let mut writes = 0;
        for second in 0..60 {
            disputes.people_changed_something();
            writes += u32::from(act(&mut disputes, WRONG, at(second)) == DisputeStep::Write);
        }
        assert_eq!((writes, disputes.left().count()), (10, 0));
    }

    #[test]
    fn a_change_by_people_makes_what_is_left_due() {
        let mut disputes = Disputes::default();
        let (writes, left) = mk_left(&mut disputes);
        disputes.people_changed_something();
        let due = at(*writes.last().unwrap()) + STANDS;
        assert_eq!(act(&mut disputes, LEFT, left), DisputeStep::Wait(due));
        assert_eq!(act(&mut disputes, LEFT, due), DisputeStep::Write);
        assert_eq!(act(&mut disputes, LEFT, due), DisputeStep::Wait(due + at(1_200)));
    }

    #[test]
    fn one_clusters_dispute_is_no_other_clusters() {
        let mut disputes = Disputes::default();
        let (_, now) = mk_left(&mut disputes);
        let other = AddOnKey { cluster: "c2".parse().unwrap(), ..mk_key() };
        assert_eq!(disputes.judge(&other, WRONG, now), DisputeStep::Write);
        disputes.forget(&mk_key());
        assert_eq!(disputes.left().count(), 0);
    }
}
