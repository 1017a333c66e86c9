//! What the AddOnSigners define for each addon: which agents may ask, which authorities the gateway trusts, and which
//! signer answers its CSRs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use addon_signer_api::identity::Requester;
use addon_signer_api::rules::candidate;
use addon_signer_api::signer::{Approval, TrustMode};
use addon_signer_api::status::{CONDITION_READY, CONDITION_TRUST_DISTRIBUTED, DUPLICATE_SIGNER_NAME};
use addon_signer_api::{AddOnSigner, GuardedSigner};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::identity::AddOnName;
use addon_signer_core::ownership::{Candidate, Ownership};
use addon_signer_hub::csrs::answerers::{Answerer, Answerers};
use addon_signer_platform::listing::{self, Selector};

/// What brings the gateway's trust bundle to an addon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(in crate::cli) enum TrustBy {
    /// The hub's ManifestWork.
    ManifestWork,
    /// The CSR, to an agent that makes its own.
    Agent,
    /// No ManifestWork, although the AddOnSigner leaves it to them. Only addon-signer-agent gets it by itself.
    Nothing,
    /// Another way, or unknown: the AddOnSigner says so, no hub has reported, or the ConfigMap has no place.
    #[default]
    Other,
}

/// The AddOnSigners of an addon.
#[derive(Debug, Default)]
pub(super) struct SignersOf {
    pub(super) signer_names: BTreeSet<String>,
    /// Whether the addon's own agent may ask.
    pub(super) asks_itself: bool,
    /// Whether OCM's agent may ask, with the identity of the cluster.
    cluster_asks: bool,
    /// Whether the AddOnSigner leaves the trust bundle to ManifestWorks.
    wants_works: bool,
    /// Whether the hub writes ManifestWorks.
    has_works: bool,
    /// The ids of their certificate authorities.
    authorities: BTreeSet<String>,
    /// Whether no hub has reported on one of them yet, so that its authorities are unknown.
    is_unreported: bool,
}

impl SignersOf {
    /// Whether the gateway may know the authority with this id. It refuses certificates from other authorities, even if
    /// the ledger lists them as valid.
    pub(super) fn has_authority(&self, id: &str) -> bool {
        self.is_unreported || self.authorities.contains(id)
    }

    /// What brings the trust bundle to an addon. `has_place`: a ManifestWork could bring it. `is_registered`: OCM's
    /// agent is told to ask, and it takes no trust bundle from a CSR.
    pub(super) fn trust_by(&self, has_place: bool, is_registered: bool) -> TrustBy {
        match (has_place && self.wants_works, self.has_works) {
            (true, true) => TrustBy::ManifestWork,
            _ if self.asks_itself && !(self.cluster_asks && is_registered) => TrustBy::Agent,
            (true, false) if !self.is_unreported => TrustBy::Nothing,
            _ => TrustBy::Other,
        }
    }

    fn extend(&mut self, more: &Self) {
        self.signer_names.extend(more.signer_names.iter().cloned());
        self.asks_itself |= more.asks_itself;
        self.cluster_asks |= more.cluster_asks;
        self.wants_works |= more.wants_works;
        self.authorities.extend(more.authorities.iter().cloned());
        self.is_unreported |= more.is_unreported;
    }

    #[cfg(test)]
    pub(super) fn with_authorities(ids: &[&str]) -> Self {
        Self { authorities: ids.iter().map(|id| (*id).to_owned()).collect(), ..Self::default() }
    }
}

/// All AddOnSigners.
#[derive(Debug, Default)]
pub(super) struct FleetSigners {
    pub(super) of_addon: BTreeMap<AddOnName, SignersOf>,
    candidates: Vec<(String, Option<Candidate>)>,
    parts: Vec<(String, Vec<String>, SignersOf)>,
    pub(super) answerers: Answerers,
}

impl FleetSigners {
    /// Lists the AddOnSigners.
    pub(super) async fn list(client: &Client) -> anyhow::Result<Self> {
        let api: Api<GuardedSigner> = Api::all(client.clone());
        let mut all = Self::default();
        // The command `check` reports unreadable ones.
        let listed = listing::each(api, Selector::all(), |signer: GuardedSigner| {
            signer.read().iter().for_each(|signer| all.add(signer));
        });
        listed.await.context("AddOnSigners cannot be listed")?;
        Ok(all.sorted())
    }

    /// Sorts the AddOnSigners by addon once all were added: an addon counts only for those that own it.
    fn sorted(mut self) -> Self {
        // The hub writes all or none, and reports it for those that it serves.
        let has_works = self.parts.iter().any(|(_, _, part)| part.has_works);
        let mut ownership = Ownership::default();
        ownership.update(std::mem::take(&mut self.candidates));
        for (name, addons, part) in std::mem::take(&mut self.parts) {
            let others = ownership.not_of(&name);
            let its = addons.iter().filter(|addon| !others.contains_key(addon.as_str()));
            for addon in its.filter_map(|addon| addon.parse().ok()) {
                let of_addon = self.of_addon.entry(addon).or_default();
                of_addon.extend(&part);
                of_addon.has_works = has_works;
            }
        }
        self
    }

    /// Whether the gateway may know this authority of an AddOnSigner of the addon.
    pub(super) fn trusts(&self, addon: &AddOnName, authority: &AuthorityId) -> bool {
        self.of_addon.get(addon).is_some_and(|signers| signers.has_authority(authority.as_str()))
    }

