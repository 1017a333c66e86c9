//! Checks the ValidatingAdmissionPolicies of the chart, and CSRs that wait for one.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
    ValidatingAdmissionPolicySpec,
};
use kube::Api;
use serde_json::{Map, Value, json};

use super::{Finding, Inspection, unknown};
use addon_signer_api::GuardedSigner;
use addon_signer_api::request::BoundedCsr;
use addon_signer_hub::csrs::action::{self, PROXY_UNPROVEN};
use addon_signer_platform::listing::{self, Selector};

/// A policy of the chart. Its binding has the same name.
pub(super) struct ShippedPolicy {
    pub(super) name: &'static str,
    /// The policy and its binding.
    text: &'static str,
    /// The variables that an administrator may choose.
    chosen: &'static [&'static str],
}

/// Lets only the hub set the trust bundle that agents take from their CSRs.
const BUNDLE: ShippedPolicy = ShippedPolicy {
    name: "addon-signer-trust-bundle",
    text: include_str!("../../../deploy/chart/files/trust-bundle-policy.yaml"),
    chosen: &["account"],
};
/// Limits the right to patch the ConfigMaps of the gateway's anchors.
const ANCHORS: ShippedPolicy = ShippedPolicy {
    name: "addon-signer-anchors",
    text: include_str!("../../../deploy/chart/files/anchors-policy.yaml"),
    chosen: &[],
};
/// Limits the right that the chart's `trust.manifestWorks` grants.
pub(super) const WORKS: ShippedPolicy = ShippedPolicy {
    name: "addon-signer-manifest-works",
    text: include_str!("../../../deploy/chart/files/manifest-works-policy.yaml"),
    chosen: &[],
};
/// The chart's `grpcAccount` relies on it.
const GRPC: ShippedPolicy = ShippedPolicy {
    name: "addon-signer-grpc-account",
    text: include_str!("../../../deploy/chart/files/grpc-account-policy.yaml"),
    chosen: &["account"],
};

impl Inspection {
    /// What the policy lacks.
    pub(super) async fn policy(&self, policy: &ShippedPolicy) -> kube::Result<Option<String>> {
        let name = policy.name;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        // An API server before Kubernetes 1.30 does not have this resource, and responds in the same way.
        let Some(there) = policies.get_opt(name).await? else {
            return Ok(Some(format!("there is no ValidatingAdmissionPolicy {name}")));
        };
        let edited = policy.differences(&there.spec.unwrap_or_default());
        if !edited.is_empty() {
            return Ok(Some(format!(
                "the ValidatingAdmissionPolicy {name} does not match this version: it differs in {}",
                edited.join(", ")
            )));
        }
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        let Some(binding) = bindings.get_opt(name).await? else {
            return Ok(Some(format!("there is no ValidatingAdmissionPolicyBinding {name}")));
        };
        let is_in_force = policy.is_denied_by(&binding.spec);
        let not_in_force = || format!("the ValidatingAdmissionPolicyBinding {name} does not deny everywhere");
        Ok((!is_in_force).then(not_in_force))
    }

    /// Whether only the hub can set the trust bundle that agents take from their CSRs.
    pub(super) async fn trust_bundle(&self) -> Vec<Finding> {
        let about = "trust bundle in CSRs";
        vec![match self.policy(&BUNDLE).await {
            Ok(None) => match self.bundle_account().await {
                Ok(account) => Finding::good(about, format!("a policy lets only {account} set it")),
                Err(error) => unknown(about.to_owned(), &error),
            },
            Ok(Some(lack)) => Finding::bad(
                about,
                format!("whoever may update CSRs can choose whom a new agent trusts: {lack}; install the chart again"),
            ),
            Err(error) => unknown(about.to_owned(), &error),
        }]
    }

