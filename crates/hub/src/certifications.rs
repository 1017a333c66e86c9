//! Which addons on which clusters have certificates, as one task finds out and the writer of ManagedClusterAddOns
//! reports in their conditions.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use addon_signer_core::certification::Certification;
use addon_signer_core::identity::AddOnKey;

/// The states of all addons that have an AddOnSigner. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certifications(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// `None` until they are known.
    known: Mutex<Option<KnownStates>>,
    changed: Mutex<ChangedStates>,
    news: Notify,
}

#[derive(Debug)]
struct KnownStates {
    states: HashMap<AddOnKey, Certification>,
    /// Whether an addon that is not among them has no AddOnSigner.
    is_whole: bool,
}

/// What has changed since the writer asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChangedStates {
    /// Addons whose state has changed.
    pub(super) addons: Vec<AddOnKey>,
    /// Whether any other addon may have a report that is no longer true.
    pub(super) all: bool,
}

impl Certifications {
    /// Replaces the states of all addons. `is_whole`: whether all others have no AddOnSigner.
    pub(crate) fn set(&self, now: HashMap<AddOnKey, Certification>, is_whole: bool) {
        let (mut known, mut changed) = (self.0.known.lock(), self.0.changed.lock());
        match &*known {
            // A list of all addons finds those that need another report: after a restart these are few.
            Some(before) if before.is_whole || !is_whole => {
                let differing = now.iter().filter(|(key, state)| before.states.get(*key) != Some(*state));
                let deleted = before.states.keys().filter(|key| !now.contains_key(*key));
                changed.addons.extend(differing.map(|(key, _)| key).chain(deleted).cloned());
            }
            _ => changed.all = true,
        }
        *known = Some(KnownStates { states: now, is_whole });
        if *changed != ChangedStates::default() {
            self.0.news.notify_one();
        }
    }

    /// The states of all addons, as far as they are known.
    pub(crate) fn all(&self) -> HashMap<AddOnKey, Certification> {
        self.0.known.lock().as_ref().map(|known| known.states.clone()).unwrap_or_default()
    }

    /// The state of an addon; the inner `None` means that it has no AddOnSigner, the outer one that nothing is known.
    pub(super) fn of(&self, key: &AddOnKey) -> Option<Option<Certification>> {
        let known = self.0.known.lock();
        let known = known.as_ref()?;
        let state = known.states.get(key).cloned();
        (state.is_some() || known.is_whole).then_some(state)
    }

    /// Waits for changes and takes them. If this is dropped, nothing is lost.
    pub(super) async fn changed(&self) -> ChangedStates {
        self.0.news.notified().await;
        std::mem::take(&mut self.0.changed.lock())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn key(name: &str) -> AddOnKey {
        AddOnKey { cluster: name.parse().unwrap(), addon: "t".parse().unwrap() }
    }

    fn changed(states: &Certifications) -> ChangedStates {
        let mut changed = states.changed().now_or_never().unwrap_or_default();
        changed.addons.sort();
        changed
    }

    #[test]
    fn changes_are_reported_once_and_missing_addons_too() {
        let states = Certifications::default();
        assert_eq!(states.of(&key("a")), None);
        let expired = Certification::Expired(addon_signer_core::timestamp::Timestamp::from_unix(1));
        states.set(HashMap::from([(key("a"), Certification::NoCsr), (key("b"), Certification::NoCsr)]), true);
        assert_eq!(changed(&states), ChangedStates { addons: Vec::new(), all: true }, "nothing was known");
        states.set(HashMap::from([(key("a"), expired.clone()), (key("c"), Certification::NoCsr)]), true);
        let all = vec![key("a"), key("b"), key("c")];
        assert_eq!(changed(&states), ChangedStates { addons: all, all: false });
        assert_eq!((states.of(&key("a")), states.of(&key("b"))), (Some(Some(expired)), Some(None)));
        assert_eq!(changed(&states), ChangedStates::default());
    }

    #[test]
    fn while_not_all_signers_are_known_no_report_is_removed() {
        let states = Certifications::default();
        states.set(HashMap::new(), false);
        changed(&states);
        assert_eq!(states.of(&key("a")), None);
        states.set(HashMap::new(), true);
        assert!(changed(&states).all);
        assert_eq!(states.of(&key("a")), Some(None));
    }
}
