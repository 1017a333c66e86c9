//! Turns an HTTP request into a verb on a resource, and the result into a response.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, Response};
use serde_json::{Value, json};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use super::answers::{Body, View, json_answer, plain_answer};
use super::auth::User;
use super::deletion::{self, Deleted};
use super::resources::Resource;
use super::state::Hub;
use super::status::ApiError;
use super::store::Write;
use super::target::{Query, Target};
use super::{answers, checks, discovery, fields, listing, watch, writes};

/// `MaxRequestBodyBytes` of kube-apiserver.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// How much of a body that is too large is read before the server stops reading, in bytes.
const DISCARD_LIMIT: usize = 16 * 1024 * 1024;

/// Answers one request. Refusals are `Status` objects.
pub(super) async fn serve(hub: Arc<Hub>, request: Request<Incoming>) -> Response<Body> {
    match answer(&hub, request).await {
        Ok(response) => response,
        Err(error) => json_answer(error.code(), &error.status()),
    }
}

async fn answer(hub: &Arc<Hub>, request: Request<Incoming>) -> Result<Response<Body>, ApiError> {
    let path = request.uri().path().to_owned();
    match path.as_str() {
        "/healthz" | "/livez" | "/readyz" => return Ok(plain_answer("ok")),
        "/version" => return Ok(json_answer(200, &discovery::version())),
        _ => {}
    }
    let user = hub.caller(request.headers())?;
    let accept = header(&request, ACCEPT.as_str());
    let served = hub.served();
    if let Some(document) = discovery::answer(&path, &served) {
        return Ok(json_answer(200, &document));
    }
    let target = Target::parse(&path)?;
    if !served.iter().any(|resource| std::ptr::eq(*resource, target.resource)) {
        return Err(ApiError::NoSuchPath);
    }
    let query = Query::parse(request.uri())?;
    let view = View::new(target.resource, &accept, &query);
    let call = Call { hub, target, user, query, view };
    call.dispatch(request).await
}

/// Does what may take long. The other tasks of this thread go on in another one if the runtime has several: one of them
/// may be the connection's own, which answers PINGs.
fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        _ => work(),
    }
}

fn header(request: &Request<Incoming>, name: &str) -> String {
    let value = request.headers().get(name).and_then(|v| v.to_str().ok());
    value.unwrap_or("").to_owned()
}

/// One authenticated request for a resource.
struct Call<'a> {
    hub: &'a Arc<Hub>,
    target: Target,
    user: User,
    query: Query,
    view: View,
}

impl Call<'_> {
    async fn dispatch(&self, request: Request<Incoming>) -> Result<Response<Body>, ApiError> {
        let method = request.method().clone();
        let content_type = header(&request, CONTENT_TYPE.as_str());
        let name = self.target.name.as_deref();
        match (method, name) {
            (Method::GET, _) if self.target.resource.review => Err(ApiError::MethodNotAllowed),
            (Method::GET, Some(name)) => self.get(name),
            (Method::GET, None) if self.query.flag("watch") => {
                watch::start(self.hub, &self.target, &self.query, self.view)
            }
            (Method::GET, None) => in_place(|| listing::list(self.hub, &self.target, &self.query, self.view)),
            (Method::POST, None) => {
                let body = read(request, &content_type).await?;
                self.create(body)
            }
            (Method::PUT, Some(name)) => {
                let body = read(request, &content_type).await?;
                self.replace(name, body)
            }
            (Method::PATCH, Some(name)) => {
                let body = collect(request).await?;
                self.patch(name, &content_type, &body)
            }
            (Method::DELETE, name) if self.target.subresource.is_none() => {
                let options = read_options(request, &content_type).await?;
                self.delete(name, &options)
            }
            _ => Err(ApiError::MethodNotAllowed),
        }
    }

    /// The resource that objects are stored under. Both versions of events share one.
    fn stored(&self) -> &'static Resource {
        let resource = self.target.resource;
        if resource.is_converted_event() {
            return Resource::find("", "v1", "events").unwrap_or(resource);
        }
        resource
    }

    fn in_write(&self, dry_run: bool) -> Result<Write<'_>, ApiError> {
        Ok(Write {
            resource: self.stored(),
            subresource: self.target.subresource.as_deref(),
            namespace: self.target.namespace.as_deref().unwrap_or(""),
            user: &self.user,
            stamp: self.hub.stamp()?,
            dry_run: dry_run || self.query.get("dryRun") == "All",
            strict: self.query.get("fieldValidation") == "Strict",
        })
    }

    fn show(&self, code: u16, stored: &Value) -> Response<Body> {
        let shown = answers::to_shown(self.target.resource, stored);
        json_answer(code, &self.view.one(&shown))
    }

    fn get(&self, name: &str) -> Result<Response<Body>, ApiError> {
        let key = self.target.key(name);
        let found = self.hub.read(|store| store.get(&key).cloned());
        let object = found.ok_or_else(|| ApiError::not_found(self.target.resource, name))?;
        Ok(self.show(200, &object))
    }

    fn create(&self, body: Value) -> Result<Response<Body>, ApiError> {
        if self.target.resource.review {
            return Ok(json_answer(201, &review(self.target.resource, &self.user, &self.hub.stamp()?.now, body)));
        }
        if self.target.resource.namespaced && self.target.namespace.is_none() {
            return Err(ApiError::MethodNotAllowed);
        }
        let mut body = body;
        checks::check_type(self.target.resource, &mut body)?;
        let body = answers::to_stored(self.target.resource, body);
        let write = self.in_write(false)?;
        let created = self.hub.write(|store| writes::create(store, &write, body))?;
        Ok(self.show(201, &created))
    }

    fn replace(&self, name: &str, body: Value) -> Result<Response<Body>, ApiError> {
        let mut body = body;
        checks::check_type(self.target.resource, &mut body)?;
        let body = answers::to_stored(self.target.resource, body);
        let write = self.in_write(false)?;
        let (created, stored) = self.hub.write(|store| writes::replace(store, &write, name, body))?;
        Ok(self.show(if created { 201 } else { 200 }, &stored))
    }

    fn patch(&self, name: &str, content_type: &str, body: &[u8]) -> Result<Response<Body>, ApiError> {
        let kind = patch_kind(content_type)?;
        let patch: Value = serde_json::from_slice(body).map_err(|e| unreadable(&e))?;
        let write = self.in_write(false)?;
        let change = |old: &Value| self.patched(old, kind, &patch);
        let object = self.hub.write(|store| writes::update(store, &write, name, false, change))?;
        Ok(self.show(200, &object))
    }

    fn patched(&self, old: &Value, kind: PatchKind, patch: &Value) -> Result<Value, ApiError> {
        let mut object = answers::to_shown(self.target.resource, old);
        match kind {
            PatchKind::Merge => json_patch::merge(&mut object, patch),
            PatchKind::Json => {
                let patch: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(|error| {
                    ApiError::BadRequest(format!("error decoding patch: the JSON patch is malformed: {error}"))
                })?;
                json_patch::patch(&mut object, &patch).map_err(|_| ApiError::Inapplicable)?;
            }
        }
        Ok(answers::to_stored(self.target.resource, object))
    }

    fn delete(&self, name: Option<&str>, options: &Value) -> Result<Response<Body>, ApiError> {
        let dry_run = fields::texts(options, "dryRun").any(|value| value == "All");
        let write = self.in_write(dry_run)?;
        let Some(name) = name else {
            return listing::delete_all(self.hub, &self.target, &self.query, &write, options);
        };
        let deleted = self.hub.write(|store| deletion::delete(store, &write, name, options))?;
        match deleted {
            Deleted::Waiting(object) => Ok(self.show(200, &object)),
            Deleted::Gone(object) => {
                let resource = self.target.resource;
                let details = json!({ "name": name, "group": resource.group, "kind": resource.plural,
                    "uid": fields::text(&object, "metadata.uid") });
                let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Success", "details": details });
                Ok(json_answer(200, &status))
            }
        }
    }
}