    fn add(&mut self, signer: &AddOnSigner) {
        let spec = &signer.spec;
        self.candidates.push((signer.name_any(), Some(candidate(signer))));
        let authorities = signer.status.iter().flat_map(|status| &status.authorities);
        let conditions = || signer.status.iter().flat_map(|status| &status.conditions);
        let part = SignersOf {
            signer_names: BTreeSet::from([spec.signer_name.clone()]),
            asks_itself: spec.identity.requesters.contains(&Requester::AddOn),
            cluster_asks: spec.identity.requesters.contains(&Requester::Cluster),
            wants_works: spec.trust.manifest_work == TrustMode::Auto,
            has_works: conditions().any(|condition| condition.type_ == CONDITION_TRUST_DISTRIBUTED),
            authorities: authorities.map(|known| known.id.clone()).collect(),
            is_unreported: signer.status.is_none(),
        };
        self.parts.push((signer.name_any(), spec.add_ons.clone(), part));
        let mut bad = conditions().filter(|condition| condition.type_ == CONDITION_READY && condition.status != "True");
        let bad = bad.next();
        let name = signer.name_any();
        let problem =
            bad.map(|condition| format!("the AddOnSigner {name} says {}: {}", condition.reason, condition.message));
        let answerer = Answerer { leaves_approval: spec.approval == Approval::External, problem };
        let known = self.answerers.by_name.entry(spec.signer_name.clone());
        if bad.is_some_and(|condition| condition.reason == DUPLICATE_SIGNER_NAME) {
            known.or_insert(answerer);
        } else {
            known.insert_entry(answerer);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mk_signer(name: &str, spec: &Value, status: &Value) -> AddOnSigner {
        let mut object = json!({ "metadata": { "name": name }, "spec": { "signerName": "a.b/c", "addOns": ["t"] } });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        if !status.is_null() {
            object["status"] = status.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn mk_status(authority: &str, reason: &str) -> Value {
        let at = "2026-11-23T00:00:00Z";
        let authority = json!({ "id": authority, "state": "Active", "notBefore": at, "notAfter": at });
        let status = if reason.is_empty() { "True" } else { "False" };
        let ready = json!({ "type": "Ready", "status": status, "reason": reason, "message": "Why.",
                            "lastTransitionTime": at });
        json!({ "authorities": [authority], "conditions": [ready] })
    }

    fn of(signers: &[AddOnSigner]) -> FleetSigners {
        let mut all = FleetSigners::default();
        signers.iter().for_each(|signer| all.add(signer));
        all.sorted()
    }

    #[test]
    fn unnamed_authority_is_gone_unless_a_signer_has_no_status() {
        let addon: AddOnName = "t".parse().unwrap();
        let one = mk_signer("one", &json!({ "successor": "two" }), &mk_status("a1", ""));
        let two = mk_signer("two", &json!({ "signerName": "a.b/d" }), &mk_status("a2", ""));
        let new = mk_signer("new", &json!({ "signerName": "a.b/e" }), &Value::Null);
        let both = of(&[one, two]);
        let knows = |all: &FleetSigners, id: &str| all.of_addon[&addon].has_authority(id);
        assert!(knows(&both, "a1"));
        assert!(knows(&both, "a2"));
        assert!(!knows(&both, "a0"));
        let one = mk_signer("one", &json!({ "successor": "new" }), &mk_status("a1", ""));
        assert!(knows(&of(&[one, new]), "a0"));
    }

    #[test]
    fn an_addon_that_belongs_to_another_is_not_asked_for_here() {
        let addon: AddOnName = "t".parse().unwrap();
        let names = |successor: &Value| {
            let one = mk_signer("one", &json!({ "successor": successor }), &mk_status("a1", ""));
            let two = mk_signer("two", &json!({ "signerName": "a.b/d" }), &mk_status("a2", "AddOnsOfOthers"));
            of(&[one, two]).of_addon[&addon].signer_names.len()
        };
        assert_eq!((names(&Value::Null), names(&json!("two"))), (1, 2));
    }

    #[test]
    fn of_two_with_one_signer_name_the_one_that_is_served_answers() {
        let external = mk_signer("one", &json!({ "approval": "External" }), &mk_status("a1", "LedgerAway"));
        let later = mk_signer("two", &json!({}), &mk_status("a2", DUPLICATE_SIGNER_NAME));
        let problem = Some("the AddOnSigner one says LedgerAway: Why.".to_owned());
        let expected = Answerer { leaves_approval: true, problem };
        for order in [[external.clone(), later.clone()], [later, external]] {
            assert_eq!(of(&order).answerers.by_name["a.b/c"], expected);
        }
        let served = mk_signer("one", &json!({}), &mk_status("a1", ""));
        assert_eq!(of(&[served]).answerers.by_name["a.b/c"], Answerer::default());
    }

    #[test]
    fn ocms_agent_takes_no_trust_bundle_from_a_csr() {
        let addon: AddOnName = "t".parse().unwrap();
        for (requesters, mode, is_registered, expected) in [
            (json!(["AddOn"]), "Auto", true, TrustBy::Agent),
            (json!(["Cluster", "AddOn"]), "Auto", false, TrustBy::Agent),
            (json!(["Cluster", "AddOn"]), "Auto", true, TrustBy::Nothing),
            (json!(["Cluster", "AddOn"]), "Never", true, TrustBy::Other),
            (json!(["Cluster"]), "Auto", false, TrustBy::Nothing),
        ] {
            let spec = json!({ "identity": { "requesters": requesters }, "trust": { "manifestWork": mode } });
            let signers = of(&[mk_signer("one", &spec, &mk_status("a1", ""))]);
            assert_eq!(signers.of_addon[&addon].trust_by(true, is_registered), expected, "{spec} {is_registered}");
        }
    }
}
