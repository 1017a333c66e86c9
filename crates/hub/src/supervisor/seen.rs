//! What tests see of a supervisor.

use tokio::sync::watch;

use super::{Served, Supervisor};
use crate::registrations::wanted::Signers;
use addon_signer_api::AddOnSignerSpec;

impl Supervisor {
    pub(super) fn served(&self, name: &str) -> Option<&Served> {
        self.served.get(name)
    }

    pub(super) fn all_served(&self) -> impl Iterator<Item = (&String, &Served)> {
        self.served.iter()
    }

    /// Why the hub does not serve an object.
    pub(super) fn refusal(&self, name: &str) -> Option<&(&'static str, String)> {
        self.refused.get(name)
    }

    pub(super) fn is_undecodable(&self, name: &str) -> bool {
        self.undecodable.contains_key(name)
    }

    /// Whether it remembers any that was served and is not.
    pub(super) fn has_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// What it has told the writer of registrations.
    pub(super) fn signers(&self) -> Option<Signers> {
        self.signers.borrow().clone()
    }

    /// The next one about whose rights the API server is to be asked.
    pub(super) fn next_asked(&mut self) -> Option<String> {
        self.asking.begin().inspect(|name| self.asking.end(name))
    }

    /// The specifications that the ledger knows.
    pub(super) fn set_recorded(&mut self, specs: Vec<AddOnSignerSpec>) {
        self.recorded = watch::channel(specs).1;
    }
}
