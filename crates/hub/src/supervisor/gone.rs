//! Tells the writer of registrations which signers there are, and which were deleted, even while no hub was watching.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Supervisor;
use crate::registrations::wanted::Signers;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::identity::SignerName;

impl Supervisor {
    /// Tells the writer of registrations about the signers as they are now.
    pub(super) fn tell_signers(&mut self) {
        let objects = &self.objects;
        let is_gone = |name: &SignerName| objects.values().all(|object| object.spec.signer_name != name.as_str());
        self.deleted.retain(|name, _| is_gone(name));
        let mut deleted = self.deleted.clone();
        // The signer name of an object that cannot be decoded is unknown, so any of them may be its.
        if self.undecodable.is_empty() {
            // What this hub has seen itself is newer than what the ledger reported at the start.
            for (name, config) in self.recorded().filter(|(name, _)| is_gone(name)) {
                deleted.entry(name).or_insert(config);
            }
        }
        let served = self.served.iter().map(|(name, served)| (name.clone(), served.config.borrow().clone()));
        let served: BTreeMap<_, _> = served.collect();
        self.notes.serve(
            self.objects
                .values()
                .flat_map(|object| self.owned(object))
                .filter_map(|addon| addon.parse().ok())
                .collect(),
        );
        let is_whole = self.unserved.is_empty();
        let signers = Signers { served: Arc::new(served), deleted: Arc::new(deleted), is_whole };
        self.signers.send_if_modified(|known| {
            let differs = known.as_ref() != Some(&signers);
            if differs {
                *known = Some(signers);
            }
            differs
        });
    }

    /// The signers that the ledger knows and whose registrations the hub has written. A specification that is refused
    /// now was refused then too, or is older than the rule; its entries stay.
    fn recorded(&self) -> impl Iterator<Item = (SignerName, Arc<SignerConfig>)> {
        let specs = self.recorded.borrow().clone();
        let configs = specs.into_iter().filter_map(|spec| SignerConfig::read(&spec, None).ok());
        configs.filter(|config| config.registers).map(|it| (it.rules.signer_name.clone(), Arc::new(it)))
    }
}
