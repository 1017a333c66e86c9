//! What create, update and delete mean: metadata, conflicts, subresources, finalizers. Pure: the
//! time and the random parts come in a [`Stamp`].

use serde_json::{Value, json};

use super::admission;
use super::auth::User;
use super::objects::{self, keep, text};
use super::resources::Resource;
use super::status::{ApiError, Cause};
use super::store::{Key, Object, Store};

/// `TotalAnnotationSizeLimitB` of apimachinery.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// What a write needs from the world outside.
#[derive(Debug, Clone)]
pub(super) struct Stamp {
    /// RFC 3339.
    pub(super) now: String,
    /// For an object that is created.
    pub(super) uid: String,
    /// Appended to `generateName`.
    pub(super) suffix: String,
}

/// Who writes what, where.
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
    fn key(&self, name: &str) -> Key {
        Key { plural: self.resource.plural, namespace: self.namespace.to_owned(), name: name.to_owned() }
    }
}

/// Creates an object and returns it as stored.
pub(super) fn create(store: &mut Store, w: &Write<'_>, mut object: Value) -> Result<Value, ApiError> {
    fill_identity(w, &mut object)?;
    let name = text(&object, "metadata.name").to_owned();
    check_namespace(store, w, &name)?;
    check_metadata(w, &name, &object)?;
    let key = w.key(&name);
    if store.get(&key).is_some() {
        return Err(ApiError::AlreadyExists { resource: w.resource, name });
    }
    fill_metadata(w, &mut object);
    fill_kind(w, &mut object)?;
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
        objects::set(object, "metadata.name", name);
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
        objects::set(object, "metadata.namespace", w.namespace);
    }
    Ok(())
}

/// The body must be of the kind that the URL names; a body that names none is taken as that kind.
pub(super) fn check_type(resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    if !object.is_object() {
        return Err(ApiError::BadRequest("the body is not an object".into()));
    }
    for (field, wanted) in [("apiVersion", resource.api_version()), ("kind", resource.kind.to_owned())] {
        let found = text(object, field);
        if !found.is_empty() && found != wanted {
            return Err(ApiError::BadRequest(format!(
                "the {field} in the data ({found}) does not match the expected {field} ({wanted})"
            )));
        }
        objects::set(object, field, wanted);
    }
    Ok(())
}

/// Admission plugin NamespaceLifecycle.
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
    let (what, ns) = (w.resource.qualified(), w.namespace);
    Err(ApiError::Forbidden(format!(
        "{what} {name:?} is forbidden: unable to create new content in namespace {ns} because it is being terminated"
    )))
}

fn namespace_key(name: &str) -> Key {
    Key { plural: "namespaces", namespace: String::new(), name: name.to_owned() }
}

fn check_metadata(w: &Write<'_>, name: &str, object: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    // "We don't care what you call your certificate requests": only what the URL cannot carry.
    let fits = if w.resource.is_csr() {
        !name.contains(['/', '%']) && name != "." && name != ".."
    } else {
        admission::is_subdomain(name)
    };
    if !fits {
        causes.push(Cause::invalid(
            "metadata.name",
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
        ));
    }
    let annotations = objects::get(object, "metadata.annotations").and_then(Value::as_object);
    let size: usize =
        annotations.into_iter().flatten().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause::too_long("metadata.annotations", "may not be more than 262144 bytes"));
    }
    ApiError::unless_valid(w.resource, name, causes)
}

fn fill_metadata(w: &Write<'_>, object: &mut Value) {
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
        "generation",
        "resourceVersion",
    ] {
        objects::remove(object, &format!("metadata.{field}"));
    }
    objects::set(object, "metadata.uid", w.stamp.uid.clone());
    objects::set(object, "metadata.creationTimestamp", w.stamp.now.clone());
    if w.resource.custom {
        objects::set(object, "metadata.generation", 1);
    }
}

fn fill_kind(w: &Write<'_>, object: &mut Value) -> Result<(), ApiError> {
    if w.resource.has_status() {
        objects::remove(object, "status");
    }
    match w.resource.plural {
        super::resources::CSR_PLURAL => {
            admission::prepare_create(object, w.user);
            let name = text(object, "metadata.name").to_owned();
            ApiError::unless_valid(w.resource, &name, admission::validate_create(object))?;
            if admission::asks_for_masters(object) {
                return Err(ApiError::Forbidden(format!(
                    "certificatesigningrequests.certificates.k8s.io {name:?} is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
                )));
            }
        }
        "namespaces" => {
            objects::set(object, "spec.finalizers", json!(["kubernetes"]));
            objects::set(object, "status", json!({ "phase": "Active" }));
            let name = text(object, "metadata.name").to_owned();
            let label = "kubernetes.io/metadata.name";
            if let Some(labels) = labels_mut(object) {
                labels.insert(label.to_owned(), name.into());
            }
        }
        "pods" => objects::set(object, "status", json!({ "phase": "Pending" })),
        "secrets" => fill_secret(object),
        _ => {}
    }
    Ok(())
}

fn labels_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    if objects::get(object, "metadata.labels").is_none_or(|labels| !labels.is_object()) {
        objects::set(object, "metadata.labels", json!({}));
    }
    objects::get_mut(object, "metadata.labels")?.as_object_mut()
}

