//! From an earlier version to this one, and back, while agents call: with `.ci/run everything`, which builds the
//! earlier one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use test_kit::{objects, wait_until};

use super::story::{remove, wait_left};
use super::traffic::{Caller, Traffic};
use super::{CLUSTER, Fleet, TIMEOUT, command, kubectl, kubectl_wait, path};

/// The folder of the earlier version, with its chart. Its name is the tag of its images.
const EARLIER: &str = "ADDON_SIGNER_EARLIER";
const ADDON: &str = "telemetry";
const SECRET: &str = "telemetry-client-cert";

/// Installs or upgrades to a chart with these flags besides the values of the story, and waits for it.
fn upgrade(chart: &str, more: &[&str]) {
    let values = format!("--values={}", path("tests/it/cluster/values/gateways.yaml"));
    let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
    let arguments = ["upgrade", "--install", "addon-signer", chart, "--namespace=addon-signer", "--create-namespace"];
    command("helm4", &[&arguments, &["--wait", &timeout, &values][..], more].concat());
    rolled_out();
}

fn rolled_out() {
    for deployment in ["deployment/addon-signer-gateway", "deployment/addon-signer"] {
        kubectl(&["rollout", "status", "-n", "addon-signer", deployment, "--timeout=120s"]);
    }
}

/// What the route's limit is called in the object as it is stored now.
fn limits() -> String {
    kubectl(&["get", "-n", "observability", "addonroute/receive", "-o=jsonpath={.spec.limits}"])
}

fn is_in_effect() {
    kubectl_wait("condition=Programmed", &["-n", "observability", "addonroute/receive"]);
}

/// Waits until all pods have images with this tag: the last of the others end after the rollout.
async fn wait_runs(tag: &str) {
    let all_do = async || {
        let images = kubectl(&["get", "pods", "-n=addon-signer", "-o=jsonpath={.items[*].spec.containers[*].image}"]);
        images.split_whitespace().all(|image| image.ends_with(&format!(":{tag}"))).then_some(())
    };
    wait_until(TIMEOUT, &format!("pods of {tag} alone"), all_do).await;
}

/// No request is lost by an upgrade nor by the way back, a field with an older name keeps its meaning, and what
/// UPGRADING.md says of the way back is true.
pub(super) async fn from_an_earlier_version_and_back(fleet: &Fleet, before: &BTreeSet<String>) {
    let Ok(earlier) = std::env::var(EARLIER) else { return };
    let tag = earlier.rsplit('/').next().unwrap();
    upgrade(&format!("{earlier}/chart"), &["--set", &format!("image.tag={tag}")]);
    kubectl_wait("condition=Available", &["apiservice/v1alpha1.ledger.addon-signer.io"]);
    kubectl(&["apply", "-k", &path("tests/it/cluster/example")]);
    let older = r#"[{"op": "add", "path": "/spec/limits/callsPerIdentity", "value": 50}]"#;
    kubectl(&["patch", "-n", "observability", "addonroute/receive", "--type=json", "-p", older]);
    kubectl_wait("condition=Ready", &["addonsigner/telemetry"]);
    objects::install_addon(&fleet.admin, CLUSTER, ADDON).await;
    fleet.wait_pushes(ADDON).await;
    is_in_effect();
    wait_runs(tag).await;
    let pair = fleet.pair(SECRET).await;

    let caller = Caller { addon: ADDON, streams: false, pair: Arc::new(move || Some(pair.clone())) };
    let traffic = Traffic::start(vec![caller; 4], Duration::from_millis(20));
    traffic.wait_passed(200).await;
    upgrade(&path("deploy/chart"), &[]);
    traffic.wait_passed(200).await;
    wait_runs(env!("CARGO_PKG_VERSION")).await;
    is_in_effect();
    assert!(limits().contains(r#""callsPerIdentity":50"#), "{}", limits());
    let newer = r#"[{"op": "add", "path": "/spec/limits/requestsPerIdentity", "value": 40}]"#;
    kubectl(&["patch", "-n", "observability", "addonroute/receive", "--type=json", "-p", newer]);

    command("helm4", &["rollback", "addon-signer", "1", "--namespace=addon-signer", "--wait", "--timeout=120s"]);
    rolled_out();
    traffic.wait_passed(200).await;
    wait_runs(tag).await;
    println!("from {tag} and back: {}", traffic.stop().await);
    // The older CRD does not know the newer field, which is lost with the next write.
    kubectl(&["annotate", "-n", "observability", "addonroute/receive", "written=again"]);
    assert!(!limits().contains("requestsPerIdentity") && limits().contains("callsPerIdentity"), "{}", limits());

    kubectl(&["delete", "managedclusteraddon", "-n", CLUSTER, ADDON]);
    kubectl_wait("delete", &["pods", "-n", test_kit::ocm::ADDON_NAMESPACE, "--all"]);
    kubectl_wait("delete", &["manifestworks", "-n", CLUSTER, "--all"]);
    remove();
    wait_left(before, &[]).await;
}
