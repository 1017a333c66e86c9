//! Objects, the revision counter and the log of changes that watches replay. Pure: no clock, no I/O.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::auth::User;
use super::fields;
use super::resources::{RESOURCES, Resource};

/// How many changes are kept per resource. A watch that starts before the oldest gets 410 and lists again, as with
/// etcd's compaction. It is large enough for a watch to follow thousands of CSRs without a gap.
pub(super) const LOG_LIMIT: usize = 8192;

/// A stored object; shared between the store, the log and the watches.
pub(super) type Object = Arc<Value>;

/// The key of an object in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The plural of the resource. The two versions of events share one.
    pub(super) plural: &'static str,
    /// Empty for cluster-scoped resources.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    /// The key of a whole object, if its kind is served.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let text = |path| fields::text(object, path);
        let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
        let is_it = |it: &&Resource| it.group == group && it.version == version && it.kind == text("kind");
        let plural = RESOURCES.iter().find(is_it)?.plural;
        let (namespace, name) = (text("metadata.namespace").to_owned(), text("metadata.name").to_owned());
        Some(Self { plural, namespace, name })
    }
}

/// One write, as watches replay it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) namespace: String,
    /// The object before the write; `None` if the write created it.
    pub(super) before: Option<Object>,
    /// The object after the write. For a deletion it is the last state with the deletion's revision.
    pub(super) object: Object,
    pub(super) deleted: bool,
}

/// A watch asked for changes that are no longer kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compacted {
    /// The oldest revision from which a watch may start.
    pub(super) oldest: u64,
}

#[derive(Debug, Default, Clone)]
struct Log {
    changes: VecDeque<Change>,
    /// The revision of the newest change that was dropped.
    dropped: u64,
}

/// All objects with the log of their changes.
#[derive(Debug, Default, Clone)]
pub(super) struct Store {
    revision: u64,
    objects: BTreeMap<Key, Object>,
    logs: HashMap<&'static str, Log>,
}

impl Store {
    /// The revision of the last write, which is the `resourceVersion` of a list.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    /// The objects of a resource in order of namespace and name. `None` means all namespaces.
    pub(super) fn list<'a>(
        &'a self,
        plural: &'static str,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Object)> {
        let start = Key { plural, namespace: namespace.unwrap_or("").to_owned(), name: String::new() };
        self.objects
            .range(start..)
            .take_while(move |(key, _)| key.plural == plural)
            .take_while(move |(key, _)| namespace.is_none_or(|ns| key.namespace == ns))
    }

    /// The keys of all objects in a namespace.
    pub(super) fn keys_in(&self, namespace: &str) -> Vec<Key> {
        self.objects.keys().filter(|key| key.namespace == namespace).cloned().collect()
    }

    /// Stores an object with the next revision.
    pub(super) fn put(&mut self, key: Key, mut object: Value) -> Object {
        self.revision += 1;
        fields::set(&mut object, "metadata.resourceVersion", self.revision.to_string());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.record(key, before, Arc::clone(&object), false);
        object
    }

    /// Removes an object; returns its last state with the revision of the removal.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Object> {
        let before = self.objects.remove(key)?;
        self.revision += 1;
        let mut last = Value::clone(&before);
        fields::set(&mut last, "metadata.resourceVersion", self.revision.to_string());
        let last = Arc::new(last);
        self.record(key.clone(), Some(before), Arc::clone(&last), true);
        Some(last)
    }

    /// The changes of a resource after a revision, oldest first.
    ///
    /// # Errors
    /// [`Compacted`] if some of them were dropped.
    pub(super) fn since(
        &self,
        plural: &'static str,
        revision: u64,
    ) -> Result<impl Iterator<Item = &Change>, Compacted> {
        let log = self.logs.get(plural);
        if let Some(dropped) = log.map(|log| log.dropped)
            && revision < dropped
        {
            return Err(Compacted { oldest: dropped });
        }
        Ok(log.into_iter().flat_map(move |log| {
            let first = log.changes.partition_point(|c| c.revision <= revision);
            log.changes.range(first..)
        }))
    }

    fn record(&mut self, key: Key, before: Option<Object>, object: Object, deleted: bool) {
        let log = self.logs.entry(key.plural).or_default();
        log.changes.push_back(Change { revision: self.revision, namespace: key.namespace, before, object, deleted });
        if log.changes.len() > LOG_LIMIT
            && let Some(oldest) = log.changes.pop_front()
        {
            log.dropped = oldest.revision;
        }
    }
}

