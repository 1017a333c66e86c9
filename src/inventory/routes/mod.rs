//! The routes: the documents of discovery and, behind one guard, the resources.
//!
//! Kubernetes' authorizer decided on the verb, resource and name that it read from the request (`RequestInfo`). So the
//! guard refuses selectors and `watch`: with these the response could contain more than was authorized.

use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{BASE, GROUP, InventoryProblem, VERSION};
use addon_signer_telemetry::audit::Audit;

/// Timeout of a response. It is shorter than kube-apiserver's (`--request-timeout`, a minute), so that the client sees
/// our error.
const ANSWER: Duration = Duration::from_secs(50);
/// Only the front proxy sets this header, and drops it from its clients' requests (`SetAuthProxyHeaders`).
const REMOTE_USER: &str = "x-remote-user";

/// The router of all paths; `resources` answers below [`BASE`]. Only the routes of resources are behind the guard: the
/// API server forwards some other paths for every account, and those must not fill the audit log.
pub(super) fn router(resources: Router, audit: Audit) -> Router {
    let resources = resources.route_layer(middleware::from_fn_with_state(audit, guard)).fallback(unknown);
    Router::new()
        .route(&format!("/apis/{GROUP}"), get(|| async { Json(group()) }))
        .route(BASE, get(|| async { Json(version()) }))
        .nest(BASE, resources)
        .fallback(unknown)
}

async fn unknown(uri: Uri) -> InventoryProblem {
    InventoryProblem::new(StatusCode::NOT_FOUND, format!("{GROUP} has nothing at {}", uri.path()))
}

fn group() -> Value {
    let version = json!({ "groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION });
    json!({ "kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version })
}

fn resource(name: &str, singular: &str, kind: &str, verbs: &[&str]) -> Value {
    json!({ "name": name, "singularName": singular, "namespaced": false, "kind": kind, "verbs": verbs })
}

fn version() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [
            resource("certificates", "certificate", "Certificate", &["get", "list"]),
            resource("entries", "entry", "Entry", &["list"]),
        ],
    })
}

/// Accepts a request if Kubernetes authorized everything in its response, bounds its time, and records the user and the
/// request.
async fn guard(State(audit): State<Audit>, request: Request, next: Next) -> Response {
    let user = user(request.headers());
    let question = request.uri().to_string();
    let answer = match check(&request, user.as_deref()) {
        Ok(()) => tokio::time::timeout(ANSWER, next.run(request)).await.unwrap_or_else(|_| {
            let message = format!("the hub could not answer within {} s", ANSWER.as_secs());
            InventoryProblem::new(StatusCode::GATEWAY_TIMEOUT, message).into_response()
        }),
        Err(problem) => problem.into_response(),
    };
    audit.inventory(user.as_deref().unwrap_or_default(), &question, answer.status().as_u16());
    answer
}

fn user(headers: &HeaderMap) -> Option<String> {
    let user = headers.get(REMOTE_USER).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    user.filter(|user| !user.is_empty())
}

fn check(request: &Request, user: Option<&str>) -> Result<(), InventoryProblem> {
    if user.is_none() {
        return Err(InventoryProblem::new(StatusCode::UNAUTHORIZED, "the API server does not say who is asking"));
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Err(InventoryProblem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{GROUP} is read-only; use get or list"),
        ));
    }
    let bad = |message: String| InventoryProblem::new(StatusCode::BAD_REQUEST, message);
    let Query(parameters) = Query::<Vec<(String, String)>>::try_from_uri(request.uri())
        .map_err(|error| bad(format!("the query cannot be read: {error}")))?;
    for (name, value) in &parameters {
        match name.as_str() {
            "fieldSelector" | "labelSelector" => return Err(bad(format!("{GROUP} does not support {name}"))),
            "watch" if !["false", "0"].contains(&value.as_str()) => {
                return Err(InventoryProblem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    format!("{GROUP} cannot be watched"),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
