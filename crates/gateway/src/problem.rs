//! Refusals of calls. The client gets a short problem (RFC 9457); the audit log gets the cause.

use std::time::Duration;

use h2::Reason;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::body::{OutBody, full};
use super::grpc;
use addon_signer_core::gateway::access::{NoAccess, NoStanding};
use addon_signer_core::gateway::path::PathError;
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::gateway::slots::NoSlot;
use addon_signer_core::gateway::{PROBLEM_REVOKED, PROBLEM_TYPES};

/// Why a call is refused. The text goes into the audit log.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    NoStanding(#[from] NoStanding),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{} already", calls(*.0))]
    TooManyCalls(NoSlot),
    #[error("the caller already has {0} calls on the route")]
    TooManyCallsOfRoute(usize),
    #[error(transparent)]
    NoAccess(#[from] NoAccess),
    #[error("the upgrade is not supported")]
    Upgrade,
    #[error("the request has more than {0} headers")]
    TooManyHeaders(usize),
    #[error("the request's body is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the client sent nothing of its body for {0:?}")]
    ClientSlow(Duration),
    #[error("the client sent its body more slowly than {0} bytes a second")]
    ClientTrickles(u64),
    #[error("the client's body ended early")]
    ClientBroke,
    #[error("the backend did not answer within {0:?}")]
    BackendSlow(Duration),
    #[error("the backend failed: {0}")]
    Backend(String),
    #[error("the backend reset the stream: {0}")]
    BackendReset(Reason),
    #[error("the serving CA does not exist yet")]
    NoBundle,
}

/// RFC 9457 section 3.
#[derive(Serialize)]
struct Problem<'p> {
    #[serde(rename = "type")]
    kind: String,
    title: &'p str,
    status: u16,
    detail: String,
}

fn calls(whose: NoSlot) -> String {
    match whose {
        NoSlot::AddOn(max) => format!("the addon already has {max} calls on its connections from the cluster"),
        NoSlot::Cluster(max) => format!("the addons of the cluster already have {max} calls"),
    }
}

fn may_have(whose: NoSlot) -> String {
    match whose {
        NoSlot::AddOn(max) => format!("from one cluster the addon may have {max}"),
        NoSlot::Cluster(max) => format!("all addons of one cluster may have {max} together"),
    }
}

/// Status, last part of the type, title.
type Kind = (StatusCode, &'static str, &'static str);

const BAD_PATH: Kind = (StatusCode::BAD_REQUEST, "bad-path", "The path is not allowed");

fn no_access(cause: &NoAccess) -> &'static str {
    match cause {
        NoAccess::NotReady => "NotReady",
        NoAccess::Host(_) => "Misdirected",
        NoAccess::NotFound => "NotFound",
        NoAccess::AnotherAddOn(_) => "AnotherAddOn",
        NoAccess::NoRoute => "NoRoute",
        NoAccess::Path(_) => "PathNotAllowed",
        NoAccess::AnotherCluster(_) => "AnotherCluster",
        NoAccess::ClusterNotAdmitted(_) => "ClusterNotAdmitted",
        NoAccess::Method(_) => "MethodNotAllowed",
        NoAccess::Content(_) => "ContentNotAllowed",
        NoAccess::NoBackend { .. } => "NoBackend",
    }
}

/// The status with which a call is refused, and the name of the problem.
#[must_use]
pub fn problem_of(cause: &NoAccess) -> (u16, &'static str) {
    let (status, name, _) = kind_of(cause);
    (status.as_u16(), name)
}

fn kind_of(cause: &NoAccess) -> Kind {
    match cause {
        NoAccess::NotReady => NOT_READY,
        NoAccess::Host(_) => (StatusCode::MISDIRECTED_REQUEST, "misdirected", "The host is not one of the gateway's"),
        NoAccess::NotFound => (StatusCode::NOT_FOUND, "not-found", "There is nothing here"),
        NoAccess::AnotherAddOn(_) => (StatusCode::FORBIDDEN, "another-addon", "The path belongs to another addon"),
        NoAccess::NoRoute => (StatusCode::NOT_FOUND, "no-route", "The addon has no such route"),
        NoAccess::Path(_) => BAD_PATH,
        NoAccess::AnotherCluster(_) => {
            (StatusCode::FORBIDDEN, "another-cluster", "The path belongs to another cluster")
        }
        NoAccess::ClusterNotAdmitted(_) => {
            (StatusCode::FORBIDDEN, "cluster-not-admitted", "The route is not for this cluster")
        }
        NoAccess::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "method", "The method is not allowed here"),
        NoAccess::Content(_) => (StatusCode::BAD_REQUEST, "content", "This method may not have a body here"),
        NoAccess::NoBackend { .. } => (StatusCode::SERVICE_UNAVAILABLE, "no-backend", "The route has no backend now"),
    }
}

