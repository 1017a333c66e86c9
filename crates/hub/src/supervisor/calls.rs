//! The API calls of the supervisor, a few at a time alongside its loop, so that no AddOnSigner waits for the calls of
//! others: what waits for them, how they end, and the questions whether the hub may sign.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder};
use tokio::time::Instant;
use tracing::warn;

use super::entry::{Entry, Served};
use super::{MAX_LINES, Supervisor};
use crate::conditions::{Validity, reporter};
use crate::lease::NotWritten;
use crate::permission;
use addon_signer_api::AddOnSignerStatus;
use addon_signer_core::conditions::TOO_MANY_SIGNERS;
use addon_signer_core::identity::SignerName;
use addon_signer_platform::errors::explain;

/// How many reviews of rights and writes of statuses run at once.
const REVIEWS: usize = 8;
pub(super) const WRITES: usize = 8;

/// The calls under way, and those that wait.
pub(super) struct Calls {
    client: Client,
    pub(super) under_way: FuturesUnordered<BoxFuture<'static, CallEnd>>,
    /// AddOnSigners that need a SubjectAccessReview.
    pub(super) asking: PendingCalls,
    /// AddOnSigners whose status may have to be written.
    pub(super) writing: PendingCalls,
    /// The last note about each AddOnSigner for each reason, and the recorder that wrote it.
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

    /// A Recorder merges events with the same reason and keeps the first note, so each new note gets a new Recorder.
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
            CallEnd::Reported
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
            CallEnd::Reported => {}
        }
    }
}

/// The outcome of a call.
pub(super) enum CallEnd {
    /// The API server was asked whether the hub may sign for an AddOnSigner with this signer name.
    Asked(String, SignerName, Result<Validity, kube::Error>),
    /// The status of an AddOnSigner was written, or not.
    Written(Box<WrittenStatus>),
    /// The same for an AddOnSigner that cannot be decoded.
    WrittenUndecodable(String, Result<(), NotWritten>),
    /// An event was written, or not.
    Reported,
}

/// A status that was written, or not.
pub(super) struct WrittenStatus {
    pub(super) name: String,
    /// `metadata.resourceVersion` of the object that it was written for.
    pub(super) version: Option<String>,
    pub(super) status: AddOnSignerStatus,
    /// The events for its changes.
    pub(super) events: Vec<Event>,
    pub(super) outcome: Result<(), NotWritten>,
}

/// AddOnSigners that wait for a call of one kind, and those whose call is under way: one at a time for each.
pub(super) struct PendingCalls {
    most: usize,
    waiting: VecDeque<String>,
    under_way: BTreeSet<String>,
}

impl PendingCalls {
    /// The most calls that may be under way.
    pub(super) fn new(most: usize) -> Self {
        Self { most, waiting: VecDeque::new(), under_way: BTreeSet::new() }
    }

    /// Adds one at the end of the queue.
    pub(super) fn add(&mut self, name: &str) {
        if !self.waiting.iter().any(|waiting| waiting == name) {
            self.waiting.push_back(name.to_owned());
        }
    }

    /// Adds one at the front of the queue: an administrator has just edited it and waits for the result.
    pub(super) fn add_first(&mut self, name: &str) {
        self.waiting.retain(|waiting| waiting != name);
        self.waiting.push_front(name.to_owned());
    }

    /// The next one whose call may begin.
    pub(super) fn begin(&mut self) -> Option<String> {
        if self.under_way.len() >= self.most {
            return None;
        }
        let at = self.waiting.iter().position(|name| !self.under_way.contains(name))?;
        let name = self.waiting.remove(at)?;
        self.under_way.insert(name.clone());
        Some(name)
    }

    /// Notes that a call has ended.
    pub(super) fn end(&mut self, name: &str) {
        self.under_way.remove(name);
    }
}

impl Supervisor {
    /// Asks the API server soon whether the hub may sign for these signers. Otherwise a signer without its ClusterRole
    /// would seem healthy while the API server refuses every answer.
    pub(super) fn ask_about(&mut self, which: impl Fn(&Served) -> bool) {
        for (name, entry) in &self.entries {
            if entry.served().is_some_and(&which) {
                self.calls.asking.add(name);
            }
        }
    }

    /// Starts the reviews for which there is a free permit.
    pub(super) fn begin_reviews(&mut self) {
        while let Some(name) = self.calls.asking.begin() {
            let Some(served) = self.entries.get_mut(&name).and_then(Entry::served_mut) else {
                self.calls.asking.end(&name);
                continue;
            };
            served.asked = Some(Instant::now());
            let config = served.config.borrow().clone();
            let client = self.links.client.clone();
            self.calls.under_way.push(Box::pin(async move {
                let answer = permission::check(&client, &config.rules.signer_name, config.approves).await;
                CallEnd::Asked(name, config.rules.signer_name.clone(), answer)
            }));
        }
    }

    pub(super) fn take_answer(&mut self, name: &str, of: &SignerName, answer: Result<Validity, kube::Error>) {
        self.calls.asking.end(name);
        // Another object of this name may exist by now; its rights are reviewed separately.
        if self.served(name).is_none_or(|served| served.config.borrow().rules.signer_name != *of) {
            return;
        }
        let answer = answer.map(|permission| permission.and_then(|()| self.take_permit(name)));
        let Some(served) = self.entries.get_mut(name).and_then(Entry::served_mut) else { return };
        match answer {
            Ok(permission) => {
                // An existing lineage stays trusted if the right is revoked.
                if permission.is_ok() {
                    served.plan.send_if_modified(|plan| !std::mem::replace(&mut plan.may_create, true));
                }
                if served.permission != permission {
                    served.permission = permission;
                    self.calls.writing.add(name);
                }
            }
            Err(error) => {
                served.asked = None;
                let error = explain(&error);
                warn!(signer = name, error, "Could not ask the API server whether the hub may sign; the hub retries");
            }
        }
    }

    /// Takes a permit for the signer's lineage among those that the gateway trusts.
    fn take_permit(&mut self, name: &str) -> Validity {
        let lineages = self.entries.values().filter(|entry| entry.has_lineage).count();
        if let Some(entry) = self.entries.get_mut(name).filter(|entry| entry.has_lineage || lineages < MAX_LINES) {
            entry.has_lineage = true;
            return Ok(());
        }
        let sentence = format!(
            "The hub already has authorities for {MAX_LINES} AddOnSigners, the maximum; delete one that you do not \
             need, and this one gets its own within a minute."
        );
        Err((TOO_MANY_SIGNERS, sentence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_one_call_at_a_time_and_who_was_edited_goes_first() {
        let mut pending = PendingCalls::new(2);
        for name in ["a", "b", "a", "c"] {
            pending.add(name);
        }
        pending.add_first("c");
        assert_eq!([pending.begin(), pending.begin(), pending.begin()], [Some("c".to_owned()), Some("a".into()), None]);
        pending.add("a");
        pending.end("c");
        assert_eq!(pending.begin().as_deref(), Some("b"), "that of a is under way");
        pending.end("b");
        assert_eq!(pending.begin(), None);
        pending.end("a");
        assert_eq!(pending.begin().as_deref(), Some("a"));
    }
}
