//! The ValidatingAdmissionPolicies of the chart: of that for ManifestWorks the rule about names, that for the gRPC
//! account without the length of the annotation, and that for the trust bundle on CSRs. Pure functions.
//!
//! A policy is in force while its binding is stored, and denies.

use serde_json::Value;

use super::fields::{self, text};
use super::resources::{BINDING_PLURAL, CSR_PLURAL, POLICY_PLURAL};
use super::status::ApiError;
use super::store::{Key, Store, Write};

/// The policy for ManifestWorks, and its binding.
const WORKS: &str = "addon-signer-manifest-works";
/// The name of the hub's account, in any namespace.
const HUB: &str = "addon-signer";
const LABEL: &str = "addon-signer.io/hub-trust";
/// The policy for the gRPC account, and its binding.
const GRPC: &str = "addon-signer-grpc-account";
const GRPC_ACCOUNT: &str = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa";
/// The policy for the trust bundle on CSRs, and its binding.
const BUNDLE: &str = "addon-signer-trust-bundle";
const TRUST_BUNDLE: &str = "addon-signer.io/trust-bundle";
const CSR_USER: &str = "open-cluster-management.io/csr-user";

/// Refuses what the policies in force forbid. `old` is the object before the write; `None` for a new one.
pub(super) fn check(store: &Store, w: &Write<'_>, old: Option<&Value>, new: &Value) -> Result<(), ApiError> {
    let broken = match w.resource.plural {
        "manifestworks" => vec![(WORKS, works(w, new).map(str::to_owned))],
        CSR_PLURAL => vec![(GRPC, grpc(w, old, new).map(str::to_owned)), (BUNDLE, bundle(store, w, old, new))],
        _ => Vec::new(),
    };
    let mut broken = broken.into_iter().filter_map(|(policy, message)| Some((policy, message?)));
    let Some((policy, message)) = broken.find(|(policy, _)| is_in_force(store, policy)) else { return Ok(()) };
    Err(ApiError::DeniedByPolicy { resource: w.resource, name: text(new, "metadata.name").to_owned(), policy, message })
}

/// The hub's account may write only its own ManifestWorks.
fn works(w: &Write<'_>, object: &Value) -> Option<&'static str> {
    let account = w.user.name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    let is_by_the_hub = account.is_some_and(|(_, name)| name == HUB);
    let labels = fields::get(object, "metadata.labels");
    let addon = labels.and_then(|labels| labels.get(LABEL)).and_then(Value::as_str).unwrap_or_default();
    let is_ours = !addon.is_empty() && text(object, "metadata.name") == format!("addon-signer-{addon}-trust");
    (is_by_the_hub && !is_ours).then_some(
        "addon-signer may only write ManifestWorks addon-signer-ADDON-trust with the label \
         addon-signer.io/hub-trust that names ADDON",
    )
}

/// Only the account of OCM's gRPC server may name the user of a new CSR, and no account may change that later.
fn grpc(w: &Write<'_>, old: Option<&Value>, new: &Value) -> Option<&'static str> {
    let user = |object: &Value| fields::get(object, "metadata.annotations")?.get(CSR_USER).cloned();
    let after = user(new);
    match old {
        None => (after.is_some() && w.user.name != GRPC_ACCOUNT).then_some(
            "only system:serviceaccount:open-cluster-management-hub:grpc-server-sa may create a CSR with the \
             annotation open-cluster-management.io/csr-user",
        ),
        Some(old) => (user(old) != after).then_some(
            "the annotation open-cluster-management.io/csr-user is set when the CSR is created, and nobody may \
             add, change or remove it later",
        ),
    }
}

/// Only the hub's account may change the trust bundle, and only in the update that adds the certificate.
fn bundle(store: &Store, w: &Write<'_>, old: Option<&Value>, new: &Value) -> Option<String> {
    let bundle = |object: &Value| fields::get(object, "metadata.annotations")?.get(TRUST_BUNDLE).cloned();
    let user = &w.user.name;
    if old.and_then(bundle) == bundle(new) {
        return None;
    }
    let key = Key { plural: POLICY_PLURAL, namespace: String::new(), name: BUNDLE.to_owned() };
    let variables = store.get(&key).map(|policy| fields::list(policy, "spec.variables")).unwrap_or_default();
    let account = variables.iter().find(|variable| text(variable, "name") == "account");
    let account = account.map(|variable| text(variable, "expression").trim_matches('\'')).unwrap_or_default();
    if user != account {
        return Some(format!(
            "only the account {account} may set, change or remove the annotation {TRUST_BUNDLE}, and this is \
             {user}"
        ));
    }
    let has_certificate = |object: &Value| !text(object, "status.certificate").is_empty();
    let brings_certificate = old.is_some_and(|old| !has_certificate(old) && has_certificate(new));
    (!brings_certificate).then(|| {
        format!(
            "the annotation {TRUST_BUNDLE} may be set, changed or removed only in the update that brings the \
             certificate"
        )
    })
}

fn is_in_force(store: &Store, policy: &str) -> bool {
    let key = Key { plural: BINDING_PLURAL, namespace: String::new(), name: policy.to_owned() };
    store.get(&key).is_some_and(|binding| fields::texts(binding, "spec.validationActions").any(|it| it == "Deny"))
}
