//! Writes the conditions of AddOnRoutes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::api::{Api, PatchParams};
use kube::runtime::events::{EventType, Recorder};
use kube::{Client, Resource};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use super::{AllJudged, Judged, status};
use crate::conditions::{event, patch_of_status, reporter, time};
use crate::lease::{Leading, NotWritten};
use addon_signer_api::{AddOnRoute, AddOnRouteStatus, Guarded};
use addon_signer_core::conditions::{STATUS_NOT_WRITTEN, TOO_MANY_ADDON_ROUTES};
use addon_signer_core::doubling::RevertBackoff;
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::oldest::MOST_ROUTES;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::errors::explain;
use addon_signer_telemetry::pulse::Pulse;

/// The pause between two rounds: another program may undo what the hub writes.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before the hub writes again what another program keeps undoing.
const LONGEST: Duration = Duration::from_secs(600);
/// How often it is said at most of a namespace that it has too many.
const SAY_AGAIN: Duration = Duration::from_secs(600);
/// How often the hub looks, even if nothing changes: a write may have failed.
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
        // When a condition changed depends on what the other program has written.
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
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) leading: Leading,
    pub(crate) judged: watch::Receiver<AllJudged>,
    pub(crate) pulse: Pulse,
}

impl StatusWriter {
    /// Runs until nothing is judged any more.
    pub(crate) async fn run(mut self) {
        let mut written = BTreeMap::<RouteName, Written>::new();
        let mut said = BTreeMap::new();
        loop {
            self.pulse.beat();
            let judged = self.judged.borrow_and_update().clone();
            written.retain(|name, _| judged.routes.contains_key(name));
            said.retain(|_, said: &mut Instant| said.elapsed() < SAY_AGAIN);
            for name in &judged.left_out {
                if self.leading.leads().is_ok() && !said.contains_key(&name.namespace) {
                    said.insert(name.namespace.clone(), Instant::now());
                    self.say_left_out(name).await;
                }
            }
            for (name, one) in &judged.routes {
                let wanted = status::wanted(one, self.clock.now());
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
                        let is_told = said.contains_key(&name.namespace);
                        if error.is_lasting() && !is_told {
                            said.insert(name.namespace.clone(), Instant::now());
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

    /// Nothing more is kept of those that take no effect.
    async fn say_left_out(&self, name: &RouteName) {
        let RouteName { namespace, name: route } = name;
        let note = format!(
            "The AddOnRoute {route} and younger ones take no effect: there are {MOST_ROUTES} older ones, which is the \
             most."
        );
        self.say(namespace, TOO_MANY_ADDON_ROUTES, note).await;
    }

    /// Writes an event about an AddOnRoute. It is about the namespace: the hub has no right to write events about what
    /// is in it.
    async fn say(&self, namespace: &str, reason: &str, note: String) {
        let about = ObjectReference {
            api_version: Some(Namespace::api_version(&()).into_owned()),
            kind: Some(Namespace::kind(&()).into_owned()),
            name: Some(namespace.to_owned()),
            ..ObjectReference::default()
        };
        let event = event(EventType::Warning, "Reading", reason, note);
        if let Err(error) = Recorder::new(self.client.clone(), reporter()).publish(&event, &about).await {
            // Not retried: the command check says it too.
            warn!(namespace, error = explain(&error), "Could not write an event about an AddOnRoute");
        }
    }

    async fn write(&self, name: &RouteName, one: &Judged, status: &AddOnRouteStatus) -> Result<(), NotWritten> {
        let leads = self.leading.leads().map_err(NotWritten::from)?;
        let api: Api<Guarded<AddOnRoute>> = Api::namespaced(self.client.clone(), &name.namespace);
        let patch = patch_of_status(one.route.uid.as_ref(), status);
        leads.write(api.patch_status(&name.name, &PatchParams::default(), &patch)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::condition;

    /// A status that says this, with a condition that changed at this time.
    fn mk_status(backend: &str, changed: i64) -> AddOnRouteStatus {
        let now = Timestamp::from_unix(changed);
        let accepted = condition(&[], "Accepted", true, "Accepted", "Yes.".to_owned(), Some(1), now);
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
