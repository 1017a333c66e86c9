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
    /// `None` until all are known.
    states: Mutex<Option<HashMap<AddOnKey, Certification>>>,
    /// Those whose state has changed since the writer asked.
    changed: Mutex<Vec<AddOnKey>>,
    news: Notify,
}

impl Certifications {
    /// Replaces the states of all addons.
    pub(crate) fn set(&self, now: HashMap<AddOnKey, Certification>) {
        let mut states = self.0.states.lock();
        let before = states.take().unwrap_or_default();
        let differing = now.iter().filter(|(key, state)| before.get(*key) != Some(*state));
        let deleted = before.keys().filter(|key| !now.contains_key(*key));
        let changed: Vec<AddOnKey> = differing.map(|(key, _)| key).chain(deleted).cloned().collect();
        *states = Some(now);
        drop(states);
        if !changed.is_empty() {
            self.0.changed.lock().extend(changed);
            self.0.news.notify_one();
        }
    }

    /// The states of all addons, as far as they are known.
    pub(crate) fn all(&self) -> HashMap<AddOnKey, Certification> {
        self.0.states.lock().clone().unwrap_or_default()
    }

    /// The state of an addon; the inner `None` means that it has no AddOnSigner, the outer one that nothing is known
    /// yet.
    pub(super) fn of(&self, key: &AddOnKey) -> Option<Option<Certification>> {
        self.0.states.lock().as_ref().map(|states| states.get(key).cloned())
    }

    /// Waits for addons whose state has changed, and takes them. If this is dropped, nothing is lost.
    pub(super) async fn changed(&self) -> Vec<AddOnKey> {
        self.0.news.notified().await;
        std::mem::take(&mut self.0.changed.lock())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn changes_are_reported_once_and_missing_addons_too() {
        let key = |name: &str| AddOnKey { cluster: name.parse().unwrap(), addon: "t".parse().unwrap() };
        let states = Certifications::default();
        let changed = || {
            let mut changed = states.changed().now_or_never().unwrap_or_default();
            changed.sort();
            changed
        };
        assert_eq!(states.of(&key("a")), None);
        let expired = Certification::Expired(addon_signer_core::timestamp::Timestamp::from_unix(1));
        states.set(HashMap::from([(key("a"), Certification::NoCsr), (key("b"), Certification::NoCsr)]));
        assert_eq!(changed(), [key("a"), key("b")]);
        states.set(HashMap::from([(key("a"), expired.clone()), (key("c"), Certification::NoCsr)]));
        assert_eq!(changed(), [key("a"), key("b"), key("c")]);
        assert_eq!((states.of(&key("a")), states.of(&key("b"))), (Some(Some(expired)), Some(None)));
        assert_eq!(changed(), []);
    }
}
