//! HTTP responses, in the form that the client requested.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use super::resources::{EVENT_FIELDS, Resource};
use super::target::Query;
use super::{state, table};

/// The body of a response: a complete document, or the stream of a watch.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A JSON document.
pub(super) fn json_answer(code: u16, document: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(document.to_string())).boxed_unsync();
    let mut response = with_type("application/json", body);
    *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Plain text, for the health checks.
pub(super) fn plain_answer(text: &'static str) -> Response<Body> {
    let body = Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync();
    with_type("text/plain; charset=utf-8", body)
}

/// A response with a body of this type.
pub(super) fn with_type(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

/// The form in which the client wants objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    resource: &'static Resource,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Whole,
    Partial,
    Table { whole: bool },
}

impl View {
    pub(super) fn new(resource: &'static Resource, accept: &str, query: &Query) -> Self {
        let form = if accept.contains("as=Table") {
            Form::Table { whole: query.get("includeObject") == "Object" }
        } else if accept.contains("as=PartialObjectMetadata") {
            Form::Partial
        } else {
            Form::Whole
        };
        Self { resource, form }
    }

    /// One object.
    pub(super) fn one(self, object: &Value) -> Value {
        match self.form {
            Form::Whole => object.clone(),
            Form::Partial => table::partial(object),
            Form::Table { .. } => {
                let metadata = json!({ "resourceVersion": super::fields::text(object, "metadata.resourceVersion") });
                self.table(std::slice::from_ref(object), metadata)
            }
        }
    }

    /// A list with this metadata.
    pub(super) fn many(self, mut items: Vec<Value>, metadata: Value) -> Value {
        let api_version = self.resource.api_version();
        let kind = self.resource.kind;
        match self.form {
            Form::Table { .. } => self.table(&items, metadata),
            Form::Whole => {
                if !self.resource.custom {
                    items.iter_mut().for_each(untyped);
                }
                json!({ "kind": format!("{kind}List"), "apiVersion": api_version,
                    "metadata": metadata, "items": items })
            }
            Form::Partial => {
                let items: Vec<Value> = items.iter().map(table::partial).collect();
                json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata, "items": items })
            }
        }
    }

    fn table(self, items: &[Value], metadata: Value) -> Value {
        let whole = matches!(self.form, Form::Table { whole: true });
        let now = state::now();
        table::table(self.resource, items.iter(), metadata, whole, now)
    }
}

/// Removes the type, which the items of a list of built-in objects do not have.
fn untyped(item: &mut Value) {
    for field in ["apiVersion", "kind"] {
        super::fields::remove(item, field);
    }
}

/// The stored form of a body written to `resource`.
pub(super) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if resource.is_converted_event() {
        rename(&mut object, "v1", |(core, events)| (events, core));
    }
    object
}

/// The form in which `resource` shows a stored object.
pub(super) fn to_shown(resource: &Resource, object: &Value) -> Value {
    let mut object = object.clone();
    if resource.is_converted_event() {
        rename(&mut object, "events.k8s.io/v1", |pair| pair);
    }
    object
}

fn rename(
    object: &mut Value,
    api_version: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(map) = object.as_object_mut() else {
        return; // not an object: `update` refuses it
    };
    map.insert("apiVersion".into(), api_version.into());
    for pair in EVENT_FIELDS {
        let (from, to) = direction(*pair);
        if let Some(value) = map.remove(from) {
            map.insert(to.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_the_same_in_both_versions() {
        let events = Resource::find("events.k8s.io", "v1", "events").unwrap();
        let shown = json!({ "apiVersion": "events.k8s.io/v1", "note": "n", "regarding": {}, "reason": "r" });
        let stored = to_stored(events, shown.clone());
        assert_eq!(stored, json!({ "apiVersion": "v1", "message": "n", "involvedObject": {}, "reason": "r" }));
        assert_eq!(to_shown(events, &stored), shown);
    }
}
