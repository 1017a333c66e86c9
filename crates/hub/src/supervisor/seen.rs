//! What tests see of a supervisor.

use tokio::sync::watch;

use super::Supervisor;
use super::entry::{Entry, SignerState};
use crate::registrations::wanted::Signers;
use addon_signer_api::AddOnSignerSpec;

impl Supervisor {
    /// Why the hub does not serve an object.
    pub(super) fn refusal(&self, name: &str) -> Option<&(&'static str, String)> {
        match &self.entries.get(name)?.state {
            SignerState::Refused(refusal, _) => Some(refusal),
            SignerState::Idle(_) | SignerState::Served(_) => None,
        }
    }

    pub(super) fn is_undecodable(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(Entry::is_undecodable)
    }

    /// Whether it remembers any that was served and is not.
    pub(super) fn has_stopped(&self) -> bool {
        self.entries
            .values()
            .any(|entry| matches!(entry.state, SignerState::Idle(Some(_)) | SignerState::Refused(_, Some(_))))
    }

    /// What it has told the writer of registrations.
    pub(super) fn signers(&self) -> Option<Signers> {
        self.ends.signers.borrow().clone()
    }

    /// The next one about whose rights the API server is to be asked.
    pub(super) fn next_asked(&mut self) -> Option<String> {
        self.calls.asking.begin().inspect(|name| self.calls.asking.end(name))
    }

    /// The specifications that the ledger knows.
    pub(super) fn set_recorded(&mut self, specs: Vec<AddOnSignerSpec>) {
        self.registered.recorded = watch::channel(specs).1;
    }
}
