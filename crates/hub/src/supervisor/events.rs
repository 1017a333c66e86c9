//! Handles the events of the watch of AddOnSigners.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use tokio::time::Instant;
use tracing::warn;

use super::calls::{CallEnd, WRITES};
use super::entry::Read;
use super::{Supervisor, status};
use crate::conditions::event;
use crate::lease::NotWritten;
use crate::relist::{News, Relist};
use addon_signer_api::ocm::created_at;
use addon_signer_api::{AddOnSigner, GuardedSigner};
use addon_signer_core::conditions::TOO_MANY_ADDON_SIGNERS;
use addon_signer_core::oldest::{MOST_SIGNERS, Oldest, Place};
use addon_signer_platform::errors::explain;

/// The shortest pause between two reports that AddOnSigners take no effect.
const TELL_AGAIN: Duration = Duration::from_secs(600);

/// The shortest time between two lists that find AddOnSigners that have taken effect since.
const LIST_PAUSE: Duration = Duration::from_secs(30);

/// The current list of AddOnSigners, and which of them take effect.
pub(super) struct SignerList {
    relist: Relist<String>,
    /// What the list has shown.
    shown: Vec<GuardedSigner>,
    oldest: Oldest,
    /// The earliest time of another list, if an AddOnSigner takes effect now.
    next: Instant,
    /// When the hub last reported that AddOnSigners take no effect.
    reported_left_out: Option<Instant>,
}

impl Default for SignerList {
    fn default() -> Self {
        Self {
            relist: Relist::default(),
            shown: Vec::new(),
            oldest: Oldest::new(MOST_SIGNERS),
            next: Instant::now(),
            reported_left_out: None,
        }
    }
}

impl Supervisor {
    /// Handles one event, then starts and stops tasks to match.
    pub(super) fn observe(&mut self, event: Event<GuardedSigner>) {
        match self.list.relist.news(event, |object| Some(object.name_any())) {
            None => {
                self.list.shown.clear();
                self.list.oldest.begin_list();
            }
            Some(News::There(object)) => self.there(object),
            Some(News::Deleted(object)) => {
                let name = object.name_any();
                self.list.oldest.remove("", &name);
                self.gone(name);
            }
            Some(News::Listed(shown)) => self.complete(shown),
        }
    }

    /// Handles an object that exists. One that exceeds the limit counts as missing.
    fn there(&mut self, object: GuardedSigner) {
        let name = object.name_any();
        let younger = match self.list.oldest.put("", &name, created_at(object.meta())) {
            Place::TooMany => {
                self.leave_out(name);
                if !self.list.relist.is_listing() && self.list.oldest.exceeded().any(|(.., count)| count == 1) {
                    self.tell_left_out();
                }
                return;
            }
            Place::Chosen(younger) => younger,
        };
        if let Some(younger) = younger {
            self.leave_out(younger);
        }
        // Apply a list only when it is complete: an older owner may come later in it.
        if self.list.relist.is_listing() {
            self.list.shown.push(object);
        } else {
            self.put(object);
            self.reconcile([name]);
        }
    }

    /// Whether an AddOnSigner of which only the name was kept now takes effect.
    pub(super) fn must_list_again(&mut self) -> bool {
        let is_idle = self.ends.signers.borrow().is_some() && !self.list.relist.is_listing();
        let is_due = is_idle && self.list.oldest.has_vacancy() && Instant::now() >= self.list.next;
        if is_due {
            self.list.next = Instant::now() + LIST_PAUSE;
        }
        is_due
    }

    fn leave_out(&mut self, name: String) {
        self.list.shown.retain(|shown| shown.name_any() != name);
        if self.entries.get(&name).is_some_and(|entry| !entry.is_gone()) {
            self.gone(name);
        }
    }

