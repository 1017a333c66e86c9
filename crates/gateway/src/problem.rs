//! Refusals of calls. The client gets a short problem (RFC 9457); the audit log gets the cause.

use std::time::Duration;

use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::body::{OutBody, full};
use addon_signer_core::gateway::access::{NoAccess, NoStanding};
use addon_signer_core::gateway::path::PathError;
use addon_signer_core::gateway::slots::NoSlot;
use addon_signer_core::gateway::{PROBLEM_REVOKED, PROBLEM_TYPES};

/// The paths of the gateway, for whoever calls another.
pub(super) const PATHS: &str = "/v1/whoami, /v1/bundle and /addons/<addon>/";

/// Why a call is refused. The text goes into the audit log.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    NoStanding(#[from] NoStanding),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{} already", calls(*.0))]
    TooManyCalls(NoSlot),
    #[error("there is nothing at that path")]
    NotFound,
    #[error(transparent)]
    NoAccess(#[from] NoAccess),
    #[error("upgrades are not supported")]
    Upgrade,
    #[error("the request's body is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the client sent nothing of its body for {0:?}")]
    ClientSlow(Duration),
    #[error("the client sent its body more slowly than {0} bytes a second")]
    ClientTrickles(u64),
    #[error("the client's body ended early: {0}")]
    ClientBroke(String),
    #[error("the backend did not answer within {0:?}")]
    BackendSlow(Duration),
    #[error("the backend failed: {0}")]
    Backend(String),
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

impl Refusal {
    /// CamelCase name for the audit log.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NoStanding(cause) => cause.reason(),
            Self::TooManyCalls(NoSlot::AddOn(_)) => "TooManyCalls",
            Self::TooManyCalls(NoSlot::Cluster(_)) => "TooManyCallsOfCluster",
            Self::Path(_) | Self::NoAccess(NoAccess::Path(_)) => "PathNotAllowed",
            Self::NotFound => "NotFound",
            Self::NoAccess(NoAccess::AnotherAddOn(_)) => "AnotherAddOn",
            Self::NoAccess(NoAccess::NoRoute) => "NoRoute",
            Self::NoAccess(NoAccess::Method(_)) => "MethodNotAllowed",
            Self::NoAccess(NoAccess::Content(_)) => "ContentNotAllowed",
            Self::Upgrade => "UpgradeNotSupported",
            Self::TooLarge(_) => "BodyTooLarge",
            Self::ClientSlow(_) | Self::ClientTrickles(_) => "ClientSlow",
            Self::ClientBroke(_) => "BodyBroken",
            Self::BackendSlow(_) => "UpstreamSlow",
            Self::Backend(_) => "UpstreamFailed",
            Self::NoBundle => "NoBundle",
        }
    }

    /// Whether the caller's connection ends with this answer.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self, Self::NoStanding(cause) if !cause.is_not_ready())
    }

    /// Status, last part of the type, title.
    fn kind(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NoStanding(cause) if cause.is_not_ready() => {
                (StatusCode::SERVICE_UNAVAILABLE, "not-ready", "The gateway is not ready")
            }
            Self::NoStanding(NoStanding::NotRegistered { .. }) => {
                (StatusCode::FORBIDDEN, "not-registered", "The addon is not registered on this cluster")
            }
            Self::NoStanding(NoStanding::Revoked { .. } | NoStanding::OlderThanAddOn { .. }) => {
                (StatusCode::FORBIDDEN, PROBLEM_REVOKED, "The certificate is revoked")
            }
            Self::NoStanding(NoStanding::TooManyConnections { .. }) => {
                (StatusCode::TOO_MANY_REQUESTS, "too-many-connections", "There are too many connections")
            }
            Self::TooManyCalls(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "too-many-calls", "There are too many calls at once")
            }
            Self::NoStanding(_) => (StatusCode::FORBIDDEN, "not-an-identity", "The certificate is not an identity"),
            Self::Path(_) | Self::NoAccess(NoAccess::Path(_)) => {
                (StatusCode::BAD_REQUEST, "bad-path", "The path is not allowed")
            }
            Self::NotFound => (StatusCode::NOT_FOUND, "not-found", "There is nothing here"),
            Self::NoAccess(NoAccess::AnotherAddOn(_)) => {
                (StatusCode::FORBIDDEN, "another-addon", "The path belongs to another addon")
            }
            Self::NoAccess(NoAccess::NoRoute) => (StatusCode::NOT_FOUND, "no-route", "The addon has no such route"),
            Self::NoAccess(NoAccess::Method(_)) => {
                (StatusCode::METHOD_NOT_ALLOWED, "method", "The method is not allowed here")
            }
            Self::NoAccess(NoAccess::Content(_)) => {
                (StatusCode::BAD_REQUEST, "content", "This method may not have a body here")
            }
            Self::Upgrade => (StatusCode::NOT_IMPLEMENTED, "upgrade", "Upgrades are not supported"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large"),
            Self::ClientSlow(_) | Self::ClientTrickles(_) => {
                (StatusCode::REQUEST_TIMEOUT, "client-slow", "The body did not arrive in time")
            }
            Self::ClientBroke(_) => (StatusCode::BAD_REQUEST, "body-broken", "The body ended early"),
            Self::BackendSlow(_) => (StatusCode::GATEWAY_TIMEOUT, "upstream-slow", "The addon's backend is too slow"),
            Self::Backend(_) => (StatusCode::BAD_GATEWAY, "upstream", "The addon's backend failed"),
            Self::NoBundle => (StatusCode::SERVICE_UNAVAILABLE, "no-bundle", "There is no bundle yet"),
        }
    }

    /// What the caller may know beyond the title: what to do, and nothing about the gateway's internals.
    fn detail(&self) -> String {
        match self {
            Self::NoStanding(cause) if cause.is_not_ready() => "ask again in a moment".to_owned(),
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
            Self::NoStanding(_) => "enrol again for a certificate that the hub accepts".to_owned(),
            Self::Path(error) | Self::NoAccess(NoAccess::Path(error)) => error.to_string(),
            Self::NotFound => format!("the gateway has only {PATHS}"),
            Self::NoAccess(NoAccess::AnotherAddOn(_)) => {
                "use /addons/<addon>/ with the addon of the certificate".to_owned()
            }
            Self::NoAccess(NoAccess::NoRoute) => {
                "the gateway.routes of the AddOnSigner list the paths that exist".to_owned()
            }
            Self::NoAccess(NoAccess::Method(allowed)) => format!("allowed here: {allowed}"),
            Self::NoAccess(NoAccess::Content(method)) => format!("send the {method} without a body"),
            Self::Upgrade => "send the request without an Upgrade header".to_owned(),
            Self::TooLarge(max) => format!("at most {max} bytes are allowed here"),
            Self::ClientSlow(timeout) => format!("nothing arrived for {timeout:?}"),
            Self::ClientTrickles(rate) => format!("send at least {rate} bytes a second"),
            Self::ClientBroke(_) => "the request was not complete".to_owned(),
            Self::BackendSlow(timeout) => format!("the backend did not answer within {timeout:?}"),
            Self::Backend(_) => "the backend could not be reached or did not speak HTTP".to_owned(),
            Self::NoBundle => "ask again in a moment".to_owned(),
        }
    }

    /// The response to the client.
    pub(super) fn response(&self) -> Response<OutBody> {
        let (status, name, title) = self.kind();
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
