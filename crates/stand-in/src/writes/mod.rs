//! Create and update: metadata, conflicts, subresources. Pure functions, which get the time and the random parts in a
//! [`Stamp`](super::store::Stamp).

use serde_json::{Value, json};

use super::checks::{check_fields, check_metadata, check_type, tidy_metadata};
use super::fields::{self, keep, text};
use super::resources::Resource;
use super::status::{ApiError, Cause};
use super::store::{Store, Write, namespace_key};
use super::{admission, deletion, policy, schema};

/// Creates an object and returns it as stored.
pub(super) fn create(store: &mut Store, w: &Write<'_>, mut object: Value) -> Result<Value, ApiError> {
    schema::decode(store, w, &mut object, false)?;
    fill_identity(w, &mut object)?;
    check_fields(w.resource, &object)?;
    let name = text(&object, "metadata.name").to_owned();
    check_namespace(store, w, &name)?;
    check_metadata(w.resource, &name, &object)?;
    policy::check(store, w, None, &object)?;
    fill_metadata(w, &mut object);
    fill_kind(w, &mut object)?;
    tidy_metadata(&mut object);
    ApiError::unless_valid(w.resource, &name, schema::causes(store, w, &object, None))?;
    let key = w.key(&name);
    if store.get(&key).is_some() {
        return Err(ApiError::AlreadyExists { resource: w.resource, name });
    }
    if w.dry_run {
        return Ok(object);
    }
    Ok(Value::clone(&store.put(key, object)))
}

fn fill_identity(w: &Write<'_>, object: &mut Value) -> Result<(), ApiError> {
    check_type(w.resource, object)?;
    if text(object, "metadata.name").is_empty() {
        let prefix = text(object, "metadata.generateName");
        if prefix.is_empty() {
            let cause = Cause::required("metadata.name", "name or generateName is required");
            return ApiError::unless_valid(w.resource, "", vec![cause]);
        }
        let name = format!("{prefix}{}", w.stamp.suffix);
        fields::set(object, "metadata.name", name);
    }
    fill_namespace(w, object)
}

fn fill_namespace(w: &Write<'_>, object: &mut Value) -> Result<(), ApiError> {
    let claimed = text(object, "metadata.namespace");
    if !claimed.is_empty() && claimed != w.namespace {
        return Err(ApiError::BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request".into(),
        ));
    }
    if w.resource.namespaced {
        fields::set(object, "metadata.namespace", w.namespace);
    }
    Ok(())
}

/// The check of the admission plugin NamespaceLifecycle.
fn check_namespace(store: &Store, w: &Write<'_>, name: &str) -> Result<(), ApiError> {
    if !w.resource.namespaced {
        return Ok(());
    }
    let namespaces = Resource::find("", "v1", "namespaces")
        .ok_or_else(|| ApiError::Internal("no namespaces in the table".into()))?;
    let namespace =
        store.get(&namespace_key(w.namespace)).ok_or_else(|| ApiError::not_found(namespaces, w.namespace))?;
    if text(namespace, "metadata.deletionTimestamp").is_empty() {
        return Ok(());
    }
    let what = w.resource.qualified();
    let ns = w.namespace;
    Err(ApiError::Forbidden(format!(
        "{what} {name:?} is forbidden: unable to create new content in namespace {ns} because it is being terminated"
    )))
}

fn fill_metadata(w: &Write<'_>, object: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields", "resourceVersion"] {
        fields::remove(object, &format!("metadata.{field}"));
    }
    fields::set(object, "metadata.uid", w.stamp.uid.clone());
    fields::set(object, "metadata.creationTimestamp", w.stamp.now.clone());
    if w.resource.custom {
        fields::set(object, "metadata.generation", 1);
    }
}

