//! Tells the writer of registrations which signers there are, and which were deleted, even while no hub was watching.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;

use super::Supervisor;
use super::entry::Entry;
use crate::registrations::wanted::Signers;
use addon_signer_api::AddOnSignerSpec;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::identity::{AddOnKey, SignerName};
use addon_signer_core::oldest::MOST_SIGNERS;

/// What the writer of registrations hears besides the AddOnSigners that are served.
pub(super) struct Registered {
    /// The last configuration of AddOnSigners that were deleted while this hub ran, by their signer names.
    pub(super) deleted: BTreeMap<SignerName, Arc<SignerConfig>>,
    /// The specifications of AddOnSigners that the ledger knows; some may have been deleted while no hub was watching.
    pub(super) recorded: watch::Receiver<Vec<AddOnSignerSpec>>,
    /// Addons that the hub left to another program in the last report that events were written for.
    pub(super) left: Arc<BTreeSet<AddOnKey>>,
}

impl Registered {
    pub(super) fn new(recorded: watch::Receiver<Vec<AddOnSignerSpec>>) -> Self {
        Self { deleted: BTreeMap::new(), recorded, left: Arc::default() }
    }

    /// Notes an AddOnSigner that was deleted.
    pub(super) fn delete(&mut self, config: Arc<SignerConfig>) {
        // After a restart the ledger knows those that were left out.
        if self.deleted.len() >= MOST_SIGNERS {
            self.deleted.pop_first();
        }
        self.deleted.insert(config.rules.signer_name.clone(), config);
    }

    /// The signers that the ledger knows and whose registrations the hub has written. A specification that is refused
    /// now was refused then too, or is older than the rule; its entries stay.
    fn recorded(&self) -> impl Iterator<Item = (SignerName, Arc<SignerConfig>)> {
        let specs = self.recorded.borrow().clone();
        let configs = specs.into_iter().filter_map(|spec| SignerConfig::read(&spec, None).ok());
        configs.filter(|config| config.registers).map(|it| (it.rules.signer_name.clone(), Arc::new(it)))
    }
}

impl Supervisor {
    /// Tells the writer of registrations about the signers as they are now.
    pub(super) fn tell_signers(&mut self) {
        let names: BTreeSet<&str> = self.objects().map(|(_, object)| object.spec.signer_name.as_str()).collect();
        let is_gone = |name: &SignerName| !names.contains(name.as_str());
        let mut deleted = self.registered.deleted.clone();
        deleted.retain(|name, _| is_gone(name));
        let seen = deleted.clone();
        // The signer name of an object that cannot be decoded is unknown, so any of them may be its.
        if !self.entries.values().any(Entry::is_undecodable) {
            // What this hub has seen itself is newer than what the ledger reported at the start.
            for (name, config) in self.registered.recorded().filter(|(name, _)| is_gone(name)) {
                deleted.entry(name).or_insert(config);
            }
        }
        self.registered.deleted = seen;
        let served = self.all_served().map(|(name, served)| (name.clone(), served.config.borrow().clone()));
        let served: BTreeMap<_, _> = served.collect();
        let addons = self.objects().flat_map(|(_, object)| self.owned(object));
        self.ends.notes.serve(addons.filter_map(|addon| addon.parse().ok()).collect());
        let is_whole = !self.trust_publisher.has_unserved();
        let signers = Signers { served: Arc::new(served), deleted: Arc::new(deleted), is_whole };
        self.ends.signers.send_if_modified(|known| {
            let differs = known.as_ref() != Some(&signers);
            if differs {
                *known = Some(signers);
            }
            differs
        });
    }
}
