//! Handles the events of the watch of AddOnSigners.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use tokio::time::Instant;
use tracing::warn;

use super::changes::event;
use super::pending::CallEnd;
use super::{LIST_PAUSE, Supervisor, WRITES};
use crate::lease::NotWritten;
use crate::relist::News;
use crate::supervisor::status;
use addon_signer_api::ocm::created_at;
use addon_signer_api::{AddOnSigner, GuardedSigner};
use addon_signer_core::oldest::{MOST_SIGNERS, Place};
use addon_signer_platform::errors::explain;

/// How often it is said at most that AddOnSigners take no effect.
const TELL_AGAIN: Duration = Duration::from_secs(600);

/// An object was not read; `undecodable` says why.
struct Undecodable;

impl Supervisor {
    /// Handles one event, then starts and stops tasks to match.
    pub(super) fn observe(&mut self, event: Event<GuardedSigner>) {
        match self.relist.news(event, |object| Some(object.name_any())) {
            None => {
                self.listed.clear();
                self.oldest.begin_list();
            }
            Some(News::There(object)) => self.there(object),
            Some(News::Gone(object)) => {
                let name = object.name_any();
                self.oldest.remove("", &name);
                self.gone(name);
            }
            Some(News::Listed(shown)) => self.complete(shown),
        }
    }

    /// An object exists. If it is one too many, it is as if it did not.
    fn there(&mut self, object: GuardedSigner) {
        let name = object.name_any();
        let younger = match self.oldest.put("", &name, created_at(object.meta())) {
            Place::TooMany => {
                self.leave_out(name);
                if !self.relist.is_listing() && self.oldest.exceeded().any(|(.., count)| count == 1) {
                    self.tell_left_out();
                }
                return;
            }
            Place::Chosen(younger) => younger,
        };
        if let Some(younger) = younger {
            self.leave_out(younger);
        }
        // What a list shows has no effect before it is complete: what is missing may have a better claim.
        if self.relist.is_listing() {
            self.listed.push(object);
        } else {
            self.put(object);
            self.settle([name]);
        }
    }

    /// Whether one has come to take effect of which only the name is known.
    pub(super) fn must_list_again(&mut self) -> bool {
        let is_idle = self.signers.borrow().is_some() && !self.relist.is_listing();
        let is_due = is_idle && self.oldest.has_vacancy() && Instant::now() >= self.next_list;
        if is_due {
            self.next_list = Instant::now() + LIST_PAUSE;
        }
        is_due
    }

    fn leave_out(&mut self, name: String) {
        self.listed.retain(|listed| listed.name_any() != name);
        if self.objects.contains_key(&name) || self.undecodable.contains_key(&name) {
            self.gone(name);
        }
    }

    fn gone(&mut self, name: String) {
        self.objects.remove(&name);
        self.undecodable.remove(&name);
        self.notes.deleted(&name);
        self.settle([name]);
    }

    fn put(&mut self, object: GuardedSigner) {
        let name = object.name_any();
        let before = self.objects.remove(&name);
        let decoded = self.decoded(object);
        if decoded.is_ok() {
            self.undecodable.remove(&name);
        }
        if let Ok(Some(object)) = decoded {
            self.notes.configured(&object);
            if before.is_some_and(|before| before.metadata.generation != object.metadata.generation) {
                self.writing.add_first(&name);
            }
            self.objects.insert(name, object);
        }
    }

    /// A list is complete: it has shown these objects, some of which are being deleted.
    fn complete(&mut self, shown: HashSet<String>) {
        let known: Vec<String> = self.objects.keys().chain(self.undecodable.keys()).cloned().collect();
        for object in std::mem::take(&mut self.listed) {
            self.put(object);
        }
        self.oldest.retain(|_, name| shown.contains(name));
        self.tell_left_out();
        self.objects.retain(|name, _| shown.contains(name));
        self.undecodable.retain(|name, _| shown.contains(name));
        self.notes.listed(self.objects.keys().chain(self.undecodable.keys()).cloned().collect());
        let there: Vec<String> = self.objects.keys().chain(self.undecodable.keys()).cloned().collect();
        self.settle(there.into_iter().chain(known));
        self.tell_signers(); // that there are none, too
        self.trust_publisher.set_listed();
    }

    /// Says of the oldest AddOnSigner that takes no effect, because there are too many, that this is so.
    fn tell_left_out(&mut self) {
        let Some((_, name, count)) = self.oldest.exceeded().next() else { return };
        if self.told_left_out.is_some_and(|told| told.elapsed() < TELL_AGAIN) {
            return;
        }
        self.told_left_out = Some(Instant::now());
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
            self.write_event(&name, event(EventType::Warning, "Reading", "TooManyAddOnSigners", note), about);
        }
    }

    /// The object, unless it is being deleted.
    fn decoded(&mut self, object: GuardedSigner) -> Result<Option<AddOnSigner>, Undecodable> {
        let name = object.name_any();
        let error = match object.read() {
            Ok(object) => return Ok(object.metadata.deletion_timestamp.is_none().then_some(object)),
            Err(error) => error,
        };
        // The object's status cannot be read either, so compare with the last error that was reported.
        if self.undecodable.insert(name.clone(), error.clone()).as_ref() != Some(&error) {
            warn!(signer = name, error, "An AddOnSigner cannot be read; the hub signs nothing for it");
            self.unsaid.insert(name);
            self.say_undecodable();
        }
        Err(Undecodable)
    }

    /// Writes the error into the status of objects that cannot be decoded. The next round retries a write that fails.
    pub(super) fn say_undecodable(&mut self) {
        let Ok(leads) = self.links.leading.leads() else { return };
        let now = self.links.clock.now();
        // Each may be as large as an API server accepts, which has to read and write it.
        while self.calls.len() < WRITES
            && let Some(name) = self.unsaid.pop_first()
        {
            let Some(error) = self.undecodable.get(&name).cloned() else { continue };
            let (leads, api) = (leads.clone(), self.api.clone());
            self.calls.push(Box::pin(async move {
                let written = status::write_undecodable(&leads, &api, &name, &error, now).await;
                CallEnd::WrittenUndecodable(name, written)
            }));
        }
    }

    pub(super) fn take_written_undecodable(&mut self, name: String, written: Result<(), NotWritten>) {
        if let Err(error) = written {
            let error = explain(&error);
            warn!(signer = name, error, "Could not write the status of an AddOnSigner; the hub retries");
            self.unsaid.insert(name);
        }
    }
}
