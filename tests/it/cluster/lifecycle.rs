//! The chart's life on a cluster: it adopts what kubectl has installed, is upgraded and rolled back, and leaves what
//! the documents say.

use std::process::Command;

use kube::Client;
use serde_json::Value;
use test_kit::needed::{Needed, found};
use test_kit::real::{RealHub, assets};
use test_kit::{AddOnApi, client, crds, wait_until};

use super::fleet::every_state_is_said;
use super::story::{delete_the_rest, our_objects, wait_left};
use super::{TIMEOUT, TURN, command, helm_upgrade, kubectl, kubectl_wait, path};

const NS: &str = "--namespace=addon-signer";

/// What `helm uninstall` leaves, besides what a lineage keeps. docs/operations.md has the same list.
const LEFT: [&str; 16] = [
    "APIService /v1alpha1.addon-signer.io", // Kubernetes makes it for the CRDs
    "AddOnSigner /telemetry",
    "ConfigMap addon-signer/addon-signer-ledger",
    "ConfigMap addon-signer/addon-signer-trust",
    "ConfigMap addon-signer/kube-root-ca.crt",
    "ConfigMap addon-signer/telemetry-client-ca",
    "CustomResourceDefinition /addonroutes.addon-signer.io",
    "CustomResourceDefinition /addonsigners.addon-signer.io",
    "Lease addon-signer/addon-signer",
    "Namespace /addon-signer",
    "Pod addon-signer/addon-signer-check",
    "PersistentVolumeClaim addon-signer/addon-signer-ledger",
    "Secret addon-signer/addon-signer-ledger",
    "Secret addon-signer/addon-signer-serving-authorities",
    "Secret addon-signer/telemetry-client-authorities",
    "ServiceAccount addon-signer/default",
];

async fn prepare(hub: &RealHub) -> Client {
    let admin = client(hub.kubeconfig("admin", &["system:masters"])).await;
    crds::install(&admin, &assets().unwrap(), AddOnApi::V1alpha1).await;
    admin
}

/// The result of the chart's test, which is `addon-signer check`.
pub(super) fn check() -> String {
    let output = Command::new("helm4").args(["test", "addon-signer", NS, "--logs", "--timeout=120s"]).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

fn active_authority() -> String {
    kubectl(&["get", "addonsigner/telemetry", r#"-o=jsonpath={.status.authorities[?(@.state=="Active")].id}"#])
}

fn revision() -> u64 {
    let releases = command("helm4", &["list", NS, "--output=json"]);
    let releases: Value = serde_json::from_str(&releases).unwrap();
    releases[0]["revision"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn adopted_upgraded_rolled_back_and_uninstalled_by_helm() {
    let Some(hub) = found(Needed::Cluster, RealHub::of_cluster()) else { return };
    let _turn = TURN.lock().await;
    let admin = prepare(&hub).await;
    let before = our_objects();

    kubectl(&["apply", "--server-side", "-f", &path("deploy/install.yaml")]);
    kubectl_wait("condition=Available", &["deployment/addon-signer", NS]);
    let notes = helm_upgrade("helm4", &["lifecycle.yaml"], &["--take-ownership", "--server-side=false"]);
    assert!(!notes.contains("pod-security"), "the namespace of install.yaml has the label: {notes}");
    let checked = check();
    let line = "it accepts no connection until an AddOnSigner has a certificate authority";
    assert!(checked.contains("AddOnSigners: none exists") && checked.contains(line), "{checked}");

    kubectl(&["apply", "-f", &path("deploy/example/signer.yaml")]);
    kubectl_wait("condition=Ready", &["addonsigner/telemetry"]);
    let authority = active_authority();
    wait_until(TIMEOUT, "the gateway to be good", async || check().contains("that agents accept").then_some(())).await;

    every_state_is_said(&hub, &admin).await;
    upgrade_and_roll_back();
    assert_eq!(active_authority(), authority);

    command("helm4", &["uninstall", "addon-signer", NS, "--wait"]);
    wait_left(&before, &LEFT).await;

    // Another installation, by Helm 3, goes on with the same authority.
    helm_upgrade("helm3", &["lifecycle.yaml"], &["--take-ownership"]);
    kubectl_wait("condition=Ready", &["addonsigner/telemetry"]);
    assert_eq!(active_authority(), authority);
    command("helm3", &["uninstall", "addon-signer", NS, "--wait"]);
    delete_the_rest();
    wait_left(&before, &[]).await;
}

/// To one process, and back to gateways apart from the signer.
fn upgrade_and_roll_back() {
    let first = revision();
    helm_upgrade("helm4", &["lifecycle.yaml"], &["--set=gateway.separate=false"]);
    kubectl_wait("delete", &["deployment/addon-signer-gateway", NS]);
    kubectl_wait("condition=Available", &["deployment/addon-signer", NS]);
    let pods = called_pods();
    let is_hub = |pod: &str| pod.starts_with("addon-signer-") && !pod.starts_with("addon-signer-gateway-");
    assert!(!pods.is_empty() && pods.split(' ').all(is_hub), "calls come to the hub's pod: {pods}");
    command("helm4", &["rollback", "addon-signer", &first.to_string(), NS, "--wait", "--timeout=120s"]);
    assert_eq!(revision(), first + 2);
    kubectl_wait("condition=Available", &["deployment/addon-signer-gateway", NS]);
    let pods = called_pods();
    let are_gateways = pods.split(' ').all(|pod| pod.starts_with("addon-signer-gateway-"));
    assert!(!pods.is_empty() && are_gateways, "calls come to the gateways again: {pods}");
}

/// The pods behind the gateway's Service.
fn called_pods() -> String {
    let slices = ["get", "endpointslices", NS, "-l=kubernetes.io/service-name=addon-signer-gateway"];
    kubectl(&[&slices[..], &["-o=jsonpath={.items[*].endpoints[*].targetRef.name}"]].concat())
}
