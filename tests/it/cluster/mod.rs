//! addon-signer as its users run it: real images in the pods of a real node (`tests/real/cluster.sh`), installed and
//! removed by Helm. OCM's programs run beside the pods.

mod chart;
mod fleet;
mod lifecycle;
mod monitoring;
mod quickstart;
mod signing;
mod soak;
mod story;
mod traffic;
mod upgrade;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::Value;
use test_kit::ocm::{ADDON_NAMESPACE, OcmAgent, Spoke};
use test_kit::process::Process;
use test_kit::programs::start_controller;
use test_kit::real::{RealHub, assets};
use test_kit::{AddOnApi, client, crds, objects, wait_until};

use crate::whole::client::ClientPair;

/// The managed cluster, which is the hub itself.
const CLUSTER: &str = "north";
/// The node's address, which the gateway's certificate and the agents' kubeconfigs have.
const NODE: [u8; 4] = [10, 99, 0, 1];
const GATEWAY: ([u8; 4], u16) = (NODE, 30443);
/// There is one addon-signer on a hub, so tests that install it take turns.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
/// Kubernetes starts pods one after the other and looks after volumes in its own time.
const TIMEOUT: Duration = Duration::from_secs(120);

/// OCM on the cluster that runs the test: it is the hub, and a managed cluster that has joined.
struct Fleet {
    admin: Client,
    _programs: Vec<Process>,
    _agent: OcmAgent,
    hub: RealHub,
}

impl Fleet {
    async fn start(hub: RealHub) -> Self {
        let admin = client(hub.kubeconfig("admin", &["system:masters"])).await;
        let assets = assets().unwrap();
        crds::install(&admin, &assets, AddOnApi::V1alpha1).await;
        crds::install_placements(&admin, &assets).await;
        objects::create_namespace(&admin, "open-cluster-management").await; // for the example's settings
        let mut programs = Vec::new();
        for name in ["registration-controller", "addon-manager"] {
            programs.push(start_controller(&hub, name).await);
        }
        let server = hub.server("10.99.0.1"); // as pods reach it
        let spoke = Spoke { hub: &hub, own: &hub, cluster: CLUSTER, agent_id: "agent1", server };
        let agent = OcmAgent::join(&spoke).await;
        programs.push(agent.start_work_agent(&spoke));
        Self { admin, _programs: programs, _agent: agent, hub }
    }

    /// For this user, as the certificate of the cluster's authority says.
    fn kubeconfig(&self, user: &str, groups: &[&str]) -> Kubeconfig {
        self.hub.kubeconfig(user, groups)
    }

    /// What addon-signer-agent keeps for the addon, in its own pod.
    async fn pair(&self, secret: &str) -> ClientPair {
        self.stored(secret).await.unwrap()
    }

    /// The same, if it is there.
    async fn stored(&self, secret: &str) -> Option<ClientPair> {
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), ADDON_NAMESPACE);
        let data = secrets.get_opt(secret).await.unwrap()?.data?;
        let part = |name: &str| data[name].0.clone();
        Some(ClientPair { certificate: part("tls.crt"), key: part("tls.key"), anchors: part("ca.crt") })
    }

    /// What the backend has counted of an addon of the cluster; nothing while it does not answer.
    async fn pushes(&self, addon: &str) -> u64 {
        let path = "/api/v1/namespaces/observability/services/receive:19291/proxy/totals";
        let totals = self.admin.request::<Value>(hyper::Request::get(path).body(Vec::new()).unwrap()).await;
        totals.map_or(0, |totals| totals[format!("{CLUSTER}/{addon}")]["pushes"].as_u64().unwrap_or_default())
    }

    /// Waits until the addon has pushed some more.
    async fn wait_pushes(&self, addon: &str) {
        let before = self.pushes(addon).await;
        let more = async || (self.pushes(addon).await > before + 2).then_some(());
        wait_until(TIMEOUT, &format!("pushes of {addon}"), more).await;
    }
}

fn gateway() -> SocketAddr {
    GATEWAY.into()
}

/// A file or folder of the checkout.
fn path(below: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below).display().to_string()
}

/// Runs a command as the administrator, which must succeed, and returns what it prints.
fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn kubectl(arguments: &[&str]) -> String {
    command("kubectl", arguments)
}

/// Installs or upgrades the chart with these files of values in `values`, by `helm3` or `helm4`, and waits for it.
fn helm_upgrade(helm: &str, values: &[&str], more: &[&str]) -> String {
    let timeout = format!("{}s", TIMEOUT.as_secs());
    let chart = path("deploy/chart");
    let files = values.iter().map(|file| format!("--values={}", path(&format!("tests/it/cluster/values/{file}"))));
    let files: Vec<_> = files.collect();
    let mut arguments = vec!["upgrade", "--install", "addon-signer", &chart, "--namespace=addon-signer"];
    arguments.extend(["--create-namespace", "--wait", "--timeout", &timeout]);
    arguments.extend(files.iter().map(String::as_str));
    command(helm, &[&arguments, more].concat())
}

/// Waits until these objects have a condition, or are deleted.
fn kubectl_wait(what: &str, arguments: &[&str]) {
    let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
    kubectl(&[&["wait", "--for", what, &timeout], arguments].concat());
}

/// Installs the hub with these values and the example, and lets the cluster have the addon.
async fn install(fleet: &Fleet, values: &[&str]) {
    let notes = helm_upgrade("helm4", values, &[]);
    // As the notes say, so that pods which come later are refused if they are not restricted.
    assert!(
        notes.contains("kubectl label namespace addon-signer pod-security.kubernetes.io/enforce=restricted"),
        "{notes}"
    );
    kubectl(&["label", "namespace", "addon-signer", "pod-security.kubernetes.io/enforce=restricted"]);
    kubectl_wait("condition=Available", &["apiservice/v1alpha1.ledger.addon-signer.io"]);
    kubectl(&["apply", "-k", &path("tests/it/cluster/example")]);
    kubectl_wait("condition=Ready", &["addonsigner/telemetry"]);
    objects::install_addon(&fleet.admin, CLUSTER, "telemetry").await;
}

/// The example's agents ask once; here they also watch.
fn allow_streams() {
    let methods = r#"[{"op": "add", "path": "/spec/match/grpc/0/methods/-", "value": "Watch"}]"#;
    kubectl(&["patch", "-n", "observability", "addonroute/health", "--type=json", "-p", methods]);
    let generation = r#"-o=jsonpath={.metadata.generation}"#;
    let generation = kubectl(&["get", "-n", "observability", "addonroute/health", generation]);
    kubectl_wait(
        &format!(r#"jsonpath={{.status.observedGeneration}}={generation}"#),
        &["-n", "observability", "addonroute/health"],
    );
}

/// Another authority signs for the addon: every gateway trusts it.
fn rotate() {
    let active = r#"-o=jsonpath={.status.authorities[?(@.state=="Active")].id}"#;
    let before = kubectl(&["get", "addonsigner/telemetry", active]);
    kubectl(&["annotate", "addonsigner/telemetry", "addon-signer.io/rotate=now"]);
    kubectl_wait("condition=Rotating", &["addonsigner/telemetry"]);
    kubectl_wait("jsonpath={.status.rotation.phase}=Finish", &["addonsigner/telemetry"]);
    assert_ne!(kubectl(&["get", "addonsigner/telemetry", active]), before);
}

fn live_gateways() -> usize {
    let holders = r#"-o=jsonpath={.items[*].spec.holderIdentity}"#;
    let leases = kubectl(&["get", "lease", "-n", "addon-signer", "-l", "addon-signer.io/gateway", holders]);
    leases.split_whitespace().count()
}
