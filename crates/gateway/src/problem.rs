//! Refusals of requests. The client gets a short problem (RFC 9457); the audit log gets the cause.

use std::borrow::Cow;
use std::time::Duration;

use h2::Reason;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::backend::{Failure, Fault};
use super::ending::EndCause;
use super::grpc;
use super::upload::UploadError;
use addon_signer_core::gateway::access::{NoAccess, NotEligible};
use addon_signer_core::gateway::permits::NoPermit;
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::gateway::{PROBLEM_REVOKED, PROBLEM_TYPES};
use addon_signer_core::table;

/// Why a request is refused. The text goes into the audit log.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    NotEligible(#[from] NotEligible),
    #[error("{} already", requests(*.0))]
    TooManyRequests(NoPermit),
    #[error("the caller already has {0} requests on the route")]
    TooManyRequestsOfRoute(usize),
    #[error(transparent)]
    NoAccess(#[from] NoAccess),
    #[error("the upgrade is not supported")]
    Upgrade,
    #[error("the request has more than {0} headers")]
    TooManyHeaders(usize),
    #[error("the client sent nothing of its body for {0:?}")]
    ClientSilent(Duration),
    #[error(transparent)]
    Upload(UploadError),
    #[error("the backend did not answer within {0:?}")]
    BackendSlow(Duration),
    #[error("the backend failed: {}", .0.cause)]
    Backend(Failure),
    #[error("the backend reset the stream: {0}")]
    BackendReset(Reason),
    #[error("the serving CA does not exist yet")]
    NoBundle,
}

fn requests(whose: NoPermit) -> String {
    match whose {
        NoPermit::AddOn(max) => format!("the addon already has {max} requests on its connections from the cluster"),
        NoPermit::Cluster(max) => format!("the addons of the cluster already have {max} requests"),
    }
}

impl From<UploadError> for Refusal {
    fn from(error: UploadError) -> Self {
        match error {
            // Before the response begins, only the client of a stream can be silent for too long.
            UploadError::Silent(time) => Self::ClientSilent(time),
            error => Self::Upload(error),
        }
    }
}

impl From<&EndCause> for Refusal {
    fn from(cause: &EndCause) -> Self {
        match cause {
            EndCause::Eligibility(cause) => Self::NotEligible(cause.clone()),
            EndCause::Route => Self::NoAccess(NoAccess::NoRoute),
        }
    }
}

impl Refusal {
    /// Adds the route whose backend failed.
    pub(super) fn on(self, route: &RouteName) -> Self {
        match self {
            Self::Backend(Failure { fault, cause }) => Self::Backend(fault.because(format!("{cause} (route {route})"))),
            other => other,
        }
    }

    /// Whether the caller's connection ends with this response.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self, Self::NotEligible(cause) if !cause.is_not_ready())
    }

    /// Whether the caller needs another certificate.
    fn is_credential(&self) -> bool {
        self.ends_connection() && !matches!(self, Self::NotEligible(NotEligible::TooManyConnections { .. }))
    }

    /// The response to the client.
    pub(super) fn response(&self, problem: &Problem, is_grpc: bool) -> Response<Bytes> {
        let Problem { status, title, ref detail, .. } = *problem;
        if is_grpc {
            return grpc::refusal(status, self.is_credential(), &format!("{title}: {detail}"));
        }
        let details =
            Details { kind: format!("{PROBLEM_TYPES}{}", problem.name), title, status: status.as_u16(), detail };
        // All members are texts or numbers, so serialising does not fail.
        let mut response = Response::new(Bytes::from(serde_json::to_vec(&details).unwrap_or_default()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Self::NoAccess(NoAccess::Method(allowed)) = self
            && let Ok(allowed) = HeaderValue::from_str(allowed)
        {
            headers.insert(ALLOW, allowed);
        }
        response
    }
}

/// The content of the response (RFC 9457 section 3).
#[derive(Serialize)]
struct Details<'p> {
    #[serde(rename = "type")]
    kind: String,
    title: &'p str,
    status: u16,
    detail: &'p str,
}

