//! The status that an AddOnRoute should have, and the task that writes it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::Resource;
use kube::api::{Api, PatchParams};
use kube::runtime::events::{EventType, Recorder};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use super::{AllJudged, Judged};
use crate::HubLinks;
use crate::conditions::{condition, event, patch_of_status, reporter, time};
use crate::lease::NotWritten;
use addon_signer_api::route::{
    AddOnRouteStatus, CONDITION_ACCEPTED, CONDITION_PROGRAMMED, CONDITION_RESOLVED_REFS, REASON_NO_ENDPOINT,
};
use addon_signer_api::{AddOnRoute, Guarded};
use addon_signer_core::conditions::{
    ACCEPTED, FALSE, INVALID, PROGRAMMED, RESOLVED, STATUS_NOT_WRITTEN, TOO_MANY_ADDON_ROUTES, TRUE, UNKNOWN,
    UNSUPPORTED_VALUE,
};
use addon_signer_core::doubling::RevertBackoff;
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::gateway::routing::{BackendTarget, RoutePlan};
use addon_signer_core::oldest::MOST_ROUTES;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::errors::explain;
use addon_signer_telemetry::pulse::Pulse;

/// That the gateway uses it. Its owner may not read the gateway's logs.
const IN_EFFECT: &str = "All its paths are in effect. If a request fails nevertheless, its agent gets the cause: the \
                         detail of the problem in the response, or grpc-message.";
/// The shortest pause between two rounds, because another program may undo what the hub writes.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before the hub writes again what another program keeps undoing.
const LONGEST: Duration = Duration::from_secs(600);
/// The shortest pause between two reports that a namespace has too many.
const SAY_AGAIN: Duration = Duration::from_secs(600);
/// How often the hub checks all statuses without a change: a write may have failed.
const ROUND: Duration = Duration::from_secs(15);

/// What was last written to an AddOnRoute. If another program keeps undoing it, the hub writes with growing pauses.
struct Written {
    status: AddOnRouteStatus,
    reverts: RevertBackoff<Instant>,
}

impl Written {
    fn nothing() -> Self {
        Self { status: AddOnRouteStatus::default(), reverts: RevertBackoff::new(PAUSE, LONGEST) }
    }

    /// Whether a status may be written now, which then counts as written.
    fn may_write(&mut self, status: &AddOnRouteStatus) -> bool {
        let mut status = status.clone();
        // Ignore when a condition changed: that depends on what the other program has written.
        status
            .conditions
            .iter_mut()
            .for_each(|condition| condition.last_transition_time = time(Timestamp::from_unix(0)));
        if self.status != status {
            *self = Self { status, ..Self::nothing() };
        } else if self.reverts.due().is_some_and(|due| Instant::now() < due) {
            return false;
        }
        self.reverts.wrote(Instant::now());
        true
    }
}

/// Writes conditions while the hub leads.
pub(crate) struct StatusWriter {
    pub(crate) links: HubLinks,
    pub(crate) judged: watch::Receiver<AllJudged>,
    pub(crate) pulse: Pulse,
}

impl StatusWriter {
    /// Runs until judging ends.
    pub(crate) async fn run(mut self) {
        let mut written = BTreeMap::<RouteName, Written>::new();
        let mut logged = BTreeMap::new();
        loop {
            self.pulse.beat();
            let judged = self.judged.borrow_and_update().clone();
            written.retain(|name, _| judged.routes.contains_key(name));
            logged.retain(|_, logged: &mut Instant| logged.elapsed() < SAY_AGAIN);
            for name in &judged.left_out {
                if self.links.leading.leads().is_ok() && !logged.contains_key(&name.namespace) {
                    logged.insert(name.namespace.clone(), Instant::now());
                    self.say_left_out(name).await;
                }
            }
            for (name, one) in &judged.routes {
                let wanted = status_of(one, self.links.clock.now());
                if one.route.status.as_ref() == Some(&wanted) {
                    continue;
                }
                if !written.entry(name.clone()).or_insert_with(Written::nothing).may_write(&wanted) {
                    continue;
                }
                match self.write(name, one, &wanted).await {
                    Ok(()) => {}
                    Err(NotWritten::NotLeading(_)) => break,
                    Err(error) => {
                        warn!(route = %name, %error, "Could not write the status of an AddOnRoute; the hub retries");
                        let is_logged = logged.contains_key(&name.namespace);
                        if error.is_lasting() && !is_logged {
                            logged.insert(name.namespace.clone(), Instant::now());
                            let RouteName { namespace, name } = name;
                            let note = format!("The status of the AddOnRoute {name} cannot be written: {error}");
                            self.say(namespace, STATUS_NOT_WRITTEN, note).await;
                        }
                    }
                }
                self.pulse.beat();
            }
            tokio::time::sleep(PAUSE).await;
            if let Ok(Err(_)) = tokio::time::timeout(ROUND, self.judged.changed()).await {
                return;
            }
        }
    }

