//! Which addons OCM's addon-manager registers by itself: those whose ClusterManagementAddOn has an AddOnTemplate among
//! its configurations (OCM `pkg/addon/templateagent/common.go`, `SupportAddOnTemplate`). No cluster can write these
//! objects; they are the hub's.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::ocm::ADDON_GROUP;
use addon_signer_core::templates::TemplateFacts;

/// Plural of ClusterManagementAddOn.
pub const MANAGEMENT_ADDONS: &str = "clustermanagementaddons";
/// Plural of AddOnTemplate.
pub const ADDON_TEMPLATES: &str = "addontemplates";
/// The versions of both that the hub can read, in order of preference. Both hold the same facts.
pub const TEMPLATE_VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
/// The configuration that v1beta1 shows where v1alpha1 has no default (OCM `pkg/addon/webhook/v1beta1`).
const NO_DEFAULT: &str = "__reserved_no_default__";

/// How many AddOnTemplates of one addon are read, and how many signer names of one AddOnTemplate.
const MOST: usize = 256;

/// The AddOnTemplates that a ClusterManagementAddOn names, by default and per placement. `None` if its configurations
/// include no AddOnTemplate, because in that case the addon-manager does not register the addon.
#[must_use]
pub fn templates_of_management_addon(addon: &DynamicObject) -> Option<BTreeSet<String>> {
    let spec = addon.data.get("spec")?;
    let supported: Vec<&Value> = items(spec.get("supportedConfigs")).filter(|config| is_template(config)).collect();
    let defaults: Vec<&Value> = items(spec.get("defaultConfigs")).filter(|config| is_template(config)).collect();
    if supported.is_empty() && defaults.is_empty() {
        return None;
    }
    let placements = items(spec.pointer("/installStrategy/placements"));
    let placed = placements.flat_map(|placement| items(placement.get("configs"))).filter(|config| is_template(config));
    let of_v1alpha1 = supported.iter().filter_map(|config| config.pointer("/defaultConfig/name"));
    let named = of_v1alpha1.chain(defaults.into_iter().chain(placed).filter_map(|config| config.get("name")));
    let named = named.filter_map(Value::as_str).filter(|name| *name != NO_DEFAULT);
    Some(named.take(MOST).map(str::to_owned).collect())
}

/// The AddOnTemplate that a ManagedClusterAddOn names for its cluster alone.
#[must_use]
pub fn template_of_addon(addon: &DynamicObject) -> Option<String> {
    let mut configs = items(addon.data.pointer("/spec/configs")).filter(|config| is_template(config));
    configs.find_map(|config| config.get("name")).and_then(Value::as_str).map(str::to_owned)
}

/// The ClusterManagementAddOn that owns a ManagedClusterAddOn, according to its metadata, which no cluster can write.
#[must_use]
pub fn owner_of_addon(addon: &DynamicObject) -> Option<&str> {
    let owners = addon.metadata.owner_references.iter().flatten();
    let of_ours = |owner: &&OwnerReference| {
        owner.kind == "ClusterManagementAddOn" && owner.api_version.split('/').next() == Some(ADDON_GROUP)
    };
    owners.into_iter().find(of_ours).map(|owner| owner.name.as_str())
}

/// What an AddOnTemplate registers, as OCM's addon-manager reads it (OCM `pkg/addon/templateagent/registration.go`): a
/// user beside a signer name is the same on every cluster, and policy refuses it.
#[must_use]
pub fn facts_of_template(template: &DynamicObject) -> TemplateFacts {
    let of_type = |kind: &'static str| {
        let all = items(template.data.pointer("/spec/registration"));
        all.filter(move |one| one.get("type").and_then(Value::as_str) == Some(kind))
    };
    let named = of_type("CustomSigner").filter_map(|one| {
        let signer = one.get("customSigner")?;
        let user = signer.pointer("/subject/user").and_then(Value::as_str).unwrap_or_default();
        Some((signer.get("signerName")?.as_str()?.to_owned(), !user.is_empty()))
    });
    let mut kinds =
        items(template.data.pointer("/spec/agentSpec/workload/manifests")).filter_map(|one| one.get("kind"));
    TemplateFacts {
        signers: named.take(MOST).collect(),
        has_hub_identity: of_type("KubeClient").next().is_some(),
        // The kinds that the addon-manager modifies (OCM `pkg/addon/templateagent/decorator.go`).
        has_pods: kinds.any(|kind| matches!(kind.as_str(), Some("Deployment" | "DaemonSet"))),
    }
}

fn is_template(config: &Value) -> bool {
    let field = |name: &str| config.get(name).and_then(Value::as_str);
    field("group") == Some(ADDON_GROUP) && field("resource") == Some(ADDON_TEMPLATES)
}

fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use kube::api::ApiResource;
    use serde_json::json;

    use super::*;

    fn mk_object(spec: Value) -> DynamicObject {
        let resource = ApiResource::erase::<crate::AddOnSigner>(&());
        DynamicObject::new("telemetry", &resource).data(json!({ "spec": spec }))
    }

    fn mk_config(resource: &str, name: &str) -> Value {
        json!({ "group": ADDON_GROUP, "resource": resource, "name": name })
    }

    #[test]
    fn templates_are_found_in_both_versions_and_in_placements() {
        let placements = json!({ "type": "Placements", "placements": [
            { "configs": [mk_config(ADDON_TEMPLATES, "placed"), mk_config("addondeploymentconfigs", "x")] }, {},
        ] });
        let of_v1alpha1 = json!({
            "supportedConfigs": [
                { "group": ADDON_GROUP, "resource": "addondeploymentconfigs", "defaultConfig": { "name": "x" } },
                { "group": ADDON_GROUP, "resource": ADDON_TEMPLATES, "defaultConfig": { "name": "one" } },
            ],
            "installStrategy": placements,
        });
        let of_v1beta1 =
            json!({ "defaultConfigs": [mk_config(ADDON_TEMPLATES, "one")], "installStrategy": placements });
        for spec in [of_v1alpha1, of_v1beta1] {
            let found = templates_of_management_addon(&mk_object(spec)).unwrap();
            assert_eq!(found, BTreeSet::from(["one".to_owned(), "placed".to_owned()]));
        }
    }

    #[test]
    fn templated_addon_without_default_belongs_to_addon_manager() {
        let of_v1alpha1 = json!({ "supportedConfigs": [{ "group": ADDON_GROUP, "resource": ADDON_TEMPLATES }] });
        let of_v1beta1 = json!({ "defaultConfigs": [mk_config(ADDON_TEMPLATES, NO_DEFAULT)] });
        for spec in [of_v1alpha1, of_v1beta1] {
            assert_eq!(templates_of_management_addon(&mk_object(spec)), Some(BTreeSet::new()));
        }
    }

    #[test]
    fn other_configurations_are_no_templates() {
        let foreign = json!({ "group": "example.com", "resource": ADDON_TEMPLATES, "name": "x" });
        for spec in [json!({}), json!({ "defaultConfigs": [foreign] }), json!({ "supportedConfigs": "?" })] {
            assert_eq!(templates_of_management_addon(&mk_object(spec.clone())), None, "{spec}");
        }
        assert_eq!(template_of_addon(&mk_object(json!({ "configs": [foreign] }))), None);
    }

    #[test]
    fn an_addon_may_name_a_template_of_its_own() {
        let spec = json!({ "configs": [mk_config("addondeploymentconfigs", "x"), mk_config(ADDON_TEMPLATES, "own")] });
        assert_eq!(template_of_addon(&mk_object(spec)), Some("own".to_owned()));
    }

    #[test]
    fn template_lists_custom_signers_and_any_hub_identity() {
        let spec = json!({ "registration": [
            { "type": "KubeClient", "kubeClient": {} },
            { "type": "CustomSigner", "customSigner": { "signerName": "example.com/a", "signingCA": { "name": "x" } } },
            { "type": "CustomSigner", "customSigner": { "signerName": "example.com/b", "subject": { "user": "u" } } },
            {
                "type": "CustomSigner",
                "customSigner": { "signerName": "example.com/c", "subject": { "groups": ["g"] } },
            },
            { "type": "CustomSigner" },
            { "type": "KubeClient", "customSigner": { "signerName": "example.com/d" } },
        ] });
        let expected = [("example.com/a", false), ("example.com/b", true), ("example.com/c", false)];
        let signers = expected.map(|(name, own)| (name.to_owned(), own)).into();
        let expected = TemplateFacts { signers, has_hub_identity: true, has_pods: false };
        assert_eq!(facts_of_template(&mk_object(spec)), expected);
        assert_eq!(facts_of_template(&mk_object(Value::Null)), TemplateFacts::default());
    }

    #[test]
    fn a_template_has_pods_if_it_has_a_deployment_or_a_daemon_set() {
        for (kind, expected) in [("Deployment", true), ("DaemonSet", true), ("Job", false)] {
            let manifests = json!([{ "kind": "ServiceAccount" }, { "kind": kind }]);
            let spec = json!({ "agentSpec": { "workload": { "manifests": manifests } } });
            assert_eq!(facts_of_template(&mk_object(spec)).has_pods, expected, "{kind}");
        }
    }

    #[test]
    fn an_addon_is_owned_by_a_management_addon_of_ocms_group_alone() {
        let mut addon = mk_object(Value::Null);
        assert_eq!(owner_of_addon(&addon), None);
        for (group, owner) in [("example.com", None), (ADDON_GROUP, Some("telemetry"))] {
            let reference = json!([{
                "apiVersion": format!("{group}/v1beta1"), "kind": "ClusterManagementAddOn",
                "name": "telemetry", "uid": "u",
            }]);
            addon.metadata.owner_references = Some(serde_json::from_value(reference).unwrap());
            assert_eq!(owner_of_addon(&addon), owner);
        }
    }
}
