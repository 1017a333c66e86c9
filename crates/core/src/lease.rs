//! Decides what to do about the Lease: a function of what this hub saw, what it holds, and its own monotonic clock. The
//! time of day plays no part, because the clocks of other machines are not trusted, as in client-go's leader election.

use std::time::Duration;

pub use crate::names::LEASE_NAME;

/// How a leader lost the Lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// Another process holds the Lease.
    #[error("{0} holds the Lease {LEASE_NAME} now")]
    Displaced(String),
    /// The Lease has no holder, or transitions that the leader did not write.
    #[error("the Lease {LEASE_NAME} was changed by something that does not hold it")]
    Changed,
    /// The Lease was deleted, so another hub may have held it since.
    #[error("the Lease {LEASE_NAME} was deleted")]
    Deleted,
    /// etcd was restored from a backup: watches stay blind until it has caught up.
    #[error("the version of the Lease {LEASE_NAME} went backwards: etcd was restored from a backup")]
    Restored,
    /// The task that renews the Lease ended.
    #[error("the task that renews the Lease {LEASE_NAME} ended")]
    Abandoned,
}

/// The Lease as the API server returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `holderIdentity`; `None` where it is empty.
    pub holder: Option<String>,
    /// `leaseTransitions`.
    pub transitions: u32,
    /// `leaseDurationSeconds`: how long the Lease is valid without a renewal.
    pub duration: Duration,
    /// `resourceVersion`: every renewal changes it.
    pub version: String,
}

/// A Lease, and how long it has been unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenLease {
    /// The Lease.
    pub record: LeaseRecord,
    /// When this version was first seen, by this hub's own clock.
    pub since: Duration,
}

impl SeenLease {
    /// Notes what was read at `now`. If the version is the same as before, the time stays as it is.
    pub fn follow(before: Option<Self>, record: LeaseRecord, now: Duration) -> Self {
        match before {
            Some(before) if before.record.version == record.version => before,
            _ => Self { record, since: now },
        }
    }
}

/// The most changes of holder that there may have been.
const PLAUSIBLE: u32 = 1 << 30;
/// How long another hub is believed to hold the Lease without a renewal, whatever the Lease says.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// The newest `resourceVersion` that this hub has seen of the Lease.
///
/// The versions of one etcd are numbers that only grow (Kubernetes, KEP-5504). After a restore from a backup they go
/// back. A watch that began before the restore gets nothing until they have grown past its own version, and never gets
/// what changed below that; only a restart of the process lists everything again.
#[derive(Debug, Default)]
pub struct NewestVersion(u64);

impl NewestVersion {
    /// Notes a version that the API server has returned. One that is not a number is ignored.
    ///
    /// # Errors
    /// [`Loss::Restored`] if it is older than the newest.
    pub fn note(&mut self, version: &str) -> Result<(), Loss> {
        let Ok(version) = version.parse::<u64>() else { return Ok(()) };
        if version < self.0 {
            return Err(Loss::Restored);
        }
        self.0 = version;
        Ok(())
    }
}

/// This hub's side of the Lease.
#[derive(Debug, Clone, Copy)]
pub struct Ours<'a> {
    /// The holder's name, unique to this start of the process.
    pub identity: &'a str,
    /// The epoch in which this hub has led; `None` if it never did.
    pub epoch: Option<u32>,
    /// The largest epoch known to have been used, or 0. After a deletion the Lease no longer records earlier epochs.
    pub floor: u32,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAction {
    /// There is no Lease: create it with this hub as its holder.
    Create {
        /// The epoch to begin.
        epoch: u32,
    },
    /// The Lease has no holder, or its holder has not renewed it in time: take it.
    TakeOver {
        /// The epoch to begin.
        epoch: u32,
    },
    /// This hub holds the Lease: renew it.
    Renew {
        /// The epoch that continues.
        epoch: u32,
    },
    /// Another hub holds the Lease: wait.
    Wait {
        /// The identity of that hub.
        holder: String,
    },
    /// This hub has lost the Lease: stop.
    Stop(Loss),
}