    /// Whether an account that may request a rotation could change the gateway's anchors.
    pub(super) async fn anchors(&self) -> Vec<Finding> {
        let about = "anchors of the gateway";
        vec![match self.policy(&ANCHORS).await {
            Ok(None) => Finding::good(about, "a policy lets the role addon-signer-admin change no anchor"),
            Ok(Some(lack)) => Finding::bad(
                about,
                format!("whoever has the role addon-signer-admin can change them: {lack}; install the chart again"),
            ),
            Err(error) => unknown(about.to_owned(), &error),
        }]
    }

    /// The account that may set trust bundles, by the policy.
    async fn bundle_account(&self) -> kube::Result<String> {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let variables = policies.get(BUNDLE.name).await?.spec.and_then(|spec| spec.variables).unwrap_or_default();
        let account = variables.into_iter().find(|variable| variable.name == "account");
        Ok(account.map(|account| account.expression.trim().trim_matches('\'').to_owned()).unwrap_or_default())
    }

    /// Whether a policy protects the annotation that names the user for whom OCM's gRPC server acts, if that annotation
    /// is to be trusted.
    pub(super) async fn grpc_account(&self) -> Vec<Finding> {
        let about = "gRPC account";
        let found = async {
            let waiting = self.unproven().await?;
            let lack = self.policy(&GRPC).await?;
            Ok(match (waiting, lack) {
                (Some((count, why)), _) => Finding::bad(about, format!("CSRs waiting: {count}. {why}")),
                (None, Some(_)) if !self.is_there(&GRPC).await? => {
                    Finding::good(about, "it is not installed (grpcAccount.enabled)")
                }
                (None, Some(lack)) => Finding::bad(
                    about,
                    format!(
                        "anyone may be able to change whom a CSR from OCM's gRPC server is for: {lack}; install \
                         the chart again"
                    ),
                ),
                (None, None) => Finding::good(
                    about,
                    "a policy protects the annotation that names whom OCM's gRPC server is acting \
                                          for",
                ),
            })
        };
        vec![found.await.unwrap_or_else(|error| unknown(about.to_owned(), &error))]
    }

    /// Whether any part of a policy exists.
    async fn is_there(&self, policy: &ShippedPolicy) -> kube::Result<bool> {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        Ok(policies.get_opt(policy.name).await?.is_some() || bindings.get_opt(policy.name).await?.is_some())
    }

    /// The number of CSRs that the hub does not answer because it cannot trust OCM's gRPC server, and the reason.
    async fn unproven(&self) -> kube::Result<Option<(usize, String)>> {
        let signers: Api<GuardedSigner> = Api::all(self.client.clone());
        let signers = listing::all(signers, Selector::all()).await?;
        let requests: Api<BoundedCsr> = Api::all(self.client.clone());
        let mut waiting = Vec::new();
        for signer in signers.into_iter().filter_map(|signer| signer.read().ok()) {
            let of_signer = Selector::fields(&format!("spec.signerName={}", signer.spec.signer_name));
            listing::each(requests.clone(), of_signer, |request| waiting.extend(unproven(request))).await?;
        }
        let count = waiting.len();
        Ok(waiting.pop().map(|why| (count, why)))
    }
}

/// Why the hub does not answer a CSR from OCM's gRPC server, if that is what it waits for.
fn unproven(BoundedCsr { csr, .. }: BoundedCsr) -> Option<String> {
    if action::is_issued(&csr) || action::is_refused(&csr) {
        return None;
    }
    let conditions = csr.status?.conditions?;
    conditions.into_iter().find(|condition| condition.type_ == PROXY_UNPROVEN)?.message
}

impl ShippedPolicy {
    /// The fields of a policy that differ from this version's.
    fn differences(&self, policy: &ValidatingAdmissionPolicySpec) -> Vec<String> {
        let (there, ours) = (self.fields(policy.clone()), self.fields(self.spec()));
        let names: BTreeSet<&String> = there.keys().chain(ours.keys()).collect();
        names.into_iter().filter(|name| there.get(*name) != ours.get(*name)).cloned().collect()
    }