/// The time and the random parts of a write.
#[derive(Debug, Clone)]
pub(super) struct Stamp {
    /// RFC 3339.
    pub(super) now: String,
    /// The uid of an object that the write creates.
    pub(super) uid: String,
    /// The suffix that is appended to `generateName`.
    pub(super) suffix: String,
}

/// The caller and the target of a write.
#[derive(Debug)]
pub(super) struct Write<'a> {
    pub(super) resource: &'static Resource,
    pub(super) subresource: Option<&'a str>,
    /// Empty for cluster-scoped resources.
    pub(super) namespace: &'a str,
    pub(super) user: &'a User,
    pub(super) stamp: Stamp,
    pub(super) dry_run: bool,
    /// Whether unknown fields are refused (`fieldValidation=Strict`).
    pub(super) strict: bool,
}

impl Write<'_> {
    pub(super) fn key(&self, name: &str) -> Key {
        Key { plural: self.resource.plural, namespace: self.namespace.to_owned(), name: name.to_owned() }
    }
}

/// The key of a namespace.
pub(super) fn namespace_key(name: &str) -> Key {
    Key { plural: "namespaces", namespace: String::new(), name: name.to_owned() }
}

/// The key of the CustomResourceDefinition of a resource.
pub(super) fn definition_key(resource: &Resource) -> Key {
    Key { plural: "customresourcedefinitions", namespace: String::new(), name: resource.qualified() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mk_key(name: &str) -> Key {
        Key { plural: "secrets", namespace: "ns".into(), name: name.into() }
    }

    #[test]
    fn every_write_has_its_own_revision() {
        let mut store = Store::default();
        store.put(mk_key("a"), json!({}));
        let b = store.put(mk_key("b"), json!({}));
        assert_eq!(fields::text(&b, "metadata.resourceVersion"), "2");
        let gone = store.remove(&mk_key("a")).unwrap();
        assert_eq!(fields::text(&gone, "metadata.resourceVersion"), "3");
        assert_eq!(store.revision(), 3);
    }

    #[test]
    fn changes_are_replayed_after_a_revision() {
        let mut store = Store::default();
        for name in ["a", "b", "c"] {
            store.put(mk_key(name), json!({}));
        }
        let seen: Vec<u64> = store.since("secrets", 1).unwrap().map(|c| c.revision).collect();
        assert_eq!(seen, [2, 3]);
    }

    #[test]
    fn a_watch_from_before_the_log_is_told_that_it_expired() {
        let mut store = Store::default();
        for _ in 0..LOG_LIMIT + 2 {
            store.put(mk_key("a"), json!({}));
        }
        assert_eq!(store.since("secrets", 1).err(), Some(Compacted { oldest: 2 }));
        assert_eq!(store.since("secrets", 2).unwrap().count(), LOG_LIMIT);
    }

    #[test]
    fn a_list_of_one_namespace_holds_nothing_else() {
        let mut store = Store::default();
        store.put(mk_key("a"), json!({}));
        let elsewhere = Key { namespace: "ns2".into(), ..mk_key("b") };
        store.put(elsewhere, json!({}));
        assert_eq!(store.list("secrets", Some("ns")).count(), 1);
        assert_eq!(store.list("secrets", None).count(), 2);
        assert_eq!(store.list("configmaps", None).count(), 0);
    }
}
