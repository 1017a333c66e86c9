//! Handles the events of the watch of AddOnSigners.

use std::collections::HashSet;

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use tracing::warn;

use super::Supervisor;
use super::pending::CallEnd;
use crate::lease::NotWritten;
use crate::relist::News;
use crate::supervisor::status;
use addon_signer_api::{AddOnSigner, GuardedSigner};
use addon_signer_platform::errors::explain;

/// An object was not read; `undecodable` says why.
struct Undecodable;

impl Supervisor {
    /// Handles one event, then starts and stops tasks to match.
    pub(super) fn observe(&mut self, event: Event<GuardedSigner>) {
        match self.relist.news(event, |object| Some(object.name_any())) {
            None => self.listed.clear(),
            // What a list shows has no effect before it is complete: what is missing may have a better claim.
            Some(News::There(object)) if self.relist.is_listing() => self.listed.push(object),
            Some(News::There(object)) => {
                let name = object.name_any();
                self.put(object);
                self.settle([name]);
            }
            Some(News::Gone(object)) => {
                let name = object.name_any();
                self.objects.remove(&name);
                self.undecodable.remove(&name);
                self.notes.deleted(&name);
                self.settle([name]);
            }
            Some(News::Listed(shown)) => self.complete(shown),
        }
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
        self.objects.retain(|name, _| shown.contains(name));
        self.undecodable.retain(|name, _| shown.contains(name));
        self.notes.listed(self.objects.keys().chain(self.undecodable.keys()).cloned().collect());
        self.settle(shown.into_iter().chain(known));
        self.tell_signers(); // that there are none, too
        self.trust_publisher.set_listed();
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
        for name in std::mem::take(&mut self.unsaid) {
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