/// `stringData` is written into `data`; a Secret without a type is `Opaque`.
fn fill_secret(object: &mut Value) {
    if text(object, "type").is_empty() {
        objects::set(object, "type", "Opaque");
    }
    let Some(Value::Object(strings)) = objects::remove(object, "stringData") else {
        return;
    };
    if objects::get(object, "data").is_none_or(|data| !data.is_object()) {
        objects::set(object, "data", json!({}));
    }
    let Some(data) = objects::get_mut(object, "data").and_then(Value::as_object_mut) else {
        return; // just made one
    };
    for (key, value) in strings {
        let bytes = value.as_str().unwrap_or("").as_bytes().to_vec();
        data.insert(key, json!(k8s_openapi::ByteString(bytes)));
    }
}

/// Replaces an object by what `change` makes of it, and returns it as stored. A change that changes
/// nothing is no write: the resourceVersion stays, as in the real server.
///
/// `replace` says that the caller sent the whole object (`PUT`).
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
    check_version(w, name, &new, &old, replace)?;
    prepare_update(w, name, &mut new, &old)?;
    check_metadata(w, name, &new)?;
    if new == *old || w.dry_run {
        return Ok(new);
    }
    if is_finished(&new) {
        let last = remove(store, &key);
        return Ok(last.map_or(new, |last| Value::clone(&last)));
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
    let (uid, current_uid) = (text(new, "metadata.uid"), text(old, "metadata.uid"));
    if !uid.is_empty() && uid != current_uid {
        let words = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {current_uid}");
        return Err(ApiError::conflict(w.resource, name, words));
    }
    let version = text(new, "metadata.resourceVersion");
    if version.is_empty() {
        if w.resource.custom && replace {
            let cause = Cause::invalid("metadata.resourceVersion", "0x0: must be specified for an update");
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
    objects::remove(new, "metadata.managedFields");
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
    count_generation(w.resource, new, old);
    Ok(())
}

/// `pkg/apis/core/validation`: the type of a Secret never changes.
fn update_secret(w: &Write<'_>, name: &str, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    if text(new, "type").is_empty() {
        keep(new, old, "type");
    }
    fill_secret(new);
    let mut causes = Vec::new();
    if text(new, "type") != text(old, "type") {
        causes.push(Cause::invalid("type", "field is immutable"));
    }
    ApiError::unless_valid(w.resource, name, causes)
}

/// Custom resources count every change outside metadata and status.
fn count_generation(resource: &Resource, new: &mut Value, old: &Value) {
    let content = |object: &Value| {
        let mut object = object.clone();
        objects::remove(&mut object, "metadata");
        objects::remove(&mut object, "status");
        object
    };
    if resource.custom && content(new) != content(old) {
        let generation = objects::get(old, "metadata.generation").and_then(Value::as_i64);
        objects::set(new, "metadata.generation", generation.unwrap_or(0) + 1);
    }
}

fn is_finished(object: &Value) -> bool {
    !text(object, "metadata.deletionTimestamp").is_empty()
        && objects::list(object, "metadata.finalizers").is_empty()
        && text(object, "status.phase") != "Terminating"
}

/// What a deletion did.
#[derive(Debug)]
pub(super) enum Deleted {
    /// Gone; its last state.
    Gone(Value),
    /// Waits for its finalizers (a namespace: for its content).
    Waiting(Value),
}

/// Deletes an object, or marks it while it has finalizers.
pub(super) fn delete(store: &mut Store, w: &Write<'_>, name: &str, options: &Value) -> Result<Deleted, ApiError> {
    let key = w.key(name);
    let old = store.get(&key).cloned().ok_or_else(|| ApiError::not_found(w.resource, name))?;
    for (precondition, field) in
        [("preconditions.uid", "metadata.uid"), ("preconditions.resourceVersion", "metadata.resourceVersion")]
    {
        let (wanted, found) = (text(options, precondition), text(&old, field));
        if !wanted.is_empty() && wanted != found {
            let words = format!("Precondition failed: {precondition} is {wanted}, in the object it is {found}");
            return Err(ApiError::conflict(w.resource, name, words));
        }
    }
    if w.dry_run {
        return Ok(Deleted::Gone(Value::clone(&old)));
    }
    if w.resource.plural == "namespaces" {
        return Ok(delete_namespace(store, w, &key, &old));
    }
    Ok(delete_or_mark(store, &w.stamp, &key, &old))
}

fn delete_or_mark(store: &mut Store, stamp: &Stamp, key: &Key, old: &Object) -> Deleted {
    if objects::list(old, "metadata.finalizers").is_empty() {
        let last = remove(store, key);
        return Deleted::Gone(Value::clone(&last.unwrap_or_else(|| Object::clone(old))));
    }
    Deleted::Waiting(mark(store, stamp, key, old))
}

fn mark(store: &mut Store, stamp: &Stamp, key: &Key, old: &Object) -> Value {
    let mut marked = Value::clone(old);
    if text(&marked, "metadata.deletionTimestamp").is_empty() {
        objects::set(&mut marked, "metadata.deletionTimestamp", stamp.now.clone());
        objects::set(&mut marked, "metadata.deletionGracePeriodSeconds", 0);
        if key.plural == "namespaces" {
            objects::set(&mut marked, "status.phase", "Terminating");
        }
        marked = Value::clone(&store.put(key.clone(), marked));
    }
    marked
}

/// Does at once what the namespace controller does: the content goes, then the namespace.
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

fn remove(store: &mut Store, key: &Key) -> Option<Object> {
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