/// The one thing to do at `now`, by the clock of [`SeenLease::since`].
///
/// A hub that has lost the Lease never takes it again: it exits, and after a restart it is a new holder with a new
/// epoch.
pub fn step(seen: Option<&SeenLease>, ours: Ours<'_>, now: Duration) -> LeaseAction {
    match (seen, ours.epoch) {
        (None, Some(_)) => LeaseAction::Stop(Loss::Deleted),
        (None, None) => LeaseAction::Create { epoch: after(0, ours) },
        (Some(seen), Some(epoch)) => keep(&seen.record, ours, epoch),
        (Some(seen), None) => acquire(seen, ours, now),
    }
}

fn keep(record: &LeaseRecord, ours: Ours<'_>, epoch: u32) -> LeaseAction {
    match &record.holder {
        Some(holder) if holder != ours.identity => LeaseAction::Stop(Loss::Displaced(holder.clone())),
        Some(_) if record.transitions == epoch => LeaseAction::Renew { epoch },
        Some(_) | None => LeaseAction::Stop(Loss::Changed),
    }
}

fn acquire(seen: &SeenLease, ours: Ours<'_>, now: Duration) -> LeaseAction {
    let record = &seen.record;
    match &record.holder {
        // Only this hub writes this identity: it took the Lease, but the response was lost.
        Some(holder) if holder == ours.identity && record.transitions <= PLAUSIBLE => {
            LeaseAction::Renew { epoch: record.transitions }
        }
        Some(holder) if holder != ours.identity && now < seen.since.saturating_add(record.duration.min(LONGEST)) => {
            LeaseAction::Wait { holder: holder.clone() }
        }
        Some(_) | None => LeaseAction::TakeOver { epoch: after(record.transitions, ours) },
    }
}

