//! One write: its caller, its target, and the time and random parts that it needs.

use super::auth::User;
use super::resource::Resource;
use super::store::Key;

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
