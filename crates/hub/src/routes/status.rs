//! The status that an AddOnRoute should have.

use super::Judged;
use crate::conditions::condition_of;
use addon_signer_api::route::{
    AddOnRouteStatus, CONDITION_ACCEPTED, CONDITION_PROGRAMMED, CONDITION_RESOLVED_REFS, REASON_NO_ENDPOINT,
};
use addon_signer_core::conditions::{ACCEPTED, FALSE, INVALID, PROGRAMMED, RESOLVED, TRUE, UNKNOWN, UNSUPPORTED_VALUE};
use addon_signer_core::gateway::routing::{BackendTarget, RoutePlan};
use addon_signer_core::timestamp::Timestamp;

/// The status of one that was judged now.
pub(super) fn wanted(judged: &Judged, now: Timestamp) -> AddOnRouteStatus {
    let before = judged.route.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let generation = judged.route.generation;
    let say = |kind: &str, status: &str, reason: &str, message: String| {
        condition_of(before, (kind, status, reason), message, generation, now)
    };
    let conditions = match (&judged.verdict, &judged.route.plan) {
        (Some(verdict), _) => [
            (CONDITION_ACCEPTED, &verdict.accepted, (ACCEPTED, "The AddOnSigner lets it attach.")),
            (CONDITION_RESOLVED_REFS, &verdict.resolved, found(verdict.has_endpoint)),
            (CONDITION_PROGRAMMED, &verdict.programmed, (PROGRAMMED, "All its paths are in effect.")),
        ]
        .map(|(kind, outcome, (reason, good))| match outcome {
            Ok(()) => say(kind, TRUE, reason, good.to_owned()),
            Err(problem) => {
                let status = if problem.is_pending() { UNKNOWN } else { FALSE };
                say(kind, status, problem.reason, sentence(&problem.cause))
            }
        })
        .into(),
        (None, Err(cause)) => vec![
            say(CONDITION_ACCEPTED, FALSE, UNSUPPORTED_VALUE, sentence(cause)),
            say(CONDITION_PROGRAMMED, FALSE, INVALID, "The AddOnRoute is not accepted.".to_owned()),
        ],
        (None, Ok(_)) => Vec::new(), // cannot happen: each one that is readable gets a verdict
    };
    let plan = judged.route.plan.as_ref().ok(); // the error is in the conditions
    AddOnRouteStatus {
        observed_generation: generation,
        hosts: plan.map(hosts).unwrap_or_default(),
        backend: plan.map(backend).unwrap_or_default(),
        gateway_client_ca: judged.client_anchors.clone(),
        conditions,
    }
}

fn found(has_endpoint: bool) -> (&'static str, &'static str) {
    if has_endpoint {
        return (RESOLVED, "The backend was found.");
    }
    (REASON_NO_ENDPOINT, "The backend was found, but it has no ready endpoint: requests are answered with 503.")
}

/// The name of a field begins with no capital.
fn sentence(cause: &str) -> String {
    if cause.starts_with("spec.") {
        return format!("{cause}.");
    }
    let mut chars = cause.chars();
    chars.next().map(|first| format!("{}{}.", first.to_uppercase(), chars.as_str())).unwrap_or_default()
}

fn hosts(plan: &RoutePlan) -> String {
    if plan.hostnames.is_empty() {
        return "*".to_owned();
    }
    plan.hostnames.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn backend(plan: &RoutePlan) -> String {
    match &plan.backend.target {
        BackendTarget::Service { name, port } => format!("{name}:{port}"),
        BackendTarget::Address(address) => address.to_string(),
    }
}
