//! Addons, and the ManifestWorks that bring them the trust bundle, as the watches have shown them.

use std::collections::HashMap;
use std::sync::Arc;

use kube::api::DynamicObject;
use parking_lot::Mutex;
use tokio::sync::Notify;

use addon_signer_api::manifest_work::{Placement, Work, key_of};
use addon_signer_api::ocm;
use addon_signer_core::identity::AddOnKey;

/// Shared by the watch of addons, the watch of ManifestWorks and the task that writes ManifestWorks.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<Shared>);

#[derive(Default)]
struct Shared {
    objects: Mutex<KnownObjects>,
    changed: Notify,
}

/// The objects of both kinds.
#[derive(Default)]
pub(super) struct KnownObjects {
    pub(super) addons: Listed<Placement>,
    pub(super) works: Listed<Work>,
    /// The work that is being created, until a watch or a list may have shown its deletion.
    making: Option<AddOnKey>,
}

impl Known {
    /// Reads or changes the objects. The caller reports changes.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut KnownObjects) -> T) -> T {
        look(&mut self.0.objects.lock())
    }

    pub(super) fn tell(&self) {
        self.0.changed.notify_one();
    }

    /// Waits for news since this was last called.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut KnownObjects) -> bool) {
        if self.with(change) {
            self.tell();
        }
    }

    /// Notes that an addon exists.
    pub(crate) fn put_addon(&self, addon: &DynamicObject) {
        if let Some(key) = ocm::addon_key(addon) {
            self.change(|known| known.addons.put(key, Placement::read(addon)));
        }
    }

    /// Notes that an addon was deleted.
    pub(crate) fn remove_addon(&self, key: &AddOnKey) {
        self.change(|known| known.addons.remove(key));
    }

    /// Notes that a list of all addons is complete.
    pub(crate) fn complete_addons(&self, is_shown: impl Fn(&AddOnKey) -> bool) {
        self.change(|known| known.addons.complete(is_shown));
    }

    pub(super) fn put_work(&self, object: &DynamicObject) {
        match Work::read(object) {
            Some((key, work)) => self.change(|known| known.works.put(key, work)),
            None => self.remove_work(object), // another client has changed its label
        }
    }

    /// Notes that the hub creates a work. [`Known::put_answer`] follows.
    pub(super) fn make_work(&self, key: &AddOnKey) {
        self.with(|known| known.making = Some(key.clone()));
    }

    /// Notes the outcome of a write to the work that was known in this version, or not at all. What the watch has shown
    /// since stays: a late response is older, and no event would correct it.
    pub(super) fn put_answer(&self, before: Option<&str>, object: &DynamicObject) {
        if let Some((key, work)) = Work::read(object) {
            self.change(|known| {
                let is_as_before = known.works.get(&key).map(|work| &*work.version) == before;
                let has_gone = before.is_none() && known.making.take() != Some(key.clone());
                is_as_before && !has_gone && known.works.put(key, work)
            });
        }
    }

    /// Notes that, by the API server's response, the work that was known in this version does not exist.
    pub(super) fn put_absence(&self, key: &AddOnKey, before: &str) {
        self.change(|known| {
            let is_as_before = known.works.get(key).is_some_and(|work| &*work.version == before);
            is_as_before && known.works.remove(key)
        });
    }

    pub(super) fn remove_work(&self, object: &DynamicObject) {
        if let Some(key) = key_of(object) {
            self.change(|known| {
                known.making.take_if(|making| *making == key);
                known.works.remove(&key)
            });
        }
    }

    /// Notes that a list of all works is complete.
    pub(super) fn complete_works(&self, is_shown: impl Fn(&AddOnKey) -> bool) {
        self.change(|known| {
            known.making = None;
            known.works.complete(is_shown)
        });
    }

    /// Forgets the ManifestWorks, because the watch has stopped.
    pub(super) fn forget_works(&self) {
        self.with(|known| (known.works, known.making) = (Listed::default(), None));
    }
}

/// Objects of one kind.
pub(super) struct Listed<T> {
    known: HashMap<AddOnKey, T>,
    is_complete: bool,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), is_complete: false }
    }
}

