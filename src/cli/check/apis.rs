//! Looks at what the API server serves, and at the right to write ManifestWorks.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
    ValidatingAdmissionPolicySpec,
};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use serde_json::{Map, Value, json};

use super::{Finding, Inspection, Verdict, unknown};
use crate::api::AddOnSigner;
use crate::api::addon_template::{ADDON_TEMPLATES, MANAGEMENT_ADDONS, TEMPLATE_VERSIONS};
use crate::api::manifest_work::{MANIFEST_WORKS, WORK_GROUP, WORK_VERSION};
use crate::api::ocm::ADDON_GROUP;
use crate::api::status::CONDITION_TRUST_DISTRIBUTED;
use crate::hub::registrations::discovery::served_version;
use crate::hub::registrations::registry::discover;
use addon_signer_platform::errors::explain;

/// The ClusterRoleBinding, the policy and the policy's binding of deploy/manifest-works have this name.
const WORKS_RIGHT: &str = "addon-signer-manifest-works";

/// The policy and its binding.
const POLICY: &str = include_str!("../../../deploy/manifest-works/policy.yaml");

impl Inspection {
    /// The APIs that the hub reads. Without its own there is nothing else to look at.
    pub(super) async fn apis(&self) -> anyhow::Result<Vec<Finding>> {
        let signers: Api<AddOnSigner> = Api::all(self.client.clone());
        match signers.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {
                bail!(
                    "the API server does not know AddOnSigner: apply deploy/ first, with your own kustomization over \
                     it (docs/install.md)"
                )
            }
            Err(error) => return Err(error).context("AddOnSigners cannot be listed"),
        }
        let mut found = vec![Finding::good("API", "the API server serves AddOnSigner v1alpha1")];
        found.push(match discover(&self.client).await {
            Ok(api) => Finding::good("API", format!("the API server serves ManagedClusterAddOn {}", api.version())),
            Err(error) => Finding::bad("API", explain(&error)),
        });
        let no_templates = "the hub takes no addon for one that OCM's addon-manager registers from an AddOnTemplate";
        let management = ("ClusterManagementAddOn", ADDON_GROUP, MANAGEMENT_ADDONS);
        found.push(self.served(management, &TEMPLATE_VERSIONS, no_templates).await);
        let templates = ("AddOnTemplate", ADDON_GROUP, ADDON_TEMPLATES);
        found.push(self.served(templates, &TEMPLATE_VERSIONS, "no addon is registered from one").await);
        let works = ("ManifestWork", WORK_GROUP, MANIFEST_WORKS);
        found.push(self.served(works, &[WORK_VERSION], "none brings the trust bundle to a cluster").await);
        Ok(found)
    }

    /// Whether the API server serves a resource in a version that the hub can read; if not, what follows.
    async fn served(
        &self,
        (kind, group, plural): (&str, &str, &str),
        versions: &[&'static str],
        otherwise: &str,
    ) -> Finding {
        match served_version(&self.client, group, plural, versions).await {
            Ok(Some(version)) => Finding::good("API", format!("the API server serves {kind} {version}")),
            Ok(None) => {
                let versions = versions.join(" or ");
                let sentence = format!("the API server serves no {kind} in {versions}, so {otherwise}");
                Finding::new(Verdict::Unknown, "API", sentence)
            }
            Err(error) => unknown(format!("API {kind}"), &error),
        }
    }

    /// Whether a policy narrows the hub's right to write ManifestWorks, if it has that right.
    pub(super) async fn manifest_works(&self) -> Vec<Finding> {
        let about = "ManifestWorks";
        let found = match self.may_write_works().await {
            Ok(true) => self.policy().await.map(|lack| match lack {
                None => Finding::good(about, "the hub may write them, and a policy lets it write its ConfigMaps alone"),
                Some(lack) => Finding::bad(
                    about,
                    format!(
                        "perhaps the hub may write any ManifestWork, and so anything on every cluster: {lack}: \
                         `kubectl apply` deploy/manifest-works again, or delete the ClusterRoleBinding {WORKS_RIGHT}"
                    ),
                ),
            }),
            Ok(false) => self.without_right(about).await,
            Err(error) => Err(error),
        };
        vec![found.unwrap_or_else(|error| unknown(about.to_owned(), &error))]
    }

    /// Whether the ClusterRoleBinding of deploy/manifest-works is there for an account of the hub's namespace.
    async fn may_write_works(&self) -> kube::Result<bool> {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let subjects = bindings.get_opt(WORKS_RIGHT).await?.and_then(|binding| binding.subjects).unwrap_or_default();
        Ok(subjects.iter().any(|subject| subject.namespace.as_ref() == Some(&self.namespace)))
    }

    /// What the policy lacks.
    async fn policy(&self) -> kube::Result<Option<String>> {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        // An API server before Kubernetes 1.30 has no such resource, and answers the same.
        let Some(policy) = policies.get_opt(WORKS_RIGHT).await? else {
            return Ok(Some(format!("there is no ValidatingAdmissionPolicy {WORKS_RIGHT}")));
        };
        let edited = differences(&policy.spec.unwrap_or_default());
        if !edited.is_empty() {
            return Ok(Some(format!(
                "the ValidatingAdmissionPolicy {WORKS_RIGHT} is not that of this version: it differs in {}",
                edited.join(", ")
            )));
        }
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        let Some(binding) = bindings.get_opt(WORKS_RIGHT).await? else {
            return Ok(Some(format!("there is no ValidatingAdmissionPolicyBinding {WORKS_RIGHT}")));
        };
        let is_in_force = denies(&binding.spec);
        let not_in_force = || format!("the ValidatingAdmissionPolicyBinding {WORKS_RIGHT} does not deny everywhere");
        Ok((!is_in_force).then(not_in_force))
    }

    /// A hub whose AddOnSigners say how far ManifestWorks have brought the trust bundle has the right all the same.
    async fn without_right(&self, about: &str) -> kube::Result<Finding> {
        let signers: Api<DeserializeGuard<AddOnSigner>> = Api::all(self.client.clone());
        let signers = signers.list(&ListParams::default()).await?;
        let mut conditions =
            signers.items.into_iter().filter_map(|signer| signer.0.ok()?.status).flat_map(|it| it.conditions);
        if conditions.any(|condition| condition.type_ == CONDITION_TRUST_DISTRIBUTED) {
            let sentence = format!(
                "the hub writes them, and there is no ClusterRoleBinding {WORKS_RIGHT} for the namespace {}: look \
                 whether a policy as in deploy/manifest-works narrows the right that it has",
                self.namespace
            );
            return Ok(Finding::new(Verdict::Unknown, about, sentence));
        }
        Ok(Finding::good(about, "it is not installed (deploy/manifest-works)"))
    }
}

