//! What the supervisor and the writer of registrations tell each other: which signers there are, and which were
//! deleted, even while no hub was watching; and what became of the registrations, for statuses and events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::{Event, EventType};
use tokio::sync::watch;

use super::Supervisor;
use super::changes::REGISTERING;
use super::entry::{Entry, SignerState};
use crate::conditions::{Report, event};
use crate::csrs::answerers::Answerer;
use crate::registrations::wanted::Signers;
use crate::tasks::send_news;
use addon_signer_api::registrations::REASON_TAKEN_AWAY;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::identity::{AddOnKey, SignerName};
use addon_signer_core::oldest::MOST_SIGNERS;

/// The most addons of one report that get an event; the condition counts all.
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

/// What the writer of registrations must know besides the served AddOnSigners.
pub(super) struct Registered {
    /// The last configuration of AddOnSigners that were deleted while this hub ran, by their signer names.
    pub(super) deleted: BTreeMap<SignerName, Arc<SignerConfig>>,
    /// The configurations that the ledger has of AddOnSigners with registrations; some may have been deleted while no
    /// hub was watching.
    pub(super) recorded: watch::Receiver<Vec<Arc<SignerConfig>>>,
    /// Addons that the hub left to another program in the last report that events were written for.
    pub(super) left: Arc<BTreeSet<AddOnKey>>,
}

impl Registered {
    pub(super) fn new(recorded: watch::Receiver<Vec<Arc<SignerConfig>>>) -> Self {
        Self { deleted: BTreeMap::new(), recorded, left: Arc::default() }
    }

    /// Notes an AddOnSigner that was deleted.
    pub(super) fn delete(&mut self, config: Arc<SignerConfig>) {
        // After a restart, the ledger still knows those that are dropped here.
        if self.deleted.len() >= MOST_SIGNERS {
            self.deleted.pop_first();
        }
        self.deleted.insert(config.rules.signer_name.clone(), config);
    }
}

impl Supervisor {
    /// Why the CSRs for the signer names of AddOnSigners that are not served wait.
    fn refused(&self) -> BTreeMap<String, Answerer> {
        let refused = self.entries.values().filter_map(|entry| {
            let signer_name = entry.object()?.spec.signer_name.clone();
            let SignerState::Refused((reason, _), _) = &entry.state else { return None };
            // The message may name other AddOnSigners, which clusters must not learn.
            let problem = Some(format!("the AddOnSigner says {reason}"));
            Some((signer_name, Answerer { leaves_approval: false, problem }))
        });
        refused.collect()
    }

    /// Tells the writer of registrations about the signers as they are now.
    pub(super) fn tell_signers(&mut self) {
        let names: BTreeSet<&str> = self.objects().map(|(_, object)| object.spec.signer_name.as_str()).collect();
        let is_gone = |name: &SignerName| !names.contains(name.as_str());
        let mut deleted = self.registered.deleted.clone();
        deleted.retain(|name, _| is_gone(name));
        let seen = deleted.clone();
        // The signer name of an undecodable object is unknown, so it may be any of them.
        if !self.entries.values().any(Entry::is_undecodable) {
            // What this hub has seen is newer than what the ledger reported at the start.
            let recorded = self.registered.recorded.borrow();
            for config in recorded.iter().filter(|config| is_gone(&config.rules.signer_name)) {
                deleted.entry(config.rules.signer_name.clone()).or_insert_with(|| Arc::clone(config));
            }
        }
        self.registered.deleted = seen;
        let served = self.all_served().map(|(name, served)| (name.clone(), served.config.borrow().clone()));
        let served: BTreeMap<_, _> = served.collect();
        let addons = self.objects().flat_map(|(_, object)| self.owned(object));
        self.ends.notes.serve(addons.filter_map(|addon| addon.parse().ok()).collect());
        let signers = Signers {
            served: Arc::new(served),
            deleted: Arc::new(deleted),
            refused: Arc::new(self.refused()),
            is_readable: !self.entries.values().any(Entry::is_undecodable),
            is_whole: !self.trust_publisher.has_unserved(),
        };
        send_news(&self.ends.signers, Some(signers));
    }
}
