//! Lists in pages, and deletion of all objects that a list would show.

use hyper::Response;
use serde_json::{Value, json};

use super::answers::{Body, View, json_answer};
use super::selectors::Selector;
use super::state::Hub;
use super::status::ApiError;
use super::store::{Key, Store, Write};
use super::target::{Query, Target};
use super::{answers, deletion};

/// The selector of a request.
pub(super) fn selector(target: &Target, query: &Query) -> Result<Selector, ApiError> {
    let labels = query.get("labelSelector");
    let fields = query.get("fieldSelector");
    Selector::parse(target.resource, labels, fields).map_err(|error| ApiError::BadRequest(error.to_string()))
}

/// The objects that a request selects, in the form in which they are shown.
pub(super) fn selected<'a>(
    store: &'a Store,
    target: &'a Target,
    selector: &'a Selector,
) -> impl Iterator<Item = (&'a Key, Value)> {
    store
        .list(target.resource.plural, target.namespace.as_deref())
        .map(|(key, object)| (key, answers::to_shown(target.resource, object)))
        .filter(|(_, object)| selector.matches(object))
}

/// Answers a list.
pub(super) fn list(hub: &Hub, target: &Target, query: &Query, view: View) -> Result<Response<Body>, ApiError> {
    let selector = selector(target, query)?;
    let limit = query.number("limit")?.filter(|limit| *limit > 0);
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let from = match query.get("continue") {
        "" => None,
        token => Some(Page::parse(token)?),
    };
    let (items, metadata) = hub.read(|store| page(store, target, &selector, limit, from));
    Ok(json_answer(200, &view.many(items, metadata)))
}

/// The start of the next page of a list. Later pages show the objects' state at that time, with the revision of the
/// first page. A watch from that revision replays the changes since, so the client ends up with the current state.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    revision: u64,
    namespace: String,
    name: String,
}

impl Page {
    fn parse(token: &str) -> Result<Self, ApiError> {
        let mut parts = token.splitn(3, '/');
        let mut next = || parts.next();
        let page = (|| {
            Some(Self { revision: next()?.parse().ok()?, namespace: next()?.to_owned(), name: next()?.to_owned() })
        })();
        page.ok_or_else(|| ApiError::BadRequest("continue key is not valid".into()))
    }

    fn token(&self) -> String {
        format!("{}/{}/{}", self.revision, self.namespace, self.name)
    }
}

fn page(store: &Store, target: &Target, selector: &Selector, limit: usize, from: Option<Page>) -> (Vec<Value>, Value) {
    let revision = from.as_ref().map_or(store.revision(), |p| p.revision);
    let after = from.map(|page| (page.namespace, page.name));
    let is_later = |key: &Key| after.as_ref().is_none_or(|(ns, name)| (&key.namespace, &key.name) > (ns, name));
    let mut rest = selected(store, target, selector).filter(|(key, _)| is_later(key));
    let mut items = Vec::new();
    let mut last = None;
    for (key, object) in rest.by_ref().take(limit) {
        last = Some(key);
        items.push(object);
    }
    let remaining = rest.count();
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if let (Some(key), true) = (last, remaining > 0) {
        let next = Page { revision, namespace: key.namespace.clone(), name: key.name.clone() };
        super::fields::set(&mut metadata, "continue", next.token());
        if selector.is_empty() {
            super::fields::set(&mut metadata, "remainingItemCount", remaining);
        }
    }
    (items, metadata)
}

/// Deletes all objects that the request selects (`deletecollection`).
pub(super) fn delete_all(
    hub: &Hub,
    target: &Target,
    query: &Query,
    write: &Write<'_>,
    options: &Value,
) -> Result<Response<Body>, ApiError> {
    if target.resource.namespaced && target.namespace.is_none() {
        return Err(ApiError::MethodNotAllowed);
    }
    let selector = selector(target, query)?;
    hub.write(|store| {
        let names: Vec<String> = selected(store, target, &selector).map(|(key, _)| key.name.clone()).collect();
        names.iter().try_for_each(|name| deletion::delete(store, write, name, options).map(drop))
    })?;
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" });
    Ok(json_answer(200, &status))
}