    fn spec(&self) -> ValidatingAdmissionPolicySpec {
        let documents: Vec<Value> = serde_saphyr::from_multiple(self.text).unwrap_or_default();
        let mut policies =
            documents.into_iter().filter_map(|it| serde_json::from_value::<ValidatingAdmissionPolicy>(it).ok());
        policies.next().and_then(|policy| policy.spec).unwrap_or_default()
    }

    /// The fields of a policy, with the API server's defaults for omitted ones (k8s.io/kubernetes
    /// `pkg/apis/admissionregistration/v1/defaults.go`).
    fn fields(&self, mut policy: ValidatingAdmissionPolicySpec) -> Map<String, Value> {
        for condition in policy.match_conditions.iter_mut().flatten() {
            let namespace = condition.expression.strip_prefix("request.namespace == ").filter(|it| is_one_text(it));
            if namespace.is_some() {
                "request.namespace == ''".clone_into(&mut condition.expression); // the release's
            }
        }
        policy.failure_policy.get_or_insert_with(|| "Fail".to_owned());
        if let Some(constraints) = &mut policy.match_constraints {
            constraints.match_policy.get_or_insert_with(|| "Equivalent".to_owned());
            constraints.namespace_selector.get_or_insert_default();
            constraints.object_selector.get_or_insert_default();
            for rule in constraints.resource_rules.iter_mut().flatten() {
                rule.scope.get_or_insert_with(|| "*".to_owned());
            }
        }
        for variable in policy.variables.iter_mut().flatten() {
            if self.chosen.contains(&variable.name.as_str()) && is_one_text(&variable.expression) {
                variable.expression.clear();
            }
        }
        match json!(policy) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    fn is_denied_by(&self, binding: &ValidatingAdmissionPolicyBindingSpec) -> bool {
        binding.policy_name == self.name
            && binding.validation_actions.iter().any(|action| action == "Deny")
            && binding.match_resources.is_none()
    }
}

/// Whether it is a single CEL string, which does not depend on the request.
fn is_one_text(expression: &str) -> bool {
    let text = expression.trim().strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    text.is_some_and(|text| !text.contains(['\'', '\\']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_equals_this_version_or_differing_fields_are_named() {
        assert!(WORKS.spec().validations.is_some_and(|rules| !rules.is_empty()));
        assert_eq!(WORKS.differences(&WORKS.spec()), [""; 0], "where the API server has added nothing");
        let there = json!(WORKS.fields(WORKS.spec()));
        let differ = |path: &str, value: Value| {
            let mut edited = there.clone();
            *edited.pointer_mut(path).unwrap() = value;
            WORKS.differences(&serde_json::from_value(edited).unwrap())
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
    fn binding_is_in_force_only_if_it_denies_everywhere() {
        let is = |spec: serde_json::Value| WORKS.is_denied_by(&serde_json::from_value(spec).unwrap());
        assert!(is(json!({ "policyName": WORKS.name, "validationActions": ["Deny"] })));
        assert!(is(json!({ "policyName": WORKS.name, "validationActions": ["Audit", "Deny"] })));
        assert!(!is(json!({ "policyName": WORKS.name, "validationActions": ["Warn", "Audit"] })));
        assert!(!is(json!({ "policyName": "another", "validationActions": ["Deny"] })));
        let some = json!({ "namespaceSelector": { "matchLabels": { "a": "b" } } });
        assert!(!is(json!({ "policyName": WORKS.name, "validationActions": ["Deny"], "matchResources": some })));
    }

    #[test]
    fn the_account_of_the_grpc_server_may_be_another() {
        let mut there = json!(GRPC.spec());
        assert_eq!(there["variables"][0]["name"], "account");
        there["variables"][0]["expression"] = json!("'system:serviceaccount:a:b'");
        assert_eq!(GRPC.differences(&serde_json::from_value(there.clone()).unwrap()), [""; 0]);
        there["variables"][1]["expression"] = json!("[]");
        assert_eq!(GRPC.differences(&serde_json::from_value(there).unwrap()), ["variables"]);
    }
}