fn fill_kind(w: &Write<'_>, object: &mut Value) -> Result<(), ApiError> {
    if w.resource.has_status() {
        fields::remove(object, "status");
    }
    match w.resource.plural {
        super::resources::CSR_PLURAL => {
            admission::prepare_create(object, w.user);
            let name = text(object, "metadata.name").to_owned();
            ApiError::unless_valid(w.resource, &name, admission::validate_create(object))?;
            if admission::asks_for_masters(object) {
                return Err(ApiError::Forbidden(format!(
                    "certificatesigningrequests.certificates.k8s.io {name:?} is forbidden: \
                     use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
                )));
            }
        }
        "namespaces" => {
            fields::set(object, "spec.finalizers", json!(["kubernetes"]));
            fields::set(object, "status", json!({ "phase": "Active" }));
            let name = text(object, "metadata.name").to_owned();
            let label = "kubernetes.io/metadata.name";
            if let Some(labels) = labels_mut(object) {
                labels.insert(label.to_owned(), name.into());
            }
        }
        "pods" => fields::set(object, "status", json!({ "phase": "Pending" })),
        "secrets" => fill_secret(object),
        _ => {}
    }
    Ok(())
}

fn labels_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    if fields::get(object, "metadata.labels").is_none_or(|labels| !labels.is_object()) {
        fields::set(object, "metadata.labels", json!({}));
    }
    fields::get_mut(object, "metadata.labels")?.as_object_mut()
}

/// Moves `stringData` into `data`. A Secret without a type becomes `Opaque`.
fn fill_secret(object: &mut Value) {
    if text(object, "type").is_empty() {
        fields::set(object, "type", "Opaque");
    }
    let Some(Value::Object(strings)) = fields::remove(object, "stringData") else {
        return;
    };
    if fields::get(object, "data").is_none_or(|data| !data.is_object()) {
        fields::set(object, "data", json!({}));
    }
    let Some(data) = fields::get_mut(object, "data").and_then(Value::as_object_mut) else {
        return; // never: it is an object now
    };
    for (key, value) in strings {
        let text = value.as_str().unwrap_or("");
        data.insert(key, fields::base64(text.as_bytes()).into());
    }
}

/// `PUT`: replaces an object, or creates it if its resource allows that. Returns whether it was created.
pub(super) fn replace(store: &mut Store, w: &Write<'_>, name: &str, object: Value) -> Result<(bool, Value), ApiError> {
    if !w.resource.upsert || store.get(&w.key(name)).is_some() {
        return Ok((false, update(store, w, name, true, |_| Ok(object))?));
    }
    check_identity(w, name, &object)?;
    let uid = text(&object, "metadata.uid");
    if !uid.is_empty() {
        let words = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
        return Err(ApiError::conflict(w.resource, name, words));
    }
    Ok((true, create(store, w, object)?))
}

/// Replaces an object by the result of `change`, and returns it as stored. If the result is the same, nothing is
/// written and the resourceVersion stays, as in the real server.
///
/// `replace` means that the caller sent the whole object (`PUT`).
pub(super) fn update(
    store: &mut Store,
    w: &Write<'_>,
    name: &str,
    replace: bool,
    change: impl FnOnce(&Value) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    let key = w.key(name);
    let old = store.get(&key).cloned().ok_or_else(|| ApiError::not_found(w.resource, name))?;
    let mut new = change(&old)?;
    check_identity(w, name, &new)?;
    check_type(w.resource, &mut new)?;
    schema::decode(store, w, &mut new, !replace)?;
    check_fields(w.resource, &new)?;
    check_version(w, name, &new, &old, replace)?;
    prepare_update(w, name, &mut new, &old)?;
    tidy_metadata(&mut new);
    check_metadata(w.resource, name, &new)?;
    ApiError::unless_valid(w.resource, name, schema::causes(store, w, &new, Some(&old)))?;
    policy::check(store, w, Some(&old), &new)?;
    if new == *old || w.dry_run {
        return Ok(new);
    }
    if is_finished(&new) {
        if let Some(last) = deletion::remove(store, &key) {
            keep(&mut new, &last, "metadata.resourceVersion");
        }
        return Ok(new);
    }
    Ok(Value::clone(&store.put(key, new)))
}

fn check_identity(w: &Write<'_>, name: &str, new: &Value) -> Result<(), ApiError> {
    let claimed = text(new, "metadata.name");
    if claimed != name {
        return Err(ApiError::BadRequest(format!(
            "the name of the object ({claimed}) does not match the name on the URL ({name})"
        )));
    }
    let namespace = text(new, "metadata.namespace");
    if !namespace.is_empty() && namespace != w.namespace {
        return Err(ApiError::BadRequest(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the request ({})",
            w.namespace
        )));
    }
    Ok(())
}