/// What logs, metrics and clients get of a refusal. The rest of this file is the table of all refusals.
pub(super) struct Problem {
    /// CamelCase name for the audit log.
    pub(super) cause: &'static str,
    status: StatusCode,
    /// The last part of its type. Metrics and the access log have it too.
    pub(super) name: &'static str,
    title: &'static str,
    /// What the caller may know beyond the title: what to do, and nothing about the gateway's internals.
    detail: Cow<'static, str>,
}

/// Status, name, title.
type Kind = (StatusCode, &'static str, &'static str);

impl Problem {
    fn new(cause: &'static str, (status, name, title): Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { cause, status, name, title, detail: detail.into() }
    }
}

table! {
    /// All problems.
    pub PROBLEMS of Kind;
    /// The gateway does not know clusters, addons and routes yet.
    NOT_READY = (StatusCode::SERVICE_UNAVAILABLE, "not-ready", "The gateway is not ready");
    /// The addon is not eligible on this cluster.
    NOT_REGISTERED = (StatusCode::FORBIDDEN, "not-registered", "The addon is not registered on this cluster");
    /// The certificate is revoked, or its ManagedClusterAddOn or ManagedCluster has been deleted and recreated since;
    /// enrol again.
    REVOKED = (StatusCode::FORBIDDEN, PROBLEM_REVOKED, "The certificate is revoked");
    /// The certificate is not that of an addon's agent, or the gateway trusts no certificate authority now.
    NOT_AN_IDENTITY = (StatusCode::FORBIDDEN, "not-an-identity", "The certificate is not an identity");
    /// The addon already has all its connections from the cluster.
    TOO_MANY_CONNECTIONS = (StatusCode::TOO_MANY_REQUESTS, "too-many-connections", "There are too many connections");
    /// The addon already has all its requests from the cluster, or all that the AddOnRoute allows it
    /// (`requestsPerIdentity`); try again when one has ended.
    TOO_MANY = (StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "There are too many requests at once");
    /// The path could mean several things: it has more than 128 segments, an empty segment, a segment of dots and
    /// spaces, an encoded separator, a `%` without two digits, or bytes that are not UTF-8 once decoded. Or another
    /// route would get it in another normal form of the path (paths.md): if its case, `;parameters`, trailing dots and
    /// spaces or a file extension were ignored, or if it were normalised (NFKC) or decoded twice.
    BAD_PATH = (StatusCode::BAD_REQUEST, "bad-path", "The path is not allowed");
    /// `Host` or `:authority` is not a name of the gateway that the client's addon may use.
    MISDIRECTED = (StatusCode::MISDIRECTED_REQUEST, "misdirected", "The host is not one of the gateway's");
    /// The path is `/addons`, without the name of an addon.
    NOT_FOUND = (StatusCode::NOT_FOUND, "not-found", "There is nothing here");
    /// The path belongs to another addon.
    ANOTHER_ADDON = (StatusCode::FORBIDDEN, "another-addon", "The path belongs to another addon");
    /// No AddOnRoute of the addon matches the path.
    NO_ROUTE = (StatusCode::NOT_FOUND, "no-route", "The addon has no such route");
    /// The segment `{cluster}` of the path names another cluster.
    ANOTHER_CLUSTER = (StatusCode::FORBIDDEN, "another-cluster", "The path belongs to another cluster");
    /// The AddOnRoute is not for the client's cluster.
    CLUSTER_NOT_ADMITTED = (StatusCode::FORBIDDEN, "cluster-not-admitted", "The route is not for this cluster");
    /// The AddOnRoute has no backend now, for instance because its Service does not exist or has no ready endpoint; its
    /// condition `ResolvedRefs` says why.
    NO_BACKEND = (StatusCode::SERVICE_UNAVAILABLE, "no-backend", "The route has no backend now");
    /// The path does not take this method; the header `Allow` lists those that it takes.
    METHOD = (StatusCode::METHOD_NOT_ALLOWED, "method", "The method is not allowed here");
    /// A `GET`, `HEAD` or `DELETE` has a body; a route may allow it for `DELETE` (`deleteWithContent`).
    CONTENT = (StatusCode::BAD_REQUEST, "content", "This method may not have a body here");
    /// The gateway does not pass this upgrade on: it is to HTTP (`h2c`) or TLS, it comes with a body, `Connection` does
    /// not name it, or the backend speaks only HTTP/2.
    UPGRADE = (StatusCode::NOT_IMPLEMENTED, "upgrade", "The upgrade is not supported");
    /// The request has more than 100 headers.
    TOO_MANY_HEADERS =
        (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too-many-headers", "The request has too many headers");
    /// The body is larger than `maxBody`.
    TOO_LARGE = (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large");
    /// No part of the body arrived for as long as `firstByte` (for gRPC `idle`), or less than 256 bytes a second.
    CLIENT_SLOW = (StatusCode::REQUEST_TIMEOUT, "client-slow", "The body did not arrive in time");
    /// The body ended early.
    BODY_BROKEN = (StatusCode::BAD_REQUEST, "body-broken", "The body ended early");
    /// The backend did not answer within `firstByte`.
    BACKEND_SLOW = (StatusCode::GATEWAY_TIMEOUT, "backend-slow", "The addon's backend is too slow");
    /// The backend could not be reached, has another certificate, or did not speak its protocol; `detail` says which.
    BACKEND = (StatusCode::BAD_GATEWAY, "backend", "The addon's backend failed");
    /// There is no trust bundle yet.
    NO_BUNDLE = (StatusCode::SERVICE_UNAVAILABLE, "no-bundle", "There is no bundle yet");
}

const ASK_AGAIN: &str = "ask again in a moment";
const OWN_ADDON: &str = "use /addons/<addon>/ with the addon of the certificate";

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NotEligible(cause) => cause.into(),
            Refusal::NoAccess(cause) => cause.into(),
            Refusal::TooManyRequests(whose) => {
                let detail = format!("{}; wait until one has ended", may_have(*whose));
                let cause = match whose {
                    NoPermit::AddOn(_) => "TooManyRequests",
                    NoPermit::Cluster(_) => "TooManyRequestsOfCluster",
                };
                Self::new(cause, TOO_MANY, detail)
            }
            Refusal::TooManyRequestsOfRoute(max) => Self::new(
                "TooManyRequestsOfRoute",
                TOO_MANY,
                format!("from one cluster the addon may have {max} on this route; wait until one has ended"),
            ),
            Refusal::Upgrade => Self::new(
                "UpgradeNotSupported",
                UPGRADE,
                "send the request without an Upgrade header, or with one protocol that the backend speaks",
            ),
            Refusal::TooManyHeaders(max) => {
                Self::new("TooManyHeaders", TOO_MANY_HEADERS, format!("at most {max} headers are allowed"))
            }
            Refusal::Upload(UploadError::TooLarge(max)) => {
                Self::new("BodyTooLarge", TOO_LARGE, format!("at most {max} bytes are allowed here"))
            }
            Refusal::ClientSilent(time) | Refusal::Upload(UploadError::Silent(time)) => {
                Self::new("ClientSlow", CLIENT_SLOW, format!("nothing arrived for {time:?}"))
            }
            Refusal::Upload(UploadError::Slow(rate)) => {
                Self::new("ClientSlow", CLIENT_SLOW, format!("send at least {rate} bytes a second"))
            }
            Refusal::Upload(UploadError::Client) => {
                Self::new("BodyBroken", BODY_BROKEN, "the request was not complete")
            }
            Refusal::BackendSlow(timeout) => {
                Self::new("BackendSlow", BACKEND_SLOW, format!("the backend did not answer within {timeout:?}"))
            }
            Refusal::Backend(failure) => Self::new("BackendFailed", BACKEND, failure.fault.as_str()),
            Refusal::BackendReset(_) => Self::new("BackendFailed", BACKEND, Fault::Closed.as_str()),
            Refusal::NoBundle => Self::new("NoBundle", NO_BUNDLE, ASK_AGAIN),
        }
    }
}

