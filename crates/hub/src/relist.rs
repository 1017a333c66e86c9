//! Turns the lists and events of a watch into news.
//!
//! A watch that was broken begins with a list again. The list does not show what was deleted in between; objects that
//! it lacks are deleted.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// News of a watch.
#[derive(Debug)]
pub(crate) enum News<O, K> {
    /// An object exists: a list shows it, or it was created or changed.
    There(O),
    /// An object was deleted.
    Deleted(O),
    /// A list is complete. It has shown these; all others were deleted.
    Listed(HashSet<K>),
}

/// What the current list has shown so far, if one is under way.
#[derive(Debug)]
pub(crate) struct Relist<K>(Option<HashSet<K>>);

impl<K> Default for Relist<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Eq + Hash> Relist<K> {
    /// The news of an event; none when a list begins. Objects without a key are in no list.
    pub(crate) fn news<O>(&mut self, event: Event<O>, key: impl FnOnce(&O) -> Option<K>) -> Option<News<O, K>> {
        Some(match event {
            Event::Init => {
                self.0 = Some(HashSet::new()); // an earlier list may have ended in the middle
                return None;
            }
            Event::InitApply(object) => {
                self.0.get_or_insert_default().extend(key(&object));
                News::There(object)
            }
            Event::InitDone => News::Listed(self.0.take().unwrap_or_default()),
            Event::Apply(object) => News::There(object),
            Event::Delete(object) => News::Deleted(object),
        })
    }

    /// Whether a list is under way.
    pub(crate) fn is_listing(&self) -> bool {
        self.0.is_some()
    }
}

/// What is kept of the objects of one kind, by name.
#[derive(Debug)]
pub(crate) struct Watched<V> {
    relist: Relist<String>,
    known: BTreeMap<String, V>,
    is_complete: bool,
}

impl<V> Default for Watched<V> {
    fn default() -> Self {
        Self { relist: Relist::default(), known: BTreeMap::new(), is_complete: false }
    }
}

impl<V> Watched<V> {
    /// Applies an event; `read` extracts what is kept of an object. Returns whether an object was deleted, or may have
    /// been deleted before a list.
    pub(crate) fn observe<O: ResourceExt>(&mut self, event: Event<O>, read: impl FnOnce(&O) -> V) -> bool {
        match self.relist.news(event, |object| Some(object.name_any())) {
            None => return false,
            Some(News::There(object)) => {
                self.known.insert(object.name_any(), read(&object));
                return false;
            }
            Some(News::Deleted(object)) => drop(self.known.remove(&object.name_any())),
            Some(News::Listed(shown)) => {
                self.known.retain(|name, _| shown.contains(name));
                self.is_complete = true;
            }
        }
        true
    }

    /// All of them; `None` until they were listed once.
    pub(crate) fn all(&self) -> Option<&BTreeMap<String, V>> {
        self.is_complete.then_some(&self.known)
    }

    /// A kind without objects.
    pub(crate) fn nothing() -> Self {
        Self { is_complete: true, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_list_removes_what_it_lacks_once_it_is_complete() {
        let mut relist = Relist::default();
        let mut known = BTreeMap::new();
        let mut bring = |event: Event<(&'static str, u8)>| {
            match relist.news(event, |(name, _)| (!name.is_empty()).then_some(*name)) {
                Some(News::There((name, version))) => drop(known.insert(name, version)),
                Some(News::Deleted((name, _))) => drop(known.remove(name)),
                Some(News::Listed(shown)) => known.retain(|name, _| shown.contains(name)),
                None => {}
            }
            known.iter().map(|(name, version)| format!("{name}{version}")).collect::<Vec<_>>().join(" ")
        };
        bring(Event::Init);
        bring(Event::InitApply(("a", 1)));
        bring(Event::InitApply(("b", 1)));
        assert_eq!(bring(Event::InitDone), "a1 b1");
        assert_eq!(bring(Event::Apply(("c", 1))), "a1 b1 c1");
        bring(Event::Init);
        bring(Event::InitApply(("a", 2)));
        bring(Event::Init);
        assert_eq!(bring(Event::InitApply(("b", 2))), "a2 b2 c1", "the list is not complete");
        bring(Event::InitApply(("", 1)));
        assert_eq!(bring(Event::InitDone), "b2", "an earlier list that broke off counts for nothing");
        assert_eq!(bring(Event::Delete(("b", 2))), "");
    }
}
