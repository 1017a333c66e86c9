//! `addon-signer status`: the addons that are not ready come first, each with what it waits for.

use std::path::Path;

use addon_signer_platform::clock::Clock;
use hyper::Method;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cli::{Output, run, write};
use crate::deploy::manifests;
use crate::deploy::on_api_server::apply;
use crate::gateway::upstream;
use crate::hub::distribution::say_applied;
use crate::support::hub::{PATIENCE, condition};
use crate::support::objects::serve_manifest_works;
use crate::support::request::mk_csr;
use crate::support::{TestHub, accept_cluster, install_addon, wait_until};
use crate::whole::ours::enrolled;
use crate::whole::{Whole, prepare};

struct World {
    hub: TestHub,
    whole: Whole,
    home: tempfile::TempDir,
    kubeconfig: String,
}

impl World {
    async fn status(&self, flags: &[&str]) -> Output {
        let ledger = format!("sqlite://{}/ledger.db", self.whole.ledger.path().display());
        let common = ["status", "--kubeconfig", &self.kubeconfig, "--ledger", &ledger];
        run(self.home.path(), &[&common, flags].concat()).await
    }

    async fn rows(&self, flags: &[&str]) -> Vec<Value> {
        let output = self.status(&[&["--output", "json"], flags].concat()).await;
        assert_eq!(output.code, 0, "{}", output.stderr);
        serde_json::from_str(&output.stdout).unwrap()
    }
}

/// A cluster of each kind: `spoke1` is ready, `spoke2` has no agent, `spoke3` is not accepted, and `spoke4` has asked
/// for the name of another cluster.
async fn mk_world() -> World {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, upstream::start().await, "24h").await;
    if hub.is_real() {
        apply(&admin, &manifests("manifest-works")).await;
    } else {
        serve_manifest_works(&admin).await;
    }
    let whole = Whole::start(&hub, Clock::default()).await;
    let home = tempfile::tempdir().unwrap();
    let pair = enrolled(&hub, &admin, home.path(), "spoke1", whole.gateway).await;
    assert_eq!(pair.call(whole.gateway, Method::GET, "/v1/whoami").await.unwrap().0, 200);
    for cluster in ["spoke2", "spoke4"] {
        accept_cluster(&admin, cluster).await;
        install_addon(&admin, cluster, "telemetry").await;
    }
    crate::support::objects::create_namespace(&admin, "spoke3").await;
    install_addon(&admin, "spoke3", "telemetry").await;
    ask_for_another(&hub, &admin).await;
    if hub.is_real() {
        apply(&admin, &viewers()).await;
    }
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["viewers"])).display().to_string();
    World { hub, whole, home, kubeconfig }
}

/// Gives a group of people the roles of deploy/admin.yaml that `status` and `check` need, and no more.
fn viewers() -> [Value; 2] {
    let binding = |role: &str, metadata: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{role}Binding"), "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "addon-signer-viewer" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "viewers" }],
        })
    };
    [
        binding("ClusterRole", json!({ "name": "viewers" })),
        binding("Role", json!({ "name": "viewers", "namespace": "addon-signer" })),
    ]
}

/// The agent of `spoke4` asks for the name of `spoke1`, and is refused.
async fn ask_for_another(hub: &TestHub, admin: &Client) {
    let mut request = mk_csr("spoke1", "telemetry");
    let labels = request.metadata.labels.as_mut().unwrap();
    labels.insert("open-cluster-management.io/cluster-name".to_owned(), "spoke4".to_owned());
    let agent = hub.as_cluster_agent("spoke4", "a1").await;
    let made = Api::all(agent).create(&PostParams::default(), &request).await.unwrap();
    let requests: Api<k8s_openapi::api::certificates::v1::CertificateSigningRequest> = Api::all(admin.clone());
    let name = made.metadata.name.unwrap();
    wait_until(PATIENCE, "the refusal", async || condition(&requests.get(&name).await.unwrap(), "Denied")).await;
}

#[tokio::test]
async fn the_worst_come_first_with_what_they_wait_for() {
    let world = mk_world().await;
    let admin = world.hub.admin().await;
    let state = |row: &Value| format!("{} {}", row["cluster"].as_str().unwrap(), row["state"].as_str().unwrap());
    let until = async |expected: [&str; 4]| {
        wait_until(PATIENCE, &format!("{expected:?}"), async || {
            let rows = world.rows(&[]).await;
            (rows.iter().map(state).collect::<Vec<_>>() == expected).then_some(rows)
        })
        .await
    };
    until(["spoke4 Refused", "spoke2 NoCertificate", "spoke1 NoTrust", "spoke3 NoStanding"]).await;
    say_applied(&admin, "spoke1").await;
    let rows = until(["spoke4 Refused", "spoke2 NoCertificate", "spoke3 NoStanding", "spoke1 Ready"]).await;
    let waits: Vec<_> = rows.iter().map(|row| row["waitsFor"].as_str().unwrap_or_default()).collect();
    assert!(waits[0].contains(": SubjectOfAnotherCluster: The subject names the cluster spoke1"), "{waits:?}");
    assert_eq!(waits[1..], ["its agent to make a request", "the hub to accept the cluster", ""]);
    let ready = rows.last().unwrap();
    assert_eq!((&ready["registered"], &ready["hasTrust"]), (&json!(true), &json!(true)));
    assert!(["validUntil", "authority", "lastSeen"].iter().all(|field| ready[field].is_string()), "{ready}");

    let table = world.status(&["--limit", "1"]).await;
    assert_eq!(table.stdout.lines().count(), 2, "{}", table.stdout);
    assert!(table.stdout.contains("\nspoke4   telemetry  Refused"), "{}", table.stdout);
    assert_eq!(
        table.stderr,
        "4 addons on clusters: 1 Refused, 1 NoCertificate, 1 NoStanding, 1 Ready\n\
         There are more: --limit N or --all shows them.\n"
    );
    let ledger = format!("sqlite://{}/ledger.db", world.whole.ledger.path().display());
    let flags = ["check", "--kubeconfig", &world.kubeconfig, "--ledger", &ledger];
    let check = run(world.home.path(), &flags).await;
    let line = "BAD  addons on clusters: 2 of 3 have no valid certificate or had their last request refused: ";
    assert!(check.code == 1 && check.stdout.contains(line), "{}", check.stdout);
    let one = world.rows(&["--cluster", "spoke2", "--addon", "telemetry"]).await;
    assert_eq!(one.iter().map(state).collect::<Vec<_>>(), ["spoke2 NoCertificate"]);
    world.whole.stop().await.unwrap();
}

/// What the Kubernetes API says is shown without the ledger, and `check` does not call it good.
#[tokio::test]
async fn without_the_ledger_the_rest_is_shown_and_the_reason_said() {
    let World { hub: _hub, whole, home, kubeconfig } = mk_world().await;
    let ask = async |home: &Path, command: &str| run(home, &[command, "--kubeconfig", &kubeconfig]).await;
    let status = ask(home.path(), "status").await;
    assert_eq!(status.code, 0, "{}", status.stderr);
    assert!(status.stdout.contains("spoke1   telemetry  Unknown"), "{}", status.stdout);
    assert!(status.stderr.contains("Certificates are not shown: "), "{}", status.stderr);
    let check = ask(home.path(), "check").await;
    assert!(check.stdout.contains("?    addons on clusters: nobody knows which of them have"), "{}", check.stdout);
    assert!(!check.stdout.contains("cannot be looked at"), "the roles for viewers are enough: {}", check.stdout);
    whole.stop().await.unwrap();
}
