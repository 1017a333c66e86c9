//! The conditions about certificates: each is written when nothing else is to be written into its addon, at a bounded
//! rate, so that an enrolment of thousands is not slowed by the reports about it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use kube::api::DynamicObject;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::{RegistrationWriter, reverts};
use crate::certifications::Certifications;
use crate::lease::Leads;
use crate::registrations::work::{self, Patch};
use addon_signer_api::ocm::{self, AddOnApi};
use addon_signer_api::registrations::{CertificateCondition, say_certificate};
use addon_signer_core::certification::Certification;
use addon_signer_core::doubling::RevertBackoff;
use addon_signer_core::identity::AddOnKey;

/// The shortest time between two addons: each costs a read and a write.
const PACE: Duration = Duration::from_millis(50);

/// The addons whose conditions may have to be written.
pub(super) struct CertificateReports {
    states: Certifications,
    queue: VecDeque<AddOnKey>,
    queued: HashSet<AddOnKey>,
    /// Those that were taken from the queue and are being read.
    turns: HashSet<AddOnKey>,
    next: Instant,
    /// What was written last; another program may change it back.
    written: HashMap<AddOnKey, (Option<Certification>, RevertBackoff<Instant>)>,
}

impl CertificateReports {
    pub(super) fn new(states: Certifications) -> Self {
        Self {
            states,
            queue: VecDeque::new(),
            queued: HashSet::new(),
            turns: HashSet::new(),
            next: Instant::now(),
            written: HashMap::new(),
        }
    }

    fn put(&mut self, key: &AddOnKey) {
        if self.queued.insert(key.clone()) {
            self.queue.push_back(key.clone());
        }
    }

    /// Waits for the turn of the next addon, which must then be read; `None` if all addons must be listed. If this is
    /// dropped, nothing is lost.
    pub(super) async fn next(&mut self) -> Option<AddOnKey> {
        loop {
            tokio::select! {
                changed = self.states.changed() => {
                    changed.addons.iter().for_each(|key| self.put(key));
                    if changed.all {
                        return None;
                    }
                }
                () = sleep_until(self.next), if !self.queue.is_empty() => {
                    if let Some(key) = self.queue.pop_front() {
                        self.queued.remove(&key);
                        self.turns.insert(key.clone());
                        self.next = Instant::now() + PACE;
                        return Some(key);
                    }
                }
            }
        }
    }

    /// Ends the turn of an addon. Returns whether it had one.
    pub(super) fn end_turn(&mut self, key: &AddOnKey) -> bool {
        self.turns.remove(key)
    }

    pub(super) fn forget(&mut self, key: &AddOnKey) {
        self.written.remove(key);
    }

    /// How long to wait until the condition may be written.
    fn pause(&self, key: &AddOnKey, state: &Option<Certification>) -> Duration {
        let known = self.written.get(key).filter(|(last, _)| last == state);
        let due = known.and_then(|(_, reverts)| reverts.due());
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()))
    }

    /// Notes that the condition is written.
    fn note(&mut self, key: &AddOnKey, state: &Option<Certification>) {
        let now = Instant::now();
        match self.written.get_mut(key).filter(|(last, _)| last == state) {
            Some((_, reverts)) => drop(reverts.wrote(now)),
            None => {
                let mut reverts = RevertBackoff::new(reverts::SHORTEST, reverts::LONGEST);
                reverts.wrote(now);
                self.written.insert(key.clone(), (state.clone(), reverts));
            }
        }
    }
}

impl RegistrationWriter {
    /// Writes the condition of an addon whose registrations are as they should be, if it differs and its turn has come.
    pub(super) fn report_certificate(
        &mut self,
        leads: &Leads,
        (key, api): (&AddOnKey, AddOnApi),
        object: &DynamicObject,
        is_turn: bool,
    ) {
        let Some(state) = self.reports.states.of(key).filter(|_| !ocm::is_being_deleted(object)) else { return };
        let wanted = state.as_ref().map(|state| CertificateCondition {
            holds: state.is_certified(),
            reason: state.reason(),
            message: state.message(),
        });
        let now = self.links.clock.now().to_string();
        let status = object.data.get("status").unwrap_or(&Value::Null);
        let Some(status) = say_certificate(status, wanted.as_ref(), &now) else { return };
        let pause = self.reports.pause(key, &state);
        if !pause.is_zero() {
            return self.later.put(key, pause);
        }
        if !is_turn {
            return self.reports.put(key);
        }
        self.reports.note(key, &state);
        self.at_work.insert(key.clone(), false);
        let version = object.metadata.resource_version.clone();
        let addons = self.target.addons(key, api);
        self.tasks.spawn(work::write(leads.clone(), addons, key.clone(), Patch::Certificate, version, status));
    }
}

#[cfg(test)]
mod tests {
    use addon_signer_core::timestamp::Timestamp;

    use super::*;

    fn key(name: &str) -> AddOnKey {
        AddOnKey { cluster: name.parse().unwrap(), addon: "telemetry".parse().unwrap() }
    }

    #[tokio::test(start_paused = true)]
    async fn each_addon_has_its_turn_once_and_at_the_pace() {
        let states = Certifications::default();
        let mut reports = CertificateReports::new(states.clone());
        states.set(HashMap::new(), true);
        assert_eq!(reports.next().await, None, "nothing was known before");
        states.set(["a", "b"].map(|name| (key(name), Certification::NoCsr)).into(), true);
        let began = Instant::now();
        let mut turns = [reports.next().await, reports.next().await];
        turns.sort();
        assert_eq!((turns, began.elapsed()), ([Some(key("a")), Some(key("b"))], PACE));
        assert!(reports.end_turn(&key("a")));
        assert!(!reports.end_turn(&key("a")));
        reports.put(&key("c"));
        reports.put(&key("c"));
        assert_eq!(reports.next().await, Some(key("c")));
        assert!(tokio::time::timeout(10 * PACE, reports.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_state_that_was_changed_back_waits() {
        let mut reports = CertificateReports::new(Certifications::default());
        let expired = Some(Certification::Expired(Timestamp::from_unix(1)));
        for state in [None, Some(Certification::NoCsr), expired.clone()] {
            assert_eq!(reports.pause(&key("a"), &state), Duration::ZERO);
            reports.note(&key("a"), &state);
        }
        assert_eq!(reports.pause(&key("a"), &expired), reverts::SHORTEST);
        tokio::time::advance(reverts::SHORTEST).await;
        assert_eq!(reports.pause(&key("a"), &expired), Duration::ZERO);
        reports.note(&key("a"), &expired);
        assert_eq!(reports.pause(&key("a"), &expired), 2 * reverts::SHORTEST);
    }
}