fn detail_of(cause: &NoAccess) -> String {
    match cause {
        NoAccess::NotReady => ASK_AGAIN.to_owned(),
        NoAccess::Host(_) => "use a name of the gateway that the addon may use".to_owned(),
        NoAccess::NotFound | NoAccess::AnotherAddOn(_) => {
            "use /addons/<addon>/ with the addon of the certificate".to_owned()
        }
        NoAccess::NoRoute => "the AddOnRoutes of the addon list the paths that exist".to_owned(),
        NoAccess::Path(error) => error.to_string(),
        NoAccess::AnotherCluster(_) => "use the name of the cluster in the certificate".to_owned(),
        NoAccess::ClusterNotAdmitted(_) => "spec.clusters of the AddOnRoute does not include the cluster".to_owned(),
        NoAccess::Method(allowed) => format!("allowed here: {allowed}"),
        NoAccess::Content(method) => format!("send the {method} without a body"),
        NoAccess::NoBackend { .. } => "the condition ResolvedRefs of the AddOnRoute says why".to_owned(),
    }
}

const NOT_READY: Kind = (StatusCode::SERVICE_UNAVAILABLE, "not-ready", "The gateway is not ready");
const ASK_AGAIN: &str = "ask again in a moment";

impl Refusal {
    /// Says which route's backend failed.
    pub(super) fn on(self, route: &RouteName) -> Self {
        match self {
            Self::Backend(cause) => Self::Backend(format!("{cause} (route {route})")),
            other => other,
        }
    }

