//! HTTP answers, in the form that the client requested.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use super::query::Query;
use super::resource::Resource;
use super::{state, table};

/// The body of an answer: a complete document, or the stream of a watch.
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

/// An answer with a body of this type.
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
