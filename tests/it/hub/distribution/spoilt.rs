//! ManifestWorks that the policy lets the hub's account write, and those that it refuses.

use serde_json::{Value, json};

use super::NAME;

/// A ManifestWork as the hub's account may write it.
pub(super) fn mk_good() -> Value {
    json!({
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWork",
        "metadata": { "name": NAME, "labels": { "addon-signer.io/hub-trust": "telemetry" }, "ownerReferences": [{
            "apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterAddOn",
            "name": "telemetry", "uid": "u",
        }] },
        "spec": { "workload": { "manifests": [{
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "telemetry-hub-trust", "namespace": "agents" },
            "data": { "ca.crt": "-----BEGIN CERTIFICATE-----\n" },
        }] } },
    })
}

/// What makes a good ManifestWork bad, how, and what the policy says.
pub(super) type Spoilt = (&'static str, fn(&mut Value), &'static str);

const NAMES: &str = "may only write ManifestWorks addon-signer-ADDON-trust with the label";
const ONE: &str = "must have one manifest and nothing else";
const CONFIG_MAP: &str = "must be the ConfigMap ADDON-hub-trust with the one entry ca.crt";
const OWNER: &str = "the only owner of the ManifestWork must be the ManagedClusterAddOn ADDON";

/// What the hub's account must not write, however little it differs.
pub(super) const BAD: [Spoilt; 23] = [
    ("another name", |work| work["metadata"]["name"] = "addon-telemetry-deploy-0".into(), NAMES),
    ("another addon's name", |work| work["metadata"]["name"] = "addon-signer-search-trust".into(), NAMES),
    ("no label", |work| work["metadata"]["labels"] = json!({ "a": "b" }), NAMES),
    ("a label of nothing", |work| work["metadata"]["labels"]["addon-signer.io/hub-trust"] = "".into(), NAMES),
    ("no manifest", |work| work["spec"]["workload"]["manifests"] = json!([]), ONE),
    (
        "a second manifest",
        |work| {
            let first = work["spec"]["workload"]["manifests"][0].clone();
            work["spec"]["workload"]["manifests"].as_array_mut().unwrap().push(first);
        },
        ONE,
    ),
    ("a Secret", |work| work["spec"]["workload"]["manifests"][0]["kind"] = "Secret".into(), CONFIG_MAP),
    (
        "a kind of another group",
        |work| work["spec"]["workload"]["manifests"][0]["apiVersion"] = "x.io/v1".into(),
        CONFIG_MAP,
    ),
    (
        "another ConfigMap",
        |work| {
            work["spec"]["workload"]["manifests"][0]["metadata"]["name"] = "kube-root-ca.crt".into();
        },
        CONFIG_MAP,
    ),
    (
        "an annotation of the ConfigMap",
        |work| {
            work["spec"]["workload"]["manifests"][0]["metadata"]["annotations"] = json!({ "a": "b" });
        },
        CONFIG_MAP,
    ),
    ("a second entry", |work| work["spec"]["workload"]["manifests"][0]["data"]["run.sh"] = "x".into(), CONFIG_MAP),
    ("no certificate", |work| work["spec"]["workload"]["manifests"][0]["data"]["ca.crt"] = "x".into(), CONFIG_MAP),
    (
        "more than a bundle",
        |work| {
            let long = format!("-----BEGIN CERTIFICATE-----\n{}", "x".repeat(65_536 - 27));
            work["spec"]["workload"]["manifests"][0]["data"]["ca.crt"] = long.into();
        },
        CONFIG_MAP,
    ),
    (
        "binary data",
        |work| work["spec"]["workload"]["manifests"][0]["binaryData"] = json!({ "ca.crt": "eA==" }),
        CONFIG_MAP,
    ),
    (
        "an executor",
        |work| {
            work["spec"]["executor"] = json!({ "subject": { "type": "ServiceAccount",
            "serviceAccount": { "namespace": "kube-system", "name": "admin" } } });
        },
        ONE,
    ),
    (
        "a finalizer",
        |work| work["metadata"]["finalizers"] = json!(["example.com/stay"]),
        "may not write the finalizer example.com/stay",
    ),
    ("an annotation", |work| work["metadata"]["annotations"] = json!({ "a": "b" }), "may not write the annotation a "),
    (
        "a second label",
        |work| work["metadata"]["labels"]["open-cluster-management.io/addon-name"] = "telemetry".into(),
        "may not write the label open-cluster-management.io/addon-name",
    ),
    ("an owner of another kind", |work| work["metadata"]["ownerReferences"][0]["kind"] = "ConfigMap".into(), OWNER),
    (
        "an owner of another group",
        |work| work["metadata"]["ownerReferences"][0]["apiVersion"] = "x.io/v1".into(),
        OWNER,
    ),
    ("another addon as owner", |work| work["metadata"]["ownerReferences"][0]["name"] = "search".into(), OWNER),
    ("an owner that waits", |work| work["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = true.into(), OWNER),
    (
        "a second owner",
        |work| {
            let mut second = work["metadata"]["ownerReferences"][0].clone();
            (second["kind"], second["uid"]) = ("ManagedCluster".into(), "v".into());
            work["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
        },
        OWNER,
    ),
];
