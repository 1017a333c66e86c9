//! The example of docs/writing-an-addon.md from installation to removal, by the commands of the documents.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use test_kit::needed::{Needed, found};
use test_kit::ocm::ADDON_NAMESPACE;
use test_kit::real::RealHub;
use test_kit::wait::wait_or_explain;
use test_kit::wait_until;

use super::monitoring::{Prometheus, misbehave};
use super::quickstart::quick_start;
use super::traffic::{Caller, Traffic};
use super::upgrade::from_an_earlier_version_and_back;
use super::{
    CLUSTER, Fleet, TIMEOUT, TURN, allow_streams, command, gateway, install, kubectl, kubectl_wait, live_gateways,
    path, rotate,
};
use crate::whole::ours::issuer;

const ADDON: &str = "telemetry";
/// The Secret that its agent keeps.
const SECRET: &str = "telemetry-client-cert";
const SIGNERS: [&str; 2] = ["example.com/", "addon-signer.io/"];
/// What the names of our objects contain, and those of the example.
const OURS: [&str; 3] = ["addon-signer", "telemetry", "observability"];

/// Every object of the cluster whose name or namespace is one of ours. Events and requests go by themselves.
pub(super) fn our_objects() -> BTreeSet<String> {
    let kinds = kubectl(&["api-resources", "--verbs=list", "-o=name"]);
    let passing = ["events", "events.events.k8s.io", "certificatesigningrequests.certificates.k8s.io"];
    let kinds: Vec<_> = kinds.lines().filter(|kind| !passing.contains(kind)).collect();
    let row = r#"{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}"#;
    let all = kubectl(&["get", &kinds.join(","), "-A", &format!("-o=jsonpath={row}")]);
    all.lines().filter(|object| OURS.iter().any(|ours| object.contains(ours))).map(str::to_owned).collect()
}

/// Waits until these objects are there besides those of `before`, and no others.
pub(super) async fn wait_left(before: &BTreeSet<String>, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    let left = || our_objects().difference(before).cloned().collect::<BTreeSet<_>>();
    let is_expected = async || (left() == expected).then_some(());
    let explain = || format!("{:#?}", left().symmetric_difference(&expected).collect::<Vec<_>>());
    wait_or_explain(TIMEOUT, "only these objects of ours to be left", is_expected, explain).await;
}

/// The requests for our signers that nobody has answered.
async fn unanswered(fleet: &Fleet) -> Vec<String> {
    let requests: Api<CertificateSigningRequest> = Api::all(fleet.admin.clone());
    let all = requests.list(&Default::default()).await.unwrap().items.into_iter();
    let ours = all.filter(|request| SIGNERS.iter().any(|signer| request.spec.signer_name.starts_with(signer)));
    let open = ours.filter(|request| request.status.as_ref().is_none_or(|status| status.conditions.is_none()));
    open.map(|request| request.name_any()).collect()
}

/// New pods take the place of the gateways and the signer, and another authority signs, while agents call.
async fn nothing_is_lost(fleet: &Fleet) {
    allow_streams();
    let pair = fleet.pair(SECRET).await;
    let caller = Caller { addon: ADDON, streams: true, pair: Arc::new(move || Some(pair.clone())) };
    let traffic = Traffic::start(vec![caller; 4], Duration::from_millis(20));
    traffic.wait_passed(200).await;
    rotate();
    for deployment in ["deployment/addon-signer-gateway", "deployment/addon-signer"] {
        kubectl(&["rollout", "restart", "-n", "addon-signer", deployment]);
        kubectl(&["rollout", "status", "-n", "addon-signer", deployment, "--timeout=120s"]);
    }
    traffic.wait_passed(200).await;
    println!("{}", traffic.stop().await);
    // Each gateway that has ended has said so, and its Lease went with its pod.
    wait_until(TIMEOUT, "three Leases", async || (live_gateways() == 3).then_some(())).await;
}

/// After a rotation `ca plan` names the addon, whose agent has a certificate of the authority that goes next. The
/// command asks the hub's ledger for that, through the API server.
async fn plan_names_the_addon() {
    let planned = || {
        let arguments = ["ca", "plan", "telemetry", "--output=json"];
        let plan = Command::new(env!("CARGO_BIN_EXE_addon-signer")).args(arguments).output().unwrap();
        assert_eq!(plan.status.code(), Some(3), "{}", String::from_utf8_lossy(&plan.stderr));
        serde_json::from_slice::<Value>(&plan.stdout).unwrap()
    };
    // The API server looks only now and then whether a new signer serves the inventory.
    let known = async || Some(planned()).filter(|plan| plan["affected"].get("unknown").is_none());
    let plan = wait_or_explain(TIMEOUT, "the ledger to be asked", known, || planned().to_string()).await;
    let affected = plan["affected"]["addons"].as_array().unwrap();
    let named = affected.iter().map(|addon| (&addon["cluster"], &addon["addon"], &addon["isKnown"]));
    assert_eq!(named.collect::<Vec<_>>(), [(&json!(CLUSTER), &json!(ADDON), &json!(true))], "{plan}");
    assert_eq!(plan["step"], "Finish", "{plan}");
}

