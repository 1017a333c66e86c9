//! Starts, changes and stops what an AddOnSigner needs, so that it matches its object.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;
use tracing::info;

use super::Supervisor;
use super::entry::{Entry, Read, SignerState};
use crate::authorities::asked::RequestedSteps;
use crate::authorities::reconciler::LineagePlan;
use crate::authorities::supply::SupplyPlan;
use crate::supervisor::status;
use crate::tasks::send_news;
use addon_signer_api::AddOnSigner;
use addon_signer_api::rules::{SignerConfig, candidate};
use addon_signer_core::conditions::{ADDONS_OF_OTHERS, INVALID_NAME, INVALID_SPEC};
use addon_signer_core::identity::AddOnName;
use addon_signer_core::ownership::Candidate;
use addon_signer_core::policy::GatewayCertificate;

/// The longest name of an AddOnSigner: it is the value of a label on its Secret (Kubernetes, `IsValidLabelValue`).
const NAME_MAX: usize = 63;

impl Supervisor {
    /// Checks these AddOnSigners, and those that name the same signer names or addons. Others need no check.
    pub(super) fn reconcile(&mut self, names: impl IntoIterator<Item = String>) {
        let mut concerned: BTreeSet<_> = names.into_iter().collect();
        let candidates: Vec<_> = concerned.iter().filter_map(|name| self.candidacy(name)).collect();
        concerned.extend(self.ownership.update(candidates));
        let mut has_changed = false;
        for name in concerned {
            has_changed |= self.reconcile_entry(&name);
            self.calls.writing.add(&name);
        }
        has_changed |= self.find_unserved();
        if has_changed {
            self.tell_signers();
        }
    }

    /// What an AddOnSigner names. One that cannot be decoded keeps what it named before, so no other AddOnSigner can
    /// take that over.
    fn candidacy(&self, name: &str) -> Option<(String, Option<Candidate>)> {
        let entry = self.entries.get(name);
        let is_known = !entry.is_some_and(Entry::is_undecodable);
        is_known.then(|| (name.to_owned(), entry.and_then(Entry::object).map(candidate)))
    }

    /// Finds the AddOnSigners whose certificates are unknown; an expiry can change this without an event. Returns
    /// whether it has changed.
    pub(super) fn find_unserved(&mut self) -> bool {
        self.trust_publisher.set_unserved(self.unknown_certificates())
    }

    /// The AddOnSigners whose certificates, or their holders, are unknown: they cannot be read, or are not served while
    /// their certificates may be in use.
    fn unknown_certificates(&self) -> BTreeSet<String> {
        let now = self.links.clock.now();
        let is_one = |entry: &Entry| match (&entry.state, entry.object()) {
            _ if entry.is_undecodable() => true,
            (SignerState::Refused((reason, _), _), object) => {
                [INVALID_SPEC, INVALID_NAME].contains(reason)
                    || object.is_some_and(|object| status::remembers(object, now))
            }
            (SignerState::Idle(_) | SignerState::Served(_), _) => false,
        };
        self.entries.iter().filter(|(_, entry)| is_one(entry)).map(|(name, _)| name.clone()).collect()
    }

    /// Checks one AddOnSigner. Returns whether it has changed what is served, or why it is not.
    fn reconcile_entry(&mut self, name: &str) -> bool {
        let Some(entry) = self.entries.get(name) else { return false };
        // A recreated AddOnSigner is another signer, perhaps with another signer name.
        let uid = entry.object().map(|object| object.metadata.uid.clone().unwrap_or_default());
        let is_another = entry.uid.is_some() && entry.uid != uid;
        let is_undecodable = entry.is_undecodable();
        let has_gone = is_another && self.forget(name);
        let has_changed = match uid {
            Some(uid) => self.match_object(name, uid),
            None => is_undecodable,
        };
        let before = self.entries.len();
        self.entries.retain(|known, entry| known != name || !entry.is_gone());
        has_changed || has_gone || self.entries.len() < before
    }