    fn gone(&mut self, name: String) {
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.read = Read::Removed;
        }
        self.ends.notes.deleted(&name);
        self.reconcile([name]);
    }

    /// Keeps the object, unless it is being deleted.
    fn put(&mut self, object: GuardedSigner) {
        let name = object.name_any();
        let entry = self.entries.entry(name.clone()).or_default();
        match object.read() {
            Ok(object) if object.metadata.deletion_timestamp.is_some() => entry.read = Read::Removed,
            Ok(object) => {
                self.ends.notes.configured(&object);
                if entry.object().is_some_and(|before| before.metadata.generation != object.metadata.generation) {
                    self.calls.writing.add_first(&name);
                }
                entry.read = Read::Object(Box::new(object));
            }
            // The object's status cannot be read either, so compare with the last error that was reported.
            Err(error) if matches!(&entry.read, Read::Undecodable { error: known, .. } if *known == error) => {}
            Err(error) => {
                warn!(signer = name, error, "An AddOnSigner cannot be read; the hub signs nothing for it");
                entry.read = Read::Undecodable { error, is_reported: false };
                self.say_undecodable();
            }
        }
    }

    /// Handles a complete list, which has shown these objects; some of them are being deleted.
    fn complete(&mut self, shown: HashSet<String>) {
        for object in std::mem::take(&mut self.list.shown) {
            self.put(object);
        }
        self.list.oldest.retain(|_, name| shown.contains(name));
        self.tell_left_out();
        for (_, entry) in self.entries.iter_mut().filter(|(name, _)| !shown.contains(*name)) {
            entry.read = Read::Removed;
        }
        let there = self.entries.iter().filter(|(_, entry)| !entry.is_gone());
        self.ends.notes.listed(there.map(|(name, _)| name.clone()).collect());
        self.reconcile(self.entries.keys().cloned().collect::<Vec<_>>());
        self.tell_signers(); // also if there are none
        self.trust_publisher.set_listed();
    }

    /// Reports the oldest AddOnSigner that takes no effect because there are too many.
    fn tell_left_out(&mut self) {
        let Some((_, name, count)) = self.list.oldest.exceeded().next() else { return };
        if self.list.reported_left_out.is_some_and(|reported| reported.elapsed() < TELL_AGAIN) {
            return;
        }
        self.list.reported_left_out = Some(Instant::now());
        let name = name.to_owned();
        warn!(
            signer = name,
            count, "AddOnSigners take no effect: there are {MOST_SIGNERS} older ones, which is the most"
        );
        if self.links.leading.leads().is_ok() {
            let note = format!("It takes no effect: there are {MOST_SIGNERS} older AddOnSigners, which is the most.");
            let about = ObjectReference {
                api_version: Some(AddOnSigner::api_version(&()).into_owned()),
                kind: Some(AddOnSigner::kind(&()).into_owned()),
                name: Some(name.clone()),
                ..ObjectReference::default()
            };
            self.calls.write_event(&name, event(EventType::Warning, "Reading", TOO_MANY_ADDON_SIGNERS, note), about);
        }
    }

    /// Writes the error into the status of objects that cannot be decoded. The next round retries a write that fails.
    pub(super) fn say_undecodable(&mut self) {
        let Ok(leads) = self.links.leading.leads() else { return };
        let now = self.links.clock.now();
        for (name, entry) in &mut self.entries {
            // Each object may be as large as the API server accepts, and the API server has to read and write it.
            if self.calls.under_way.len() >= WRITES {
                return;
            }
            let Read::Undecodable { error, is_reported: is_reported @ false } = &mut entry.read else { continue };
            *is_reported = true;
            let (leads, api, name, error) = (leads.clone(), self.api.clone(), name.clone(), error.clone());
            self.calls.under_way.push(Box::pin(async move {
                let written = status::write_undecodable(&leads, &api, &name, &error, now).await;
                CallEnd::WrittenUndecodable(name, written)
            }));
        }
    }

    pub(super) fn take_written_undecodable(&mut self, name: &str, written: Result<(), NotWritten>) {
        let Err(error) = written else { return };
        let error = explain(&error);
        warn!(signer = name, error, "Could not write the status of an AddOnSigner; the hub retries");
        if let Some(Read::Undecodable { is_reported, .. }) = self.entries.get_mut(name).map(|entry| &mut entry.read) {
            *is_reported = false;
        }
    }
}