impl<T: PartialEq> Listed<T> {
    /// Returns whether that is news.
    fn put(&mut self, key: AddOnKey, object: T) -> bool {
        let differs = self.get(&key) != Some(&object);
        self.known.insert(key, object);
        differs
    }

    fn remove(&mut self, key: &AddOnKey) -> bool {
        self.known.remove(key).is_some()
    }

    /// Forgets what a complete list did not show.
    fn complete(&mut self, is_shown: impl Fn(&AddOnKey) -> bool) -> bool {
        let before = self.known.len();
        self.known.retain(|key, _| is_shown(key));
        !std::mem::replace(&mut self.is_complete, true) || before != self.known.len()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn get(&self, key: &AddOnKey) -> Option<&T> {
        self.known.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&AddOnKey, &T)> {
        self.known.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_api::manifest_work::body;
    use addon_signer_api::ocm::AddOnApi;

    fn key(cluster: &str) -> AddOnKey {
        AddOnKey { cluster: cluster.parse().unwrap(), addon: "telemetry".parse().unwrap() }
    }

    #[test]
    fn list_drops_what_it_lacks_and_keeps_what_came_meanwhile() {
        let mut listed = Listed::default();
        assert!(listed.put(key("c1"), 1));
        assert!(listed.put(key("c2"), 1));
        assert!(!listed.is_complete());
        assert!(listed.complete(|_| true), "it is complete now");
        assert!(listed.is_complete());
        assert!(!listed.put(key("c1"), 1), "it is as it was");
        assert!(listed.put(key("c3"), 1));
        assert!(listed.put(key("c1"), 2));
        assert_eq!(listed.get(&key("c2")), Some(&1), "the list is not complete");
        assert!(listed.complete(|shown| *shown != key("c2")));
        let mut rest: Vec<_> = listed.iter().map(|(key, object)| (key.cluster.as_str(), *object)).collect();
        rest.sort_unstable();
        assert_eq!(rest, [("c1", 2), ("c3", 1)]);
        assert!(listed.remove(&key("c3")));
        assert!(!listed.remove(&key("c3")));
        assert!(!listed.complete(|_| true), "nothing is missing");
    }

    fn mk_work() -> DynamicObject {
        let mut work = body(&key("c1"), AddOnApi::V1Alpha1, "u", "agents", "PEM");
        work["metadata"]["resourceVersion"] = "8".into();
        serde_json::from_value(work).unwrap()
    }

    #[test]
    fn the_answer_of_a_create_brings_back_nothing_that_has_gone() {
        let mut another = mk_work();
        another.metadata.namespace = Some("c2".to_owned());
        let knows_it_after = |meanwhile: &dyn Fn(&Known), after: &dyn Fn(&Known)| {
            let known = Known::default();
            known.complete_works(|_| false);
            known.make_work(&key("c1"));
            meanwhile(&known);
            known.put_answer(None, &mk_work());
            after(&known);
            known.with(|known| known.works.get(&key("c1")).is_some())
        };
        let nothing = |_: &Known| ();
        assert!(knows_it_after(&nothing, &nothing));
        assert!(knows_it_after(&|known| known.remove_work(&another), &nothing), "another has gone");
        let came_and_went = |known: &Known| {
            known.put_work(&mk_work());
            known.remove_work(&mk_work());
        };
        assert!(!knows_it_after(&came_and_went, &nothing));
        let list = |known: &Known| known.complete_works(|_| false);
        assert!(!knows_it_after(&list, &nothing), "the list does not show it");
        assert!(!knows_it_after(&nothing, &list), "the same while it goes on");
    }

    #[test]
    fn what_was_not_there_in_an_older_version_may_be_there_now() {
        let known = Known::default();
        known.put_work(&mk_work());
        let is_there = || known.with(|known| known.works.get(&key("c1")).is_some());
        known.put_absence(&key("c1"), "7");
        assert!(is_there());
        known.put_absence(&key("c1"), "8");
        assert!(!is_there());
    }
}