/// Answers a caller's question about its own identity or rights. There is no RBAC, so everything is allowed.
fn review(resource: &Resource, user: &User, now: &str, mut body: Value) -> Value {
    fields::set(&mut body, "apiVersion", resource.api_version());
    fields::set(&mut body, "kind", resource.kind);
    let status = if resource.kind == "SelfSubjectReview" {
        let mut info = json!({ "username": user.name, "groups": user.groups });
        if !user.uid.is_empty() {
            fields::set(&mut info, "uid", user.uid.clone());
        }
        fields::set(&mut body, "metadata.creationTimestamp", now);
        json!({ "userInfo": info })
    } else {
        json!({ "allowed": true, "reason": "the stand-in has no RBAC" })
    };
    fields::set(&mut body, "status", status);
    body
}

/// The format of a patch: RFC 7386 or RFC 6902.
#[derive(Debug, Clone, Copy)]
enum PatchKind {
    Merge,
    Json,
}

fn patch_kind(content_type: &str) -> Result<PatchKind, ApiError> {
    match media_type(content_type) {
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/json-patch+json" => Ok(PatchKind::Json),
        _ => Err(ApiError::UnsupportedMediaType {
            accepted: "application/json-patch+json, application/merge-patch+json",
        }),
    }
}

fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or("").trim()
}

async fn read(request: Request<Incoming>, content_type: &str) -> Result<Value, ApiError> {
    let body = collect(request).await?;
    parse(&body, content_type)
}

async fn read_options(request: Request<Incoming>, content_type: &str) -> Result<Value, ApiError> {
    let body = collect(request).await?;
    if body.is_empty() {
        return Ok(json!({}));
    }
    parse(&body, content_type)
}

fn parse(body: &[u8], content_type: &str) -> Result<Value, ApiError> {
    match media_type(content_type) {
        "" | "application/json" => serde_json::from_slice(body).map_err(|e| unreadable(&e)),
        "application/yaml" => serde_saphyr::from_slice(body).map_err(|e| unreadable(&e)),
        _ => Err(ApiError::UnsupportedMediaType { accepted: "application/json, application/yaml" }),
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::BadRequest(format!("the object provided is unrecognized: {error}"))
}

/// The body, if it is not too large. If it is, the server still reads on for a while, because a client that is still
/// sending would not see the response if the connection closed.
async fn collect(request: Request<Incoming>) -> Result<Vec<u8>, ApiError> {
    let mut body = request.into_body();
    let mut bytes = Vec::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::BadRequest(format!("the body could not be read: {error}")))?;
        let Some(data) = frame.data_ref() else {
            continue; // trailers
        };
        length += data.len();
        if length > DISCARD_LIMIT {
            break;
        }
        if length <= BODY_LIMIT {
            bytes.extend_from_slice(data);
        }
    }
    if length > BODY_LIMIT {
        return Err(ApiError::TooLarge(BODY_LIMIT));
    }
    Ok(bytes)
}
