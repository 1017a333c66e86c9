//! Starts, changes and stops what an AddOnSigner needs, so that it matches its object.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;
use tracing::info;

use super::Supervisor;
use crate::authorities::asked::Asked;
use crate::authorities::reconciler::LinePlan;
use crate::authorities::supply::SupplyPlan;
use crate::supervisor::status;
use addon_signer_api::AddOnSigner;
use addon_signer_api::rules::{SignerConfig, claimant};
use addon_signer_core::identity::AddOnName;
use addon_signer_core::oldest::MOST_SIGNERS;
use addon_signer_core::policy::GatewayCertificate;

/// The longest name of an AddOnSigner: it is the value of a label on its Secret (Kubernetes, `IsValidLabelValue`).
const NAME_MAX: usize = 63;

impl Supervisor {
    /// Checks these AddOnSigners, and those that name the same signer names and addons. An event costs nothing for all
    /// others.
    pub(super) fn settle(&mut self, names: impl IntoIterator<Item = String>) {
        let mut concerned: BTreeSet<_> = names.into_iter().collect();
        // One that cannot be decoded keeps what it named before, so nobody else can take that over.
        let known = concerned.iter().filter(|name| !self.undecodable.contains_key(*name));
        let claims: Vec<_> = known.map(|name| (name.clone(), self.objects.get(name).map(claimant))).collect();
        concerned.extend(self.ownership.update(claims));
        let mut has_changed = false;
        for name in concerned {
            has_changed |= self.look(&name);
            self.writing.add(&name);
        }
        has_changed |= self.find_unserved();
        if has_changed {
            self.tell_signers();
        }
    }

    /// Finds those whose certificates are unknown; an expiry can change this without an event. Returns whether it has
    /// changed.
    pub(super) fn find_unserved(&mut self) -> bool {
        let unserved = self.unknown_certificates();
        let is_new = unserved != self.unserved;
        if is_new {
            self.trust_publisher.set_unserved(unserved.clone());
            self.unserved = unserved;
        }
        is_new
    }

