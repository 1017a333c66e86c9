//! Reports the registrations of addons in the status of AddOnSigners and in events.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::{Event, EventType};

use super::Supervisor;
use super::changes::REGISTERING;
use super::entry::Entry;
use crate::conditions::Report;
use crate::conditions::event;
use addon_signer_api::registrations::REASON_TAKEN_AWAY;
use addon_signer_core::identity::AddOnKey;

/// How many addons of one report get an event at most; the condition counts all of them.
const EVENTS: usize = 10;

impl Supervisor {
    /// The condition `Registered` of an AddOnSigner; it stays as it was until the first report.
    pub(super) fn registered(&self, name: &str) -> Report {
        let Some(served) = self.served(name) else { return Report::Nothing };
        match &*self.ends.registrations.borrow() {
            Some(report) => report.condition(&served.config.borrow()).into(),
            None => Report::AsBefore,
        }
    }

    /// Writes an event for each addon that the hub newly leaves to another program.
    pub(super) fn tell_left(&mut self) {
        let Some(report) = self.ends.registrations.borrow().clone() else { return };
        let before = std::mem::replace(&mut self.registered.left, Arc::clone(&report.left));
        let mut news: Vec<(String, AddOnKey)> = Vec::new();
        for (name, served) in self.all_served() {
            let config = served.config.borrow().clone();
            news.extend(
                report.left_of(&config).filter(|key| !before.contains(key)).map(|key| (name.clone(), key.clone())),
            );
        }
        for (name, key) in news.into_iter().take(EVENTS) {
            let note = format!(
                "Another program keeps removing this signer from status.registrations of the ManagedClusterAddOn \
                 {key}; the hub leaves it to that program and tries again later."
            );
            let addon = ObjectReference {
                api_version: Some(self.shared.addons.now().resource().api_version),
                kind: Some("ManagedClusterAddOn".to_owned()),
                namespace: Some(key.cluster.to_string()),
                name: Some(key.addon.to_string()),
                ..ObjectReference::default()
            };
            let left = event(EventType::Warning, REGISTERING, REASON_TAKEN_AWAY, note);
            self.publish(&name, Event { secondary: Some(addon), ..left });
        }
    }

    /// Writes an event about an AddOnSigner, unless it is the last one with its reason.
    pub(super) fn publish_once(&mut self, name: &str, event: Event) {
        if !self.calls.was_last(name, &event) {
            self.publish(name, event);
        }
    }

    /// Writes an event about an AddOnSigner.
    pub(super) fn publish(&mut self, name: &str, event: Event) {
        let object = self.entries.get(name).and_then(Entry::object);
        let Some(about) = object.map(|object| object.object_ref(&())) else { return };
        self.calls.write_event(name, event, about);
    }
}
