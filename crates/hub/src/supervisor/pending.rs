//! What waits for calls of the supervisor, and how calls end.

use std::collections::{BTreeSet, VecDeque};

use kube::runtime::events::Event;

use crate::conditions::Validity;
use crate::lease::NotWritten;
use addon_signer_api::AddOnSignerStatus;
use addon_signer_core::identity::SignerName;

/// The outcome of a call.
pub(super) enum CallEnd {
    /// The API server was asked whether the hub may sign for an AddOnSigner with this signer name.
    Asked(String, SignerName, Result<Validity, kube::Error>),
    /// The status of an AddOnSigner was written, or not.
    Written(Box<WrittenStatus>),
    /// That of an AddOnSigner that cannot be decoded.
    WrittenUndecodable(String, Result<(), NotWritten>),
    /// An event was written, or not.
    Said,
}

/// A status that was written, or not.
pub(super) struct WrittenStatus {
    pub(super) name: String,
    /// `metadata.resourceVersion` of the object that it was written for.
    pub(super) version: Option<String>,
    pub(super) status: AddOnSignerStatus,
    /// What it changes, as events.
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

    /// Adds one at the front of the queue: somebody has edited it and is watching it.
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