    /// Those of which it is unknown which certificates they have issued, or to whom: they cannot be read, or are not
    /// served while certificates of theirs may be in use.
    fn unknown_certificates(&self) -> BTreeSet<String> {
        let now = self.links.clock.now();
        let is_one = |(name, (reason, _)): &(&String, &(&'static str, String))| {
            let remembers = || self.objects.get(*name).is_some_and(|object| status::remembers(object, now));
            ["InvalidSpec", "InvalidName"].contains(reason) || remembers()
        };
        let refused = self.refused.iter().filter(is_one).map(|(name, _)| name);
        refused.chain(self.undecodable.keys()).cloned().collect()
    }

    /// Checks one AddOnSigner. Returns whether what is served has changed.
    fn look(&mut self, name: &str) -> bool {
        // One that was deleted and created again with its name is another signer, perhaps with another signer name.
        let uid = self.objects.get(name).map(|object| object.metadata.uid.clone().unwrap_or_default());
        let is_another = self.looked_at.get(name).is_some_and(|known| Some(known) != uid.as_ref());
        let has_gone = is_another && self.forget(name);
        let Some((object, uid)) = self.objects.get(name).zip(uid) else { return has_gone };
        self.looked_at.insert(name.to_owned(), uid);
        let has_line = object.status.as_ref().is_some_and(|status| !status.authorities.is_empty());
        if has_line {
            self.lines.insert(name.to_owned());
        }
        let plan = |config: &SignerConfig| LinePlan {
            authority: config.authority,
            supply: SupplyPlan::of_signer(config),
            asked: Asked::read(object.annotations()),
            remembered: status::remembers(object, self.links.clock.now()),
            has_slot: self.lines.contains(name),
        };
        match self.read(object).map(|config| (plan(&config), Arc::new(config))) {
            Ok((plan, config)) => {
                self.refused.remove(name);
                self.serve(name, config, plan) || has_gone
            }
            // It has no effect from now on, as after a restart: what was removed from it must not stay in effect
            // because of a mistake elsewhere in the same edit.
            Err(refusal) => {
                self.refused.insert(name.to_owned(), refusal);
                self.stop(name) || has_gone
            }
        }
    }

    /// Serves an AddOnSigner with this configuration from now on. Returns whether that is new.
    fn serve(&mut self, name: &str, config: Arc<SignerConfig>, plan: LinePlan) -> bool {
        let Some(served) = self.served.get_mut(name) else {
            self.stopped.remove(name);
            self.links.metrics.serve(name);
            self.start(name, config, plan);
            self.asking.add(name);
            return true;
        };
        served.plan.send_if_modified(|known| {
            let plan = LinePlan { has_slot: known.has_slot || plan.has_slot, ..plan };
            std::mem::replace(known, plan.clone()) != plan
        });
        let is_new = served.config.send_if_modified(|known| std::mem::replace(known, Arc::clone(&config)) != config);
        if is_new {
            self.trust_publisher.set_signer(name, config, served.line.subscribe());
            self.asking.add(name); // the right that it needs may be another one
        }
        is_new
    }

    /// Forgets an AddOnSigner that was deleted. Returns whether it was served or had been.
    fn forget(&mut self, name: &str) -> bool {
        let was_served = self.stop(name);
        self.lines.remove(name);
        self.refused.remove(name);
        self.recorders.retain(|(signer, _), _| signer != name);
        // One that cannot be read was not deleted.
        if self.undecodable.contains_key(name) {
            return was_served;
        }
        self.looked_at.remove(name);
        let Some(config) = self.stopped.remove(name) else { return false };
        if config.registers {
            // After a restart the ledger knows those that were left out.
            if self.deleted.len() >= MOST_SIGNERS {
                self.deleted.pop_first();
            }
            self.deleted.insert(config.rules.signer_name.clone(), config);
        }
        true
    }

    /// Stops what runs for an AddOnSigner: the gateway no longer accepts its certificates. Returns whether it was
    /// served.
    pub(super) fn stop(&mut self, name: &str) -> bool {
        let Some(served) = self.served.remove(name) else { return false };
        info!(signer = name, "The hub no longer serves an AddOnSigner; the gateway refuses its certificates");
        served.keeping.cancel();
        self.links.metrics.stop(name);
        let config = served.config.borrow().clone();
        self.signing.stop(&config.rules.signer_name, name);
        self.trust_publisher.remove_signer(name);
        self.unserved.insert(name.to_owned()); // as the trust publisher has it now; `find_unserved` checks
        self.stopped.insert(name.to_owned(), config);
        true
    }

    /// The configuration of an object, or why the hub does not serve it.
    fn read(&self, object: &AddOnSigner) -> Result<SignerConfig, (&'static str, String)> {
        let name = object.name_any();
        if let Some(first) = self.ownership.has_signer_name_of(&name) {
            return Err(status::duplicate(first, &object.spec));
        }
        if name.len() > NAME_MAX {
            let sentence = format!("metadata.name has more than {NAME_MAX} characters, which a label cannot hold.");
            return Err(("InvalidName", sentence));
        }
        if GatewayCertificate::ALL.iter().any(|certificate| certificate.name() == name) {
            let sentence = format!("metadata.name is {name}, which is the name of a signer of the gateway's own.");
            return Err(("InvalidName", sentence));
        }
        let mut config = SignerConfig::read(&object.spec, self.settings.grpc_proxy.as_deref())
            .map_err(|error| ("InvalidSpec", format!("{error}.")))?;
        let others = self.ownership.not_of(&name);
        config.rules.addons.retain(|addon: &AddOnName| !others.contains_key(addon.as_str()));
        if config.rules.addons.is_empty() {
            return Err(("AddOnsOfOthers", status::conflicts(&others)));
        }
        Ok(SignerConfig { generation: object.metadata.generation.unwrap_or_default(), ..config })
    }
}