/// An epoch that is larger than every earlier one. The field has 31 bits, which last for 68 years at one change of
/// holder per second. A number in the upper half was written by something else. It is ignored, because the ledger would
/// never forget it: the floor shows which epochs there were.
fn after(transitions: u32, ours: Ours<'_>) -> u32 {
    let plausible = if transitions > PLAUSIBLE { 0 } else { transitions };
    plausible.max(ours.floor).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn mk_seen(holder: Option<&str>, transitions: u32) -> SeenLease {
        let holder = holder.map(str::to_owned);
        let record = LeaseRecord { holder, transitions, duration: 15 * SECOND, version: "8".to_owned() };
        SeenLease { record, since: 100 * SECOND }
    }

    fn mk_ours(epoch: Option<u32>) -> Ours<'static> {
        Ours { identity: "us", epoch, floor: 0 }
    }

    fn decide(holder: Option<&str>, transitions: u32, epoch: Option<u32>, at: u32) -> LeaseAction {
        step(Some(&mk_seen(holder, transitions)), mk_ours(epoch), at * SECOND)
    }

    #[test]
    fn a_version_that_goes_back_is_that_of_a_backup() {
        let mut newest = NewestVersion::default();
        for version in ["8", "8", "10", "", "opaque"] {
            assert_eq!(newest.note(version), Ok(()), "{version}");
        }
        assert_eq!(newest.note("9"), Err(Loss::Restored), "as a number, not as a text");
    }

    #[test]
    fn a_lease_that_does_not_exist_is_created() {
        assert_eq!(step(None, mk_ours(None), SECOND), LeaseAction::Create { epoch: 1 });
    }

    #[test]
    fn a_deleted_lease_does_not_lead_to_an_epoch_that_was_used() {
        let ours = Ours { floor: 41, ..mk_ours(None) };
        assert_eq!(step(None, ours, SECOND), LeaseAction::Create { epoch: 42 });
        assert_eq!(step(Some(&mk_seen(None, 3)), ours, SECOND), LeaseAction::TakeOver { epoch: 42 });
        assert_eq!(step(Some(&mk_seen(None, 50)), ours, SECOND), LeaseAction::TakeOver { epoch: 51 });
    }

    #[test]
    fn a_number_that_nobody_reached_by_taking_the_lease_is_ignored() {
        let highest = i32::MAX.unsigned_abs();
        let ours = Ours { floor: 41, ..mk_ours(None) };
        for holder in [None, Some("us")] {
            let action = step(Some(&mk_seen(holder, highest)), ours, 100 * SECOND);
            assert_eq!(action, LeaseAction::TakeOver { epoch: 42 }, "{holder:?}");
        }
        // The last one that is believed leaves as many again.
        assert_eq!(decide(None, 1 << 30, None, 100), LeaseAction::TakeOver { epoch: (1 << 30) + 1 });
        let ours = Ours { floor: (1 << 30) + 1, ..ours };
        let action = step(Some(&mk_seen(None, highest)), ours, 100 * SECOND);
        assert_eq!(action, LeaseAction::TakeOver { epoch: (1 << 30) + 2 });
    }

    #[test]
    fn no_holder_counts_for_more_than_an_hour() {
        let mut seen = mk_seen(Some("them"), 6);
        seen.record.duration = u32::MAX * SECOND;
        assert!(matches!(step(Some(&seen), mk_ours(None), 3_699 * SECOND), LeaseAction::Wait { .. }));
        assert_eq!(step(Some(&seen), mk_ours(None), 3_700 * SECOND), LeaseAction::TakeOver { epoch: 7 });
    }

    #[test]
    fn a_lease_that_was_given_back_is_taken_at_once() {
        assert_eq!(decide(None, 6, None, 100), LeaseAction::TakeOver { epoch: 7 });
    }

    #[test]
    fn holder_counts_for_full_duration_since_last_sign_of_life() {
        assert_eq!(decide(Some("them"), 6, None, 100), LeaseAction::Wait { holder: "them".to_owned() });
        assert_eq!(decide(Some("them"), 6, None, 114), LeaseAction::Wait { holder: "them".to_owned() });
        assert_eq!(decide(Some("them"), 6, None, 115), LeaseAction::TakeOver { epoch: 7 });
    }

    #[test]
    fn a_renewal_starts_the_wait_anew_and_the_same_version_does_not() {
        let first = mk_seen(Some("them"), 6);
        let again = SeenLease::follow(Some(first.clone()), first.record.clone(), 110 * SECOND);
        assert_eq!(again.since, 100 * SECOND);
        let renewed = LeaseRecord { version: "9".to_owned(), ..first.record.clone() };
        let renewed = SeenLease::follow(Some(first), renewed, 110 * SECOND);
        assert_eq!(renewed.since, 110 * SECOND);
        assert_eq!(step(Some(&renewed), mk_ours(None), 124 * SECOND), LeaseAction::Wait { holder: "them".to_owned() });
    }

    #[test]
    fn our_own_lease_is_renewed_however_late() {
        assert_eq!(decide(Some("us"), 7, Some(7), 101), LeaseAction::Renew { epoch: 7 });
        assert_eq!(decide(Some("us"), 7, Some(7), 999), LeaseAction::Renew { epoch: 7 });
    }

    #[test]
    fn a_lease_that_we_took_without_hearing_of_it_is_ours() {
        assert_eq!(decide(Some("us"), 7, None, 101), LeaseAction::Renew { epoch: 7 });
    }

    #[test]
    fn who_led_and_finds_another_stops() {
        assert_eq!(decide(Some("them"), 8, Some(7), 101), LeaseAction::Stop(Loss::Displaced("them".to_owned())));
        assert_eq!(decide(Some("them"), 8, Some(7), 999), LeaseAction::Stop(Loss::Displaced("them".to_owned())));
        assert_eq!(decide(None, 8, Some(7), 101), LeaseAction::Stop(Loss::Changed));
        assert_eq!(decide(Some("us"), 8, Some(7), 101), LeaseAction::Stop(Loss::Changed));
        assert_eq!(step(None, mk_ours(Some(7)), SECOND), LeaseAction::Stop(Loss::Deleted));
    }
}
