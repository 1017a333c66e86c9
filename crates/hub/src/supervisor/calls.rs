//! The calls of the supervisor, a few at a time alongside its loop, so that no AddOnSigner waits for the calls of
//! others.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder};
use tracing::warn;

use super::Supervisor;
use super::pending::{CallEnd, PendingCalls};
use crate::conditions::reporter;
use addon_signer_platform::errors::explain;

/// How many reviews of rights, and how many writes of statuses, run side by side.
const REVIEWS: usize = 8;
pub(super) const WRITES: usize = 8;

/// The calls that are under way, and what waits for one.
pub(super) struct Calls {
    client: Client,
    pub(super) under_way: FuturesUnordered<BoxFuture<'static, CallEnd>>,
    /// AddOnSigners about whose rights the API server is to be asked.
    pub(super) asking: PendingCalls,
    /// AddOnSigners whose status may have to be written.
    pub(super) writing: PendingCalls,
    /// The last note about each AddOnSigner for each reason, and the recorder that has written it.
    recorders: BTreeMap<(String, String), (Option<String>, Recorder)>,
}

impl Calls {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            under_way: FuturesUnordered::new(),
            asking: PendingCalls::new(REVIEWS),
            writing: PendingCalls::new(WRITES),
            recorders: BTreeMap::new(),
        }
    }

    /// Whether the last event about an AddOnSigner with its reason had the same note.
    pub(super) fn was_last(&self, name: &str, event: &Event) -> bool {
        let last = self.recorders.get(&(name.to_owned(), event.reason.clone()));
        last.is_some_and(|(note, _)| *note == event.note)
    }

    /// A Recorder merges events with the same reason and keeps the first note, so another note gets another one.
    fn recorder(&mut self, name: &str, event: &Event) -> Recorder {
        let of_reason = (name.to_owned(), event.reason.clone());
        match self.recorders.get(&of_reason) {
            Some((note, recorder)) if *note == event.note => recorder.clone(),
            _ => {
                let recorder = Recorder::new(self.client.clone(), reporter());
                self.recorders.insert(of_reason, (event.note.clone(), recorder.clone()));
                recorder
            }
        }
    }

    /// Writes an event about an AddOnSigner.
    pub(super) fn write_event(&mut self, name: &str, event: Event, about: ObjectReference) {
        let (recorder, signer) = (self.recorder(name, &event), name.to_owned());
        self.under_way.push(Box::pin(async move {
            if let Err(error) = recorder.publish(&event, &about).await {
                // Not retried: the status has the result.
                warn!(signer, error = explain(&error), "Could not write an event about an AddOnSigner");
            }
            CallEnd::Said
        }));
    }

    /// Forgets the events about an AddOnSigner.
    pub(super) fn forget(&mut self, name: &str) {
        self.recorders.retain(|(signer, _), _| signer != name);
    }
}

impl Supervisor {
    /// Starts the calls for which there is a free permit.
    pub(super) fn begin_calls(&mut self) {
        self.begin_reviews();
        self.begin_writes();
    }

    /// Handles the outcome of a call.
    pub(super) fn take(&mut self, end: CallEnd) {
        match end {
            CallEnd::Asked(name, signer_name, answer) => self.take_answer(&name, &signer_name, answer),
            CallEnd::Written(written) => self.take_written(*written),
            CallEnd::WrittenUndecodable(name, written) => self.take_written_undecodable(&name, written),
            CallEnd::Said => {}
        }
    }
}
