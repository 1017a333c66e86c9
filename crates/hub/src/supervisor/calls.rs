//! The calls of the supervisor, a few at a time alongside its loop, so that no AddOnSigner waits for the calls of
//! others.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, Recorder};
use tracing::warn;

use super::pending::CallEnd;
use super::{Supervisor, reporter};
use addon_signer_platform::errors::explain;

impl Supervisor {
    /// Starts the calls for which there is a free slot.
    pub(super) fn begin_calls(&mut self) {
        self.begin_reviews();
        self.begin_writes();
    }

    /// Handles the outcome of a call.
    pub(super) fn take(&mut self, end: CallEnd) {
        match end {
            CallEnd::Asked(name, signer_name, answer) => self.take_answer(&name, &signer_name, answer),
            CallEnd::Written(written) => self.take_written(*written),
            CallEnd::WrittenUndecodable(name, written) => self.take_written_undecodable(name, written),
            CallEnd::Said => {}
        }
    }

    /// A Recorder merges events with the same reason and keeps the first note, so another note gets another one.
    fn recorder(&mut self, name: &str, event: &Event) -> Recorder {
        let of_reason = (name.to_owned(), event.reason.clone());
        match self.recorders.get(&of_reason) {
            Some((note, recorder)) if *note == event.note => recorder.clone(),
            _ => {
                let recorder = Recorder::new(self.links.client.clone(), reporter());
                self.recorders.insert(of_reason, (event.note.clone(), recorder.clone()));
                recorder
            }
        }
    }

    /// Writes an event about an AddOnSigner.
    pub(super) fn write_event(&mut self, name: &str, event: Event, about: ObjectReference) {
        let (recorder, signer) = (self.recorder(name, &event), name.to_owned());
        self.calls.push(Box::pin(async move {
            if let Err(error) = recorder.publish(&event, &about).await {
                // Not retried: the status has the result.
                warn!(signer, error = explain(&error), "Could not write an event about an AddOnSigner");
            }
            CallEnd::Said
        }));
    }
}