/// The fields of the policy that are not as deploy/manifest-works has them.
fn differences(policy: &ValidatingAdmissionPolicySpec) -> Vec<String> {
    let (there, ours) = (fields(policy.clone()), fields(shipped()));
    let names: BTreeSet<&String> = there.keys().chain(ours.keys()).collect();
    names.into_iter().filter(|name| there.get(*name) != ours.get(*name)).cloned().collect()
}

/// The policy of deploy/manifest-works.
fn shipped() -> ValidatingAdmissionPolicySpec {
    let documents: Vec<Value> = serde_saphyr::from_multiple(POLICY).unwrap_or_default();
    let mut policies =
        documents.into_iter().filter_map(|it| serde_json::from_value::<ValidatingAdmissionPolicy>(it).ok());
    policies.next().and_then(|policy| policy.spec).unwrap_or_default()
}

/// The fields of a policy, with what the API server writes into those that say nothing (k8s.io/kubernetes
/// `pkg/apis/admissionregistration/v1/defaults.go`).
fn fields(mut policy: ValidatingAdmissionPolicySpec) -> Map<String, Value> {
    policy.failure_policy.get_or_insert_with(|| "Fail".to_owned());
    if let Some(constraints) = &mut policy.match_constraints {
        constraints.match_policy.get_or_insert_with(|| "Equivalent".to_owned());
        constraints.namespace_selector.get_or_insert_default();
        constraints.object_selector.get_or_insert_default();
        for rule in constraints.resource_rules.iter_mut().flatten() {
            rule.scope.get_or_insert_with(|| "*".to_owned());
        }
    }
    match json!(policy) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn denies(spec: &ValidatingAdmissionPolicyBindingSpec) -> bool {
    spec.policy_name == WORKS_RIGHT
        && spec.validation_actions.iter().any(|action| action == "Deny")
        && spec.match_resources.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_that_of_this_version_or_its_fields_that_differ_are_named() {
        assert!(shipped().validations.is_some_and(|rules| !rules.is_empty()));
        assert_eq!(differences(&shipped()), [""; 0], "where the API server has added nothing");
        let there = json!(fields(shipped()));
        let differ = |path: &str, value: Value| {
            let mut edited = there.clone();
            *edited.pointer_mut(path).unwrap() = value;
            differences(&serde_json::from_value(edited).unwrap())
        };
        assert_eq!(differ("/failurePolicy", json!("Fail")), [""; 0]);
        for (path, value, field) in [
            ("/failurePolicy", json!("Ignore"), "failurePolicy"),
            ("/validations/0/expression", json!("true"), "validations"),
            ("/validations", json!([]), "validations"),
            ("/variables/0/expression", json!("true"), "variables"),
            ("/matchConditions/0/expression", json!("false"), "matchConditions"),
            ("/matchConstraints/matchPolicy", json!("Exact"), "matchConstraints"),
            ("/matchConstraints/objectSelector", json!({ "matchLabels": { "a": "b" } }), "matchConstraints"),
            ("/matchConstraints/resourceRules/0/operations", json!(["CREATE"]), "matchConstraints"),
            ("", json!({}), "validations"),
        ] {
            assert!(differ(path, value).contains(&field.to_owned()), "{path}");
        }
    }

    #[test]
    fn a_binding_is_in_force_only_if_it_denies_what_the_policy_refuses_everywhere() {
        let is = |spec: serde_json::Value| denies(&serde_json::from_value(spec).unwrap());
        assert!(is(json!({ "policyName": WORKS_RIGHT, "validationActions": ["Deny"] })));
        assert!(is(json!({ "policyName": WORKS_RIGHT, "validationActions": ["Audit", "Deny"] })));
        assert!(!is(json!({ "policyName": WORKS_RIGHT, "validationActions": ["Warn", "Audit"] })));
        assert!(!is(json!({ "policyName": "another", "validationActions": ["Deny"] })));
        let some = json!({ "namespaceSelector": { "matchLabels": { "a": "b" } } });
        assert!(!is(json!({ "policyName": WORKS_RIGHT, "validationActions": ["Deny"], "matchResources": some })));
    }
}