/// What docs/runbooks/README.md says for an installation without the inventory: the ledger is a file in the hub's pod.
fn status_in_the_pod_knows_the_addon() {
    let exec = ["exec", "-n=addon-signer", "deploy/addon-signer", "--", "/addon-signer", "status", "--output=json"];
    let ledger = "--ledger=sqlite:///var/lib/addon-signer/ledger.db";
    let rows: Value = serde_json::from_str(&kubectl(&[&exec[..], &[ledger]].concat())).unwrap();
    let rows = rows.as_array().unwrap().iter().map(|row| (&row["cluster"], &row["addon"], &row["state"]));
    assert!(rows.clone().any(|row| row == (&json!(CLUSTER), &json!(ADDON), &json!("Certified"))), "{rows:?}");
}

/// An agent that has lost its Secret gets a certificate of the new authority, and the gateway accepts it.
async fn the_new_authority_is_used(fleet: &Fleet) {
    let before = issuer(&fleet.pair(SECRET).await);
    kubectl(&["delete", "secret", "-n", ADDON_NAMESPACE, SECRET]);
    let another = async || fleet.stored(SECRET).await.filter(|pair| issuer(pair) != before);
    let pair = wait_until(TIMEOUT, "a certificate of the new authority", another).await;
    assert_eq!(pair.call(gateway(), Method::GET, "/v1/whoami").await.unwrap().0, StatusCode::OK);
    fleet.wait_pushes(ADDON).await;
}

/// The addon leaves the cluster: the gateway refuses its certificate, and OCM deletes its pod.
async fn detach(fleet: &Fleet) {
    let pair = fleet.pair(SECRET).await;
    let whoami = async || pair.call(gateway(), Method::GET, "/v1/whoami").await.unwrap().0;
    assert_eq!(whoami().await, StatusCode::OK);
    kubectl(&["delete", "managedclusteraddon", "-n", CLUSTER, ADDON, "--wait=false"]);
    let refused = async || (whoami().await == StatusCode::FORBIDDEN).then_some(());
    wait_until(TIMEOUT, "the gateway to refuse the addon", refused).await;
    kubectl_wait("delete", &["managedclusteraddon", "-n", CLUSTER, ADDON]);
    kubectl_wait("delete", &["manifestworks", "-n", CLUSTER, "--all"]);
    kubectl_wait("delete", &["pods", "-n", ADDON_NAMESPACE, "--all"]);
}

/// By "Removing" in docs/operations.md.
pub(super) fn remove() {
    kubectl(&["delete", "-k", &path("tests/it/cluster/example")]);
    command("helm4", &["uninstall", "addon-signer", "--namespace=addon-signer", "--wait"]);
    delete_the_rest();
}

/// What `helm uninstall` leaves.
pub(super) fn delete_the_rest() {
    kubectl(&["delete", "crd", "addonroutes.addon-signer.io", "addonsigners.addon-signer.io"]);
    kubectl(&["delete", "namespace", "addon-signer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_addon_in_pods_from_installation_to_removal() {
    let Some(hub) = found(Needed::Cluster, RealHub::of_cluster()) else { return };
    let _turn = TURN.lock().await;
    let fleet = Fleet::start(hub).await;
    let before = our_objects();
    quick_start(&fleet, &before).await;
    from_an_earlier_version_and_back(&fleet, &before).await;
    let begun = Instant::now();
    install(&fleet, &["gateways.yaml"]).await;
    fleet.wait_pushes(ADDON).await;
    println!("{:?} after `helm install` began the addon has pushed", begun.elapsed());
    kubectl_wait("condition=Available", &["managedclusteraddon", "-n", CLUSTER, ADDON]);
    let holders = r#"-o=jsonpath={.items[?(@.signer=="telemetry")].cluster}"#;
    assert_eq!(kubectl(&["get", "certificates.ledger.addon-signer.io", holders]), CLUSTER);

    let prometheus = Prometheus::start(fleet.admin.clone());
    prometheus.has_read_the_hub().await;
    misbehave(&fleet).await;
    nothing_is_lost(&fleet).await;
    prometheus.answers_every_panel().await;
    prometheus.names_no_cluster();
    prometheus.save();
    println!("{:?}: gateways and signer are replaced", begun.elapsed());
    plan_names_the_addon().await;
    status_in_the_pod_knows_the_addon();
    the_new_authority_is_used(&fleet).await;
    detach(&fleet).await;
    println!("{:?}: the addon is detached", begun.elapsed());
    remove();
    println!("{:?}: everything is removed", begun.elapsed());
    wait_left(&before, &[]).await;
    assert_eq!(unanswered(&fleet).await, [""; 0]);
}
