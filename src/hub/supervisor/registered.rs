//! What AddOnSigners and events say of the registrations of addons.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::{Event, EventType};
use tracing::warn;

use super::Supervisor;
use crate::api::registrations::REASON_TAKEN_AWAY;
use crate::hub::supervisor::status::Registered;
use addon_signer_core::identity::AddOnKey;
use addon_signer_platform::errors::explain;

/// How many addons get an event of their own at once; the condition counts all.
const EVENTS: usize = 10;
/// The longest note of an event, in bytes (Kubernetes, `pkg/apis/core/validation/events.go`, `NoteLengthLimit`).
const NOTE_MAX: usize = 1024;

impl Supervisor {
    /// The condition of an AddOnSigner that is served; what it said before, as long as nothing is known.
    pub(super) fn registered(&self, name: &str) -> Registered {
        let Some(served) = self.served.get(name).filter(|served| served.validity.is_ok()) else {
            return Registered::No;
        };
        match &*self.registrations.borrow() {
            Some(report) => report.condition(&served.config.borrow()).map_or(Registered::No, Registered::Told),
            None => Registered::AsBefore,
        }
    }

    /// An event for each addon that is newly left to another program.
    pub(super) async fn tell_left(&mut self) {
        let Some(report) = self.registrations.borrow().clone() else { return };
        let before = std::mem::replace(&mut self.left, Arc::clone(&report.left));
        let mut news: Vec<(String, AddOnKey)> = Vec::new();
        for (name, served) in &self.served {
            let config = served.config.borrow().clone();
            news.extend(
                report.left_of(&config).filter(|key| !before.contains(key)).map(|key| (name.clone(), key.clone())),
            );
        }
        for (name, key) in news.into_iter().take(EVENTS) {
            let note = format!(
                "Another program keeps taking this signer out of status.registrations of the ManagedClusterAddOn {key}; the hub \
                 leaves it to that program, and looks again later."
            );
            let addon = ObjectReference {
                api_version: Some(self.shared.addon_api.resource().api_version),
                kind: Some("ManagedClusterAddOn".to_owned()),
                namespace: Some(key.cluster.to_string()),
                name: Some(key.addon.to_string()),
                ..ObjectReference::default()
            };
            self.publish(&name, REASON_TAKEN_AWAY, note, Some(addon)).await;
        }
    }

    /// An event about an AddOnSigner.
    pub(super) async fn publish(&self, name: &str, reason: &str, mut note: String, secondary: Option<ObjectReference>) {
        let Some(object) = self.objects.get(name) else { return };
        note.truncate(note.floor_char_boundary(NOTE_MAX));
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Registering".to_owned(),
            secondary,
        };
        if let Err(error) = self.shared.recorder.publish(&event, &object.object_ref(&())).await {
            // The condition says the same; an event is a convenience.
            warn!(signer = name, error = explain(&error), "Writing an event about an AddOnSigner");
        }
    }
}