    /// Serves an AddOnSigner or stops serving it, to match its object. Returns whether that has changed, or why it is
    /// not served.
    fn match_object(&mut self, name: &str, uid: String) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        let Read::Object(object) = &entry.read else { return false };
        entry.uid = Some(uid);
        entry.has_lineage |= object.status.as_ref().is_some_and(|status| !status.authorities.is_empty());
        let (may_create, object) = (entry.has_lineage, object.clone());
        let plan = |config: &SignerConfig| LineagePlan {
            authority: config.authority,
            supply: SupplyPlan::of_signer(config),
            asked: RequestedSteps::of_signer(object.annotations()),
            remembered: status::remembers(&object, self.links.clock.now()),
            may_create,
        };
        match self.config(&object).map(|config| (plan(&config), Arc::new(config))) {
            Ok((plan, config)) => self.serve(name, config, plan),
            // It loses all effect, as after a restart: what an edit removed must not stay in effect because of a
            // mistake elsewhere in the same edit.
            Err(refusal) => {
                let was_served = self.stop(name);
                self.entries.get_mut(name).is_some_and(|entry| entry.refuse(refusal)) || was_served
            }
        }
    }

    /// Serves an AddOnSigner with this configuration from now on. Returns whether that is new.
    fn serve(&mut self, name: &str, config: Arc<SignerConfig>, plan: LineagePlan) -> bool {
        let Some(served) = self.entries.get_mut(name).and_then(Entry::served_mut) else {
            self.links.metrics.serve(name);
            self.start(name, config, plan);
            self.calls.asking.add(name);
            return true;
        };
        let may_create = served.plan.borrow().may_create || plan.may_create;
        send_news(&served.plan, LineagePlan { may_create, ..plan });
        let is_new = send_news(&served.config, Arc::clone(&config));
        if is_new {
            self.trust_publisher.set_signer(name, config, served.lineage.subscribe());
            self.calls.asking.add(name); // it may need another right
        }
        is_new
    }

    /// Forgets an AddOnSigner that was deleted. Returns whether it is or was served.
    fn forget(&mut self, name: &str) -> bool {
        let was_served = self.stop(name);
        self.calls.forget(name);
        let Some(entry) = self.entries.get_mut(name) else { return was_served };
        entry.has_lineage = false;
        let last = entry.take_last();
        // An unreadable AddOnSigner was not deleted.
        if entry.is_undecodable() {
            entry.state = SignerState::Idle(last);
            return was_served;
        }
        (entry.state, entry.uid) = (SignerState::default(), None);
        self.links.metrics.signer_ready(name, None);
        let Some(config) = last else { return false };
        if config.registers {
            self.registered.delete(config);
        }
        true
    }

    /// Stops what runs for an AddOnSigner: the gateway no longer accepts its certificates. Returns whether it was
    /// served.
    pub(super) fn stop(&mut self, name: &str) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        let Some(served) = entry.served() else { return false };
        info!(signer = name, "The hub no longer serves an AddOnSigner; the gateway refuses its certificates");
        served.keeping.cancel();
        self.links.metrics.stop(name);
        let config = served.config.borrow().clone();
        self.ends.signing.stop(&config.rules.signer_name, name);
        // It counts as unserved until `find_unserved` has checked it.
        self.trust_publisher.remove_signer(name);
        entry.state = SignerState::Idle(Some(config));
        true
    }

    /// The configuration of an object, or why the hub does not serve it.
    fn config(&self, object: &AddOnSigner) -> Result<SignerConfig, (&'static str, String)> {
        let name = object.name_any();
        if let Some(first) = self.ownership.has_signer_name_of(&name) {
            return Err(status::duplicate(first, &object.spec));
        }
        if name.len() > NAME_MAX {
            let sentence = format!("metadata.name has more than {NAME_MAX} characters, which a label cannot hold.");
            return Err((INVALID_NAME, sentence));
        }
        if GatewayCertificate::ALL.iter().any(|certificate| certificate.name() == name) {
            let sentence = format!("metadata.name is {name}, which is the name of a signer of the gateway's own.");
            return Err((INVALID_NAME, sentence));
        }
        let mut config = SignerConfig::read(&object.spec, self.settings.config.grpc_proxy.as_deref())
            .map_err(|error| (INVALID_SPEC, format!("{error}.")))?;
        let others = self.ownership.not_of(&name);
        config.rules.addons.retain(|addon: &AddOnName| !others.contains_key(addon.as_str()));
        if config.rules.addons.is_empty() {
            return Err((ADDONS_OF_OTHERS, status::conflicts(&others)));
        }
        Ok(SignerConfig { generation: object.metadata.generation.unwrap_or_default(), ..config })
    }
}
