//! Computes the desired `status.registrations` of an addon: it has our signers' entries, and all other entries stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::Value;

use crate::csrs::answerers::Answerer;
use addon_signer_api::addon_template::owner_of_addon;
use addon_signer_api::ocm::{self, AddOnApi};
use addon_signer_api::registrations::{Registration, WantedEntries, apply_registrations, is_anothers};
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::identity::{AddOnKey, AgentName, Convention, PeerIdentity, SignerName};
use addon_signer_core::policy::AUTHENTICATED;
use addon_signer_core::templates::TemplatedAddOns;
use addon_signer_core::timestamp::Timestamp;

/// The signers whose registrations the hub keeps, and those whose registrations it removes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Signers {
    /// The signers that are served, by the name of their AddOnSigner.
    pub served: Arc<BTreeMap<String, Arc<SignerConfig>>>,
    /// The signer names of AddOnSigners that were deleted, with their last configuration: OCM's agents must no longer
    /// request their certificates. An AddOnSigner that is only invalid is not here: its agents keep their certificates,
    /// because OCM's agent deletes the Secret together with the registration.
    pub deleted: Arc<BTreeMap<SignerName, Arc<SignerConfig>>>,
    /// The other AddOnSigners that can be read: why the CSRs for their signer names wait.
    pub refused: Arc<BTreeMap<String, Answerer>>,
    /// Whether all AddOnSigners can be read, so that no other signer name is one of theirs.
    pub is_readable: bool,
    /// Whether these are all signers. If none is invalid or unreadable, what no signer here wants is not wanted at all.
    pub is_whole: bool,
}

impl Signers {
    /// Whether these signers want the same registrations as `others`. Most changes of an AddOnSigner concern something
    /// else; then not all addons need to be checked again.
    pub(super) fn register_like(&self, others: &Self) -> bool {
        let wants = |config: &SignerConfig| {
            let rules = &config.rules;
            let subject = (rules.convention.clone(), rules.organizational_units.clone());
            (config.registers, rules.signer_name.clone(), rules.addons.clone(), subject)
        };
        let all = |signers: &Self| signers.served.values().map(|config| wants(config)).collect::<Vec<_>>();
        self.deleted == others.deleted && all(self) == all(others)
    }
}

/// The status patch that gives `object` exactly the entries that the signers want; `None` if it has them already, and
/// for an addon that OCM's addon-manager registers.
pub(super) fn wanted_status(
    object: &DynamicObject,
    api: AddOnApi,
    signers: &Signers,
    templated: &TemplatedAddOns,
    now: Timestamp,
) -> Option<Value> {
    let key = ocm::addon_key(object)?;
    // An addon without its owner will soon be deleted by the garbage collector of Kubernetes.
    let is_orphan = owner_of_addon(object).is_some_and(|owner| !templated.owners.contains(owner));
    if ocm::is_being_deleted(object) || is_orphan || templated.has(&key.addon) {
        return None;
    }
    let anothers = is_anothers(object);
    let served = signers.served.values().filter(|config| config.registers);
    let served: BTreeMap<&str, _> = served.map(|config| (config.rules.signer_name.as_str(), config)).collect();
    // Another program may serve the signer name by now, so only the hub's own entries are removed.
    let deleted = signers.deleted.iter().filter(|_| !anothers);
    let mut wanted: BTreeMap<&str, WantedEntries> =
        deleted.map(|(name, config)| (name.as_str(), WantedEntries::Without(registration(config, &key)))).collect();
    wanted.extend(served.iter().map(|(name, config)| {
        let has_addon = config.rules.addons.contains(&key.addon);
        (*name, if has_addon { WantedEntries::One(registration(config, &key)) } else { WantedEntries::Nothing })
    }));
    let good = |found: &Registration| {
        (anothers || is_never_ours(found, &key))
            && served.get(found.signer_name.as_str()).is_some_and(|config| is_good(found, config, &key))
    };
    let status = object.data.get("status").unwrap_or(&Value::Null);
    apply_registrations(status, api, &wanted, good, &now.to_string())
}