impl From<&NotEligible> for Problem {
    fn from(cause: &NotEligible) -> Self {
        let (kind, detail): (Kind, Cow<'static, str>) = match cause {
            _ if cause.is_not_ready() => (NOT_READY, ASK_AGAIN.into()),
            NotEligible::NotRegistered { .. } => {
                (NOT_REGISTERED, "the hub does not let this addon on this cluster in, or no longer does".into())
            }
            NotEligible::Revoked { .. } | NotEligible::OlderThanAddOn { .. } => {
                (REVOKED, "enrol again for a new certificate".into())
            }
            NotEligible::TooManyConnections { whose, .. } => {
                (TOO_MANY_CONNECTIONS, format!("{}; use the ones that are open", may_have(*whose)).into())
            }
            NotEligible::NothingInEffect | NotEligible::NotAnIdentity(_) => {
                (NOT_AN_IDENTITY, "enrol again for a certificate that the hub accepts".into())
            }
        };
        Self::new(cause.reason(), kind, detail)
    }
}

impl From<&NoAccess> for Problem {
    fn from(cause: &NoAccess) -> Self {
        match cause {
            NoAccess::NotReady => Self::new("NotReady", NOT_READY, ASK_AGAIN),
            NoAccess::Host(_) => {
                Self::new("Misdirected", MISDIRECTED, "use a name of the gateway that the addon may use")
            }
            NoAccess::NotFound => Self::new("NotFound", NOT_FOUND, OWN_ADDON),
            NoAccess::AnotherAddOn(_) => Self::new("AnotherAddOn", ANOTHER_ADDON, OWN_ADDON),
            NoAccess::NoRoute => {
                Self::new("NoRoute", NO_ROUTE, "the AddOnRoutes of the addon list the paths that exist")
            }
            NoAccess::Path(error) => Self::new("PathNotAllowed", BAD_PATH, error.to_string()),
            NoAccess::AnotherCluster(_) => {
                Self::new("AnotherCluster", ANOTHER_CLUSTER, "use the name of the cluster in the certificate")
            }
            NoAccess::ClusterNotAdmitted(_) => Self::new(
                "ClusterNotAdmitted",
                CLUSTER_NOT_ADMITTED,
                "spec.clusters of the AddOnRoute does not include the cluster",
            ),
            NoAccess::Method(allowed) => Self::new("MethodNotAllowed", METHOD, format!("allowed here: {allowed}")),
            NoAccess::Content(method) => {
                Self::new("ContentNotAllowed", CONTENT, format!("send the {method} without a body"))
            }
            NoAccess::NoBackend { .. } => {
                Self::new("NoBackend", NO_BACKEND, "the condition ResolvedRefs of the AddOnRoute says why")
            }
        }
    }
}

fn may_have(whose: NoPermit) -> String {
    match whose {
        NoPermit::AddOn(max) => format!("from one cluster the addon may have {max}"),
        NoPermit::Cluster(max) => format!("all addons of one cluster may have {max} together"),
    }
}

/// The status with which a request is refused, and the name of the problem.
#[must_use]
pub fn problem_of(cause: &NoAccess) -> (u16, &'static str) {
    let Problem { status, name, .. } = cause.into();
    (status.as_u16(), name)
}

/// The same for all requests of a client.
#[must_use]
pub fn problem_of_client(cause: &NotEligible) -> (u16, &'static str) {
    let Problem { status, name, .. } = cause.into();
    (status.as_u16(), name)
}