fn check_version(w: &Write<'_>, name: &str, new: &Value, old: &Value, replace: bool) -> Result<(), ApiError> {
    let uid = text(new, "metadata.uid");
    let current_uid = text(old, "metadata.uid");
    // A patch below /status of a custom resource: the real server puts the old metadata back before it validates.
    let is_kept = w.subresource.is_some() && w.resource.custom && !replace;
    if !uid.is_empty() && uid != current_uid && !is_kept {
        if !replace {
            let cause = Cause::invalid("metadata.uid", uid, "field is immutable");
            return ApiError::unless_valid(w.resource, name, vec![cause]);
        }
        let words = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {current_uid}");
        return Err(ApiError::conflict(w.resource, name, words));
    }
    let version = text(new, "metadata.resourceVersion");
    if version.is_empty() {
        if (w.resource.custom || w.resource.upsert || w.resource.is_bundle()) && replace {
            let cause = Cause::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            return ApiError::unless_valid(w.resource, name, vec![cause]);
        }
        return Ok(());
    }
    if version != text(old, "metadata.resourceVersion") {
        return Err(ApiError::stale(w.resource, name));
    }
    Ok(())
}

fn prepare_update(w: &Write<'_>, name: &str, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    if w.subresource.is_some() && w.resource.custom {
        let mut kept = old.clone();
        keep(&mut kept, new, "status");
        *new = kept;
        return Ok(());
    }
    for field in [
        "uid",
        "resourceVersion",
        "namespace",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        keep(new, old, &format!("metadata.{field}"));
    }
    fields::remove(new, "metadata.managedFields");
    if w.resource.is_csr() {
        let causes = admission::prepare_update(new, old, w.subresource, &w.stamp.now);
        return ApiError::unless_valid(w.resource, name, causes);
    }
    match w.subresource {
        Some(_) => keep(new, old, "spec"),
        None if w.resource.has_status() => keep(new, old, "status"),
        None => {}
    }
    if w.resource.plural == "secrets" {
        update_secret(w, name, new, old)?;
    }
    if matches!(w.resource.plural, "configmaps" | "secrets") && old["immutable"] == true {
        let changed = ["immutable", "data", "binaryData"].into_iter().filter(|field| new[field] != old[field]);
        let because = "field is immutable when `immutable` is set";
        let causes = changed.map(|field| Cause::invalid(field, "", because)).collect();
        ApiError::unless_valid(w.resource, name, causes)?;
    }
    if w.resource.is_bundle() && text(new, "spec.signerName") != text(old, "spec.signerName") {
        let cause = Cause::invalid("spec.signerName", text(new, "spec.signerName"), "field is immutable");
        ApiError::unless_valid(w.resource, name, vec![cause])?;
    }
    count_generation(w.resource, new, old);
    Ok(())
}

/// Checks that the type of the Secret stays (`pkg/apis/core/validation`).
fn update_secret(w: &Write<'_>, name: &str, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    if text(new, "type").is_empty() {
        keep(new, old, "type");
    }
    fill_secret(new);
    let mut causes = Vec::new();
    if text(new, "type") != text(old, "type") {
        causes.push(Cause::invalid("type", text(new, "type"), "field is immutable"));
    }
    ApiError::unless_valid(w.resource, name, causes)
}

/// Increments `metadata.generation` of a custom resource at a change outside of metadata and status.
fn count_generation(resource: &Resource, new: &mut Value, old: &Value) {
    let content = |object: &Value| {
        let mut object = object.clone();
        fields::remove(&mut object, "metadata");
        fields::remove(&mut object, "status");
        object
    };
    if resource.custom && content(new) != content(old) {
        let generation = fields::get(old, "metadata.generation").and_then(Value::as_i64);
        fields::set(new, "metadata.generation", generation.unwrap_or(0) + 1);
    }
}

fn is_finished(object: &Value) -> bool {
    !text(object, "metadata.deletionTimestamp").is_empty()
        && fields::list(object, "metadata.finalizers").is_empty()
        && text(object, "status.phase") != "Terminating"
}

#[cfg(test)]
mod tests;