fn registration(config: &SignerConfig, key: &AddOnKey) -> Registration {
    Registration {
        signer_name: config.rules.signer_name.to_string(),
        user: config.rules.convention.user(&identity(key)),
        groups: config.rules.convention.groups(&key.cluster, &key.addon),
        organizational_units: config.rules.organizational_units.iter().cloned().collect(),
    }
}

/// The identity that OCM's agent has from v1.3 on: the agent is named after the addon.
fn identity(key: &AddOnKey) -> PeerIdentity {
    let agent = AgentName::of_addon(&key.addon);
    PeerIdentity { cluster: key.cluster.clone(), addon: key.addon.clone(), agent }
}

/// Whether an entry names another agent than the hub does, or the group that addon-framework up to v1.2 adds. Then
/// another program wrote it, even if the hub changed the list last.
fn is_never_ours(found: &Registration, key: &AddOnKey) -> bool {
    let agent = found.user.rsplit(':').next().unwrap_or_default();
    agent != key.addon.as_str() || found.groups.iter().any(|group| group == AUTHENTICATED)
}

/// Whether policy would accept a CSR for this subject; then the entry may stay, because OCM's agent deletes its
/// Secret when the subject changes. If no user is named, OCM's agent uses OCM's convention.
fn is_good(found: &Registration, config: &SignerConfig, key: &AddOnKey) -> bool {
    let convention = &config.rules.convention;
    let user = if found.user.is_empty() { Convention::default().user(&identity(key)) } else { found.user.clone() };
    let groups = convention.groups(&key.cluster, &key.addon);
    convention.identify(&user).is_ok_and(|id| id.cluster == key.cluster && id.addon == key.addon)
        && found.groups.iter().all(|group| groups.contains(group) || group == AUTHENTICATED)
        && found.organizational_units.iter().all(|unit| config.rules.organizational_units.contains(unit))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn mk_config(name: &str, identity: &Value) -> Arc<SignerConfig> {
        let spec = json!({"signerName": format!("example.com/{name}"), "addOns": ["telemetry"], "identity": identity});
        Arc::new(SignerConfig::read(&serde_json::from_value(spec).unwrap(), None).unwrap())
    }

    fn mk_signers(names: &[&str]) -> Signers {
        let served = names.iter().map(|name| ((*name).to_owned(), mk_config(name, &json!({})))).collect();
        Signers { served: Arc::new(served), ..Signers::default() }
    }

    fn mk_deleted(name: &str) -> Arc<BTreeMap<SignerName, Arc<SignerConfig>>> {
        let config = mk_config(name, &json!({}));
        Arc::new(BTreeMap::from([(config.rules.signer_name.clone(), config)]))
    }

    #[test]
    fn a_change_that_concerns_no_registration_is_none() {
        let change = |change: fn(&mut SignerConfig)| {
            let mut config = (*mk_config("a", &json!({}))).clone();
            change(&mut config);
            let served = BTreeMap::from([("a".to_owned(), Arc::new(config))]);
            Signers { served: Arc::new(served), ..Signers::default() }
        };
        let before = mk_signers(&["a"]);
        for same in [
            change(|config| config.generation += 1),
            change(|config| config.attachment.hostnames = ["h.example".parse().unwrap()].into()),
            change(|config| config.rules.max_duration *= 2),
            change(|config| config.approves = false),
        ] {
            assert!(before.register_like(&same), "{same:?}");
        }
        for other in [
            mk_signers(&["b"]),
            mk_signers(&["a", "b"]),
            change(|config| config.registers = false),
            change(|config| config.rules.addons.clear()),
            change(|config| config.rules.organizational_units = BTreeSet::from(["u".to_owned()])),
            Signers { deleted: mk_deleted("gone"), ..before.clone() },
        ] {
            assert!(!before.register_like(&other), "{other:?}");
        }
    }

    /// The signer `a` with this identity.
    fn mk_signers_of(identity: Value) -> Signers {
        let served = BTreeMap::from([("a".to_owned(), mk_config("a", &identity))]);
        Signers { served: Arc::new(served), ..Signers::default() }
    }

    fn mk_addon(name: &str, status: Value) -> DynamicObject {
        let mut object = DynamicObject::new(name, &AddOnApi::V1Alpha1.resource()).within("c1");
        object.data = json!({ "status": status });
        object
    }

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

    fn wanted(object: &DynamicObject, signers: &Signers) -> Option<Value> {
        wanted_status(object, AddOnApi::V1Alpha1, signers, &TemplatedAddOns::default(), NOW)
    }

    /// The addon; another program wrote its registrations last.
    fn by_another(mut object: DynamicObject) -> DynamicObject {
        let entry = json!([{
            "manager": "framework", "operation": "Update", "subresource": "status",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:registrations": {} } },
        }]);
        object.metadata.managed_fields = Some(serde_json::from_value(entry).unwrap());
        object
    }

    #[test]
    fn every_signer_of_addon_is_written_in_a_single_patch() {
        let signers = mk_signers(&["a", "b"]);
        let patch = wanted(&mk_addon("telemetry", Value::Null), &signers).unwrap();
        let entries = patch["registrations"].as_array().unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            entries[0]["subject"]["user"],
            "system:open-cluster-management:cluster:c1:addon:telemetry:agent:telemetry"
        );
        assert_eq!(wanted(&mk_addon("telemetry", patch), &signers), None);
    }

    #[test]
    fn addons_of_other_signers_are_left_alone() {
        let foreign = json!({"registrations": [{"signerName": "other.io/x", "subject": {"user": "u"}}]});
        assert_eq!(wanted(&mk_addon("other", foreign), &mk_signers(&["a"])), None);
    }

    #[test]
    fn the_entry_of_a_deleted_signer_is_taken_away_and_no_other() {
        let both = wanted(&mk_addon("telemetry", Value::Null), &mk_signers(&["a", "b"])).unwrap();
        let signers = Signers { deleted: mk_deleted("b"), ..mk_signers(&["a"]) };
        let patch = wanted(&mk_addon("telemetry", both.clone()), &signers).unwrap();
        let entries = patch["registrations"].as_array().unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0]["signerName"], "example.com/a");
        assert_eq!(wanted(&by_another(mk_addon("telemetry", both.clone())), &signers), None, "a list of another's");
        let mut others = both;
        others["registrations"][1]["subject"]["user"] = json!("u");
        assert_eq!(wanted(&mk_addon("telemetry", others), &signers), None, "an entry that the hub never writes");
    }

    #[test]
    fn a_long_list_is_right_for_many_signers_at_once() {
        let names: Vec<String> = (0..100).map(|n| format!("a{n:03}")).collect();
        let ours: Vec<&str> = names.iter().map(String::as_str).collect();
        let signers = mk_signers(&ours);
        let stranger = json!({"signerName": "other.io/x", "subject": {"user": "u"}});
        let mut list = vec![stranger.clone(); 20_000];
        for (n, name) in ours.iter().enumerate() {
            let entry = json!({"signerName": format!("example.com/{name}"), "subject": {"user": "u"}});
            list.insert(200 * n, entry.clone());
            list.push(entry);
        }
        let of_telemetry = wanted(&mk_addon("telemetry", json!({ "registrations": list })), &signers).unwrap();
        let after = of_telemetry["registrations"].as_array().unwrap();
        assert_eq!(after.len(), 20_100);
        assert!((0..100).all(|n| after[200 * n]["signerName"] == format!("example.com/{}", ours[n])));
        assert_eq!(wanted(&mk_addon("telemetry", of_telemetry.clone()), &signers), None);
        let patch = wanted(&mk_addon("other", of_telemetry), &signers).unwrap();
        assert_eq!(patch, json!({ "registrations": vec![stranger; 20_000] }));
    }

    #[test]
    fn an_addon_with_templates_is_the_addon_managers() {
        let templated = TemplatedAddOns {
            addons: BTreeMap::from([("telemetry".parse().unwrap(), BTreeSet::new())]),
            ..TemplatedAddOns::default()
        };
        let addon = mk_addon("telemetry", Value::Null);
        assert_eq!(wanted_status(&addon, AddOnApi::V1Alpha1, &mk_signers(&["a"]), &templated, NOW), None);
        let signers = Signers { deleted: mk_deleted("b"), ..Signers::default() };
        let named = mk_addon("telemetry", wanted(&addon, &mk_signers(&["b"])).unwrap());
        assert_eq!(wanted_status(&named, AddOnApi::V1Alpha1, &signers, &templated, NOW), None);
        assert!(wanted(&named, &signers).is_some());
    }

    #[test]
    fn foreign_registrations_stay_where_policy_accepts_them() {
        let user = |cluster: &str, agent: &str| {
            format!("system:open-cluster-management:cluster:{cluster}:addon:telemetry:agent:{agent}")
        };
        let mk_status = |user: &str, groups: Value, units: Value| {
            let subject = json!({"user": user, "groups": groups, "organizationUnit": units});
            let entry = json!({"signerName": "example.com/a", "subject": subject});
            let applied = json!({"type": "RegistrationApplied", "status": "True"});
            json!({"registrations": [entry], "conditions": [applied]})
        };
        let group = "system:open-cluster-management:addon:telemetry";
        let none = json!([]);
        let signers = mk_signers_of(json!({"organizationalUnits": ["edge"]}));
        // Whether the entry stays if another program wrote it, and whether it stays if the writer is unknown.
        for (status, anothers, anybodys) in [
            (mk_status(&user("c1", "x"), json!([group, "system:authenticated"]), none.clone()), true, true),
            (mk_status(&user("c1", "x"), none.clone(), json!(["edge"])), true, true),
            (mk_status(&user("c1", "telemetry"), json!([group, "system:authenticated"]), none.clone()), true, true),
            (mk_status(&user("c1", "telemetry"), json!([group]), none.clone()), true, false),
            (mk_status("", json!([group]), none.clone()), true, true),
            (mk_status(&user("c2", "x"), json!([group]), none.clone()), false, false),
            (mk_status(&user("c1", "x").replace("telemetry", "other"), json!([group]), none.clone()), false, false),
            (mk_status("somebody", json!([group]), none.clone()), false, false),
            (mk_status(&user("c1", "x"), json!(["system:masters"]), none.clone()), false, false),
            (mk_status(&user("c1", "x"), json!([group]), json!(["hash"])), false, false),
        ] {
            let object = by_another(mk_addon("telemetry", status.clone()));
            assert_eq!(wanted(&object, &signers).is_none(), anothers, "{status}");
            let unknown = mk_addon("telemetry", status.clone());
            assert_eq!(wanted(&unknown, &signers).is_none(), anybodys, "{status}");
        }
    }

    #[test]
    fn an_addon_that_is_going_away_is_left_alone() {
        let mut going = mk_addon("telemetry", Value::Null);
        going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(wanted(&going, &mk_signers(&["a"])), None);
    }

    #[test]
    fn an_addon_whose_owner_is_gone_is_left_alone() {
        let mut owned = mk_addon("telemetry", Value::Null);
        let owner = json!([{
            "apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ClusterManagementAddOn",
            "name": "telemetry", "uid": "u",
        }]);
        owned.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
        assert_eq!(wanted(&owned, &mk_signers(&["a"])), None);
        let known = TemplatedAddOns { owners: BTreeSet::from(["telemetry".to_owned()]), ..TemplatedAddOns::default() };
        assert!(wanted_status(&owned, AddOnApi::V1Alpha1, &mk_signers(&["a"]), &known, NOW).is_some());
    }
}