    /// Reports the oldest AddOnRoute without effect. Of the others, nothing is kept.
    async fn say_left_out(&self, name: &RouteName) {
        let RouteName { namespace, name: route } = name;
        let note = format!(
            "The AddOnRoute {route} and younger ones take no effect: there are {MOST_ROUTES} older ones, which is the \
             most."
        );
        self.say(namespace, TOO_MANY_ADDON_ROUTES, note).await;
    }

    /// Writes an event about an AddOnRoute. The event refers to the namespace: the hub may not write events about
    /// objects in it.
    async fn say(&self, namespace: &str, reason: &str, note: String) {
        let about = ObjectReference {
            api_version: Some(Namespace::api_version(&()).into_owned()),
            kind: Some(Namespace::kind(&()).into_owned()),
            name: Some(namespace.to_owned()),
            ..ObjectReference::default()
        };
        let event = event(EventType::Warning, "Reading", reason, note);
        if let Err(error) = Recorder::new(self.links.client.clone(), reporter()).publish(&event, &about).await {
            // Not retried: the command `check` reports it too.
            warn!(namespace, error = explain(&error), "Could not write an event about an AddOnRoute");
        }
    }

    async fn write(&self, name: &RouteName, one: &Judged, status: &AddOnRouteStatus) -> Result<(), NotWritten> {
        let leads = self.links.leading.leads().map_err(NotWritten::from)?;
        let api: Api<Guarded<AddOnRoute>> = Api::namespaced(self.links.client.clone(), &name.namespace);
        let patch = patch_of_status(one.route.uid.as_ref(), status);
        leads.write(api.patch_status(&name.name, &PatchParams::default(), &patch)).await.map(drop)
    }
}

/// The status of an AddOnRoute that was just judged.
fn status_of(judged: &Judged, now: Timestamp) -> AddOnRouteStatus {
    let before = judged.route.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let generation = judged.route.generation;
    let say = |kind: &str, status: &str, reason: &str, message: String| {
        condition(before, (kind, status, reason), message, generation, now)
    };
    let conditions = match (&judged.verdict, &judged.route.plan) {
        (Some(verdict), _) => [
            (CONDITION_ACCEPTED, &verdict.accepted, (ACCEPTED, "The AddOnSigner lets it attach.")),
            (CONDITION_RESOLVED_REFS, &verdict.resolved, (RESOLVED, "The backend was found.")),
            (CONDITION_PROGRAMMED, &verdict.programmed, (PROGRAMMED, IN_EFFECT)),
        ]
        .map(|(kind, outcome, (reason, good))| match outcome {
            // The table of kubectl has the reason of Programmed.
            Ok(()) if kind != CONDITION_ACCEPTED && !verdict.has_endpoint => {
                let sentence = "The backend was found, but it has no ready endpoint: requests are answered with 503.";
                say(kind, TRUE, REASON_NO_ENDPOINT, sentence.to_owned())
            }
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
        (None, Ok(_)) => Vec::new(), // cannot happen: each readable route gets a verdict
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

/// Makes a sentence; the name of a field keeps its small letter.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::condition;

    /// A status with this backend, and with a condition that changed at this time.
    fn mk_status(backend: &str, changed: i64) -> AddOnRouteStatus {
        let now = Timestamp::from_unix(changed);
        let accepted = condition(&[], ("Accepted", TRUE, "Accepted"), "Yes.".to_owned(), Some(1), now);
        AddOnRouteStatus { backend: backend.to_owned(), conditions: vec![accepted], ..AddOnRouteStatus::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_is_undone_is_written_with_growing_pauses() {
        let mut written = Written::nothing();
        let mut writes = 0;
        for second in 0..3600 {
            writes += u32::from(written.may_write(&mk_status("a:1", second)));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!((10..=16).contains(&writes), "{writes}");
        assert!(written.may_write(&mk_status("b:1", 0)), "another status is written at once");
    }
}
