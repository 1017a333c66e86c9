//! Deletion: preconditions, finalizers, namespaces with their content. Pure functions.

use serde_json::Value;

use super::fields::{self, text};
use super::status::ApiError;
use super::store::{Key, Object, Stamp, Store, Write, namespace_key};

/// The result of a deletion.
#[derive(Debug)]
pub(super) enum Deleted {
    /// The object is deleted; this is its last state.
    Gone(Value),
    /// The object waits for its finalizers (a namespace: for its content).
    Waiting(Value),
}

/// Deletes an object, or marks it as deleted if it has finalizers.
pub(super) fn delete(store: &mut Store, w: &Write<'_>, name: &str, options: &Value) -> Result<Deleted, ApiError> {
    let key = w.key(name);
    let old = store.get(&key).cloned().ok_or_else(|| ApiError::not_found(w.resource, name))?;
    check_preconditions(w, name, options, &old)?;
    if w.dry_run {
        return Ok(Deleted::Gone(Value::clone(&old)));
    }
    if w.resource.plural == "namespaces" {
        return Ok(delete_namespace(store, w, &key, &old));
    }
    Ok(delete_or_mark(store, &w.stamp, &key, &old))
}

fn check_preconditions(w: &Write<'_>, name: &str, options: &Value, old: &Value) -> Result<(), ApiError> {
    for (field, what, happened) in
        [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")]
    {
        let wanted = text(options, &format!("preconditions.{field}"));
        let found = text(old, &format!("metadata.{field}"));
        if !wanted.is_empty() && wanted != found {
            let cause = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                 The object might have been {happened}"
            );
            return Err(ApiError::Precondition { resource: w.resource, name: name.to_owned(), cause });
        }
    }
    Ok(())
}

fn delete_or_mark(store: &mut Store, stamp: &Stamp, key: &Key, old: &Object) -> Deleted {
    if fields::list(old, "metadata.finalizers").is_empty() {
        let last = remove(store, key);
        return Deleted::Gone(Value::clone(&last.unwrap_or_else(|| Object::clone(old))));
    }
    Deleted::Waiting(mark(store, stamp, key, old))
}

fn mark(store: &mut Store, stamp: &Stamp, key: &Key, old: &Object) -> Value {
    let mut marked = Value::clone(old);
    if text(&marked, "metadata.deletionTimestamp").is_empty() {
        fields::set(&mut marked, "metadata.deletionTimestamp", stamp.now.clone());
        fields::set(&mut marked, "metadata.deletionGracePeriodSeconds", 0);
        if let Some(generation) = fields::get(&marked, "metadata.generation").and_then(Value::as_i64) {
            fields::set(&mut marked, "metadata.generation", generation + 1);
        }
        if key.plural == "namespaces" {
            fields::set(&mut marked, "status.phase", "Terminating");
        }
        marked = Value::clone(&store.put(key.clone(), marked));
    }
    marked
}

/// Deletes the content of a namespace, then the namespace. In a real cluster the namespace controller does it later.
fn delete_namespace(store: &mut Store, w: &Write<'_>, key: &Key, old: &Object) -> Deleted {
    let marked = mark(store, &w.stamp, key, old);
    for content in store.keys_in(&key.name) {
        if let Some(object) = store.get(&content).cloned() {
            delete_or_mark(store, &w.stamp, &content, &object);
        }
    }
    reap_namespace(store, &key.name);
    Deleted::Waiting(marked)
}

/// Removes an object, and its namespace if that is terminating and now empty.
pub(super) fn remove(store: &mut Store, key: &Key) -> Option<Object> {
    let last = store.remove(key);
    if !key.namespace.is_empty() {
        reap_namespace(store, &key.namespace);
    }
    last
}

/// Removes a terminating namespace once it is empty.
fn reap_namespace(store: &mut Store, name: &str) {
    let key = namespace_key(name);
    let terminating = store.get(&key).is_some_and(|ns| text(ns, "status.phase") == "Terminating");
    if terminating && store.keys_in(name).is_empty() {
        store.remove(&key);
    }
}