    /// CamelCase name for the audit log.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NoStanding(cause) => cause.reason(),
            Self::TooManyCalls(NoSlot::AddOn(_)) => "TooManyCalls",
            Self::TooManyCalls(NoSlot::Cluster(_)) => "TooManyCallsOfCluster",
            Self::TooManyCallsOfRoute(_) => "TooManyCallsOfRoute",
            Self::Path(_) => "PathNotAllowed",
            Self::NoAccess(cause) => no_access(cause),
            Self::Upgrade => "UpgradeNotSupported",
            Self::TooManyHeaders(_) => "TooManyHeaders",
            Self::TooLarge(_) => "BodyTooLarge",
            Self::ClientSlow(_) | Self::ClientTrickles(_) => "ClientSlow",
            Self::ClientBroke => "BodyBroken",
            Self::BackendSlow(_) => "BackendSlow",
            Self::Backend(_) | Self::BackendReset(_) => "BackendFailed",
            Self::NoBundle => "NoBundle",
        }
    }

    /// Whether the caller needs another certificate.
    fn is_credential(&self) -> bool {
        matches!(self, Self::NoStanding(cause)
            if !cause.is_not_ready() && !matches!(cause, NoStanding::TooManyConnections { .. }))
    }

    /// Whether the caller's connection ends with this answer.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self, Self::NoStanding(cause) if !cause.is_not_ready())
    }

    /// The name of the problem: the last part of its type.
    pub(super) fn name(&self) -> &'static str {
        self.kind().1
    }

    /// Status, last part of the type, title.
    fn kind(&self) -> Kind {
        match self {
            Self::NoStanding(cause) if cause.is_not_ready() => NOT_READY,
            Self::NoStanding(NoStanding::NotRegistered { .. }) => {
                (StatusCode::FORBIDDEN, "not-registered", "The addon is not registered on this cluster")
            }
            Self::NoStanding(NoStanding::Revoked { .. } | NoStanding::OlderThanAddOn { .. }) => {
                (StatusCode::FORBIDDEN, PROBLEM_REVOKED, "The certificate is revoked")
            }
            Self::NoStanding(NoStanding::TooManyConnections { .. }) => {
                (StatusCode::TOO_MANY_REQUESTS, "too-many-connections", "There are too many connections")
            }
            Self::TooManyCalls(_) | Self::TooManyCallsOfRoute(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "too-many-calls", "There are too many calls at once")
            }
            Self::NoStanding(_) => (StatusCode::FORBIDDEN, "not-an-identity", "The certificate is not an identity"),
            Self::Path(_) => BAD_PATH,
            Self::NoAccess(cause) => kind_of(cause),
            Self::Upgrade => (StatusCode::NOT_IMPLEMENTED, "upgrade", "The upgrade is not supported"),
            Self::TooManyHeaders(_) => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too-many-headers", "The request has too many headers")
            }
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large"),
            Self::ClientSlow(_) | Self::ClientTrickles(_) => {
                (StatusCode::REQUEST_TIMEOUT, "client-slow", "The body did not arrive in time")
            }
            Self::ClientBroke => (StatusCode::BAD_REQUEST, "body-broken", "The body ended early"),
            Self::BackendSlow(_) => (StatusCode::GATEWAY_TIMEOUT, "backend-slow", "The addon's backend is too slow"),
            Self::Backend(_) | Self::BackendReset(_) => {
                (StatusCode::BAD_GATEWAY, "backend", "The addon's backend failed")
            }
            Self::NoBundle => (StatusCode::SERVICE_UNAVAILABLE, "no-bundle", "There is no bundle yet"),
        }
    }

    /// What the caller may know beyond the title: what to do, and nothing about the gateway's internals.
    fn detail(&self) -> String {
        match self {
            Self::NoStanding(cause) if cause.is_not_ready() => ASK_AGAIN.to_owned(),
            Self::NoStanding(NoStanding::NotRegistered { .. }) => {
                "the hub does not let this addon on this cluster in, or no longer does".to_owned()
            }
            Self::NoStanding(NoStanding::Revoked { .. } | NoStanding::OlderThanAddOn { .. }) => {
                "enrol again for a new certificate".to_owned()
            }
            Self::NoStanding(NoStanding::TooManyConnections { whose, .. }) => {
                format!("{}; use the ones that are open", may_have(*whose))
            }
            Self::TooManyCalls(whose) => format!("{}; wait until one has ended", may_have(*whose)),
            Self::TooManyCallsOfRoute(max) => {
                format!("from one cluster the addon may have {max} on this route; wait until one has ended")
            }
            Self::NoStanding(_) => "enrol again for a certificate that the hub accepts".to_owned(),
            Self::Path(error) => error.to_string(),
            Self::NoAccess(cause) => detail_of(cause),
            Self::Upgrade => {
                "send the request without an Upgrade header, or with one protocol that the backend speaks".to_owned()
            }
            Self::TooManyHeaders(max) => format!("at most {max} headers are allowed"),
            Self::TooLarge(max) => format!("at most {max} bytes are allowed here"),
            Self::ClientSlow(timeout) => format!("nothing arrived for {timeout:?}"),
            Self::ClientTrickles(rate) => format!("send at least {rate} bytes a second"),
            Self::ClientBroke => "the request was not complete".to_owned(),
            Self::BackendSlow(timeout) => format!("the backend did not answer within {timeout:?}"),
            Self::Backend(_) | Self::BackendReset(_) => {
                "the backend could not be reached or did not speak HTTP".to_owned()
            }
            Self::NoBundle => ASK_AGAIN.to_owned(),
        }
    }

    /// The response to the client.
    pub(super) fn response(&self, is_grpc: bool) -> Response<OutBody> {
        let (status, name, title) = self.kind();
        if is_grpc {
            return grpc::refusal(status, self.is_credential(), &format!("{title}: {}", self.detail()));
        }
        let problem =
            Problem { kind: format!("{PROBLEM_TYPES}{name}"), title, status: status.as_u16(), detail: self.detail() };
        // All members are texts or numbers, so serialising does not fail.
        let mut response = Response::new(full(serde_json::to_vec(&problem).unwrap_or_default()));
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
