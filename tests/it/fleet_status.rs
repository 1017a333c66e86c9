//! `addon-signer status`: the addons that are not ready come first, each with what it waits for.

use std::path::Path;

use addon_signer::process::HubOptions;
use addon_signer_api::AddOnSigner;
use addon_signer_platform::clock::Clock;
use futures::{StreamExt, stream};
use hyper::Method;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::checked::define;
use crate::cli::{Output, run, write};
use crate::gateway::backend;
use crate::hub::distribution::say_applied;
use crate::hub::submit;
use crate::whole::ours::enrolled;
use crate::whole::{Whole, options, prepare};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::deploy::{apply, part};
use test_kit::hub::{TIMEOUT, certificate, condition, wait_csr};
use test_kit::objects::{managed_cluster_addons, remake_cluster, serve_manifest_works};
use test_kit::request::mk_csr;
use test_kit::soak::soak;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

pub(crate) struct World {
    pub(crate) hub: TestHub,
    pub(crate) whole: Whole,
    pub(crate) home: tempfile::TempDir,
    pub(crate) kubeconfig: String,
}

impl World {
    /// A hub that serves `telemetry`, and a kubeconfig of somebody who may run `status`.
    pub(crate) async fn start(hub: TestHub, options: HubOptions) -> Self {
        let client = hub.client_as(HUB_USER, &HUB_GROUPS).await;
        let whole = Whole::start_with(client, options, Clock::default()).await;
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = viewer(&hub, home.path()).await;
        let world = Self { hub, whole, home, kubeconfig };
        let listed = async || (world.run(&["certs", "list"]).await.code == 0).then_some(());
        wait_until(TIMEOUT, "the hub to make its ledger", listed).await;
        world
    }

    /// Runs a command with the ledger.
    pub(crate) async fn run(&self, command: &[&str]) -> Output {
        let ledger = format!("sqlite://{}/ledger.db", self.whole.ledger.path().display());
        run(self.home.path(), &[command, &["--kubeconfig", &self.kubeconfig, "--ledger", &ledger]].concat()).await
    }

    pub(crate) async fn status(&self, flags: &[&str]) -> Output {
        self.run(&[&["status"], flags].concat()).await
    }

    pub(crate) async fn rows(&self, flags: &[&str]) -> Vec<Value> {
        let output = self.status(&[&["--output", "json"], flags].concat()).await;
        assert!(output.code == 0 && !output.stderr.contains("the ledger was not asked"), "{}", output.stderr);
        serde_json::from_str(&output.stdout).unwrap()
    }

    /// Waits until the row of the cluster's addon is as `is_it` wants it; returns it.
    pub(crate) async fn until(&self, cluster: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        wait_until(TIMEOUT, what, async || {
            let rows = self.rows(&["--cluster", cluster]).await;
            rows.into_iter().next().filter(&is_it)
        })
        .await
    }

    pub(crate) async fn check(&self) -> Output {
        self.run(&["check"]).await
    }
}

/// A cluster of each kind: `spoke1` is ready, because its agent fetches the trust bundle itself, `spoke2` has no agent,
/// `spoke3` is not accepted, `spoke4` has asked for the name of another cluster, and `spoke5` has its certificate and
/// waits for the trust bundle.
async fn mk_world() -> World {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, backend::start().await, "24h").await;
    if hub.is_real() {
        apply(&admin, &part("manifest-works")).await;
    } else {
        serve_manifest_works(&admin).await;
    }
    let world = World::start(hub, options()).await;
    let World { hub, whole, home, .. } = &world;
    let pair = enrolled(hub, &admin, home.path(), "spoke1", whole.gateway).await;
    assert_eq!(pair.call(whole.gateway, Method::GET, "/v1/whoami").await.unwrap().0, 200);
    for cluster in ["spoke2", "spoke4", "spoke5"] {
        accept_cluster(&admin, cluster).await;
        install_addon(&admin, cluster, "telemetry").await;
    }
    test_kit::objects::create_namespace(&admin, "spoke3").await;
    install_addon(&admin, "spoke3", "telemetry").await;
    ask_for_another(hub, &admin).await;
    let name = submit(hub, "spoke5", &mk_csr("spoke5", "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
    world
}

/// A kubeconfig of somebody with the roles for people for `status` and `check`.
pub(crate) async fn viewer(hub: &TestHub, home: &Path) -> String {
    if hub.is_real() {
        apply(&hub.admin().await, &viewers()).await;
    }
    write(home, &hub.kubeconfig("ann", &["viewers"])).display().to_string()
}

/// Gives a group of people the roles for people that `status` and `check` need, and no more.
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
    wait_until(TIMEOUT, "the refusal", async || condition(&requests.get(&name).await.unwrap(), "Denied")).await;
}

#[tokio::test]
async fn the_worst_come_first_with_what_they_wait_for() {
    let world = mk_world().await;
    let admin = world.hub.admin().await;
    let state = |row: &Value| format!("{} {}", row["cluster"].as_str().unwrap(), row["state"].as_str().unwrap());
    let until = async |expected: [&str; 5]| {
        wait_until(TIMEOUT, &format!("{expected:?}"), async || {
            let rows = world.rows(&[]).await;
            (rows.iter().map(state).collect::<Vec<_>>() == expected).then_some(rows)
        })
        .await
    };
    let (refused, without, gone) = ("spoke4 Refused", "spoke2 NoCertificate", "spoke3 NotEligible");
    say_applied(&admin, "spoke1").await;
    until([refused, without, "spoke5 NoTrust", gone, "spoke1 Certified"]).await;
    say_applied(&admin, "spoke5").await;
    let rows = until([refused, without, "spoke5 NeverSeen", gone, "spoke1 Certified"]).await;
    let waits: Vec<_> = rows.iter().map(|row| row["waitsFor"].as_str().unwrap_or_default()).collect();
    assert!(waits[0].contains(": SubjectOfAnotherCluster: The subject names the cluster spoke1"), "{waits:?}");
    let call = "its first request at the gateway";
    assert_eq!(waits[1..], ["its agent to make a CSR", call, "a ManagedCluster of that name: there is none", ""]);
    let ready = rows.last().unwrap();
    assert_eq!((&ready["registered"], &ready["hasTrust"]), (&json!(true), &json!(true)));
    assert!(["validUntil", "authority", "lastSeen"].iter().all(|field| ready[field].is_string()), "{ready}");

    let table = world.status(&["--limit", "1"]).await;
    assert_eq!(table.stdout.lines().count(), 2, "{}", table.stdout);
    assert!(table.stdout.contains("\nspoke4   telemetry  Refused"), "{}", table.stdout);
    assert_eq!(
        table.stderr,
        "5 addons on clusters: 1 Refused, 1 NoCertificate, 1 NeverSeen, 1 NotEligible, 1 Certified\n\
         There are more: --page 2 of 5, or --all.\n"
    );
    let second = world.rows(&["--limit", "2", "--page", "2"]).await;
    assert_eq!(second.iter().map(state).collect::<Vec<_>>(), ["spoke5 NeverSeen", gone]);
    let past = world.status(&["--limit", "2", "--page", "4"]).await;
    assert!(past.stderr.ends_with("The last page is --page 3.\n"), "{}", past.stderr);
    let check = world.check().await;
    let line = "BAD  addons on clusters: 2 of 4 have no valid certificate or had their last CSR refused: ";
    assert!(check.code == 1, "{}", check.stdout);
    assert!(check.stdout.contains(line), "{}", check.stdout);
    let one = world.rows(&["--cluster", "spoke2", "--addon", "telemetry"]).await;
    assert_eq!(one.iter().map(state).collect::<Vec<_>>(), ["spoke2 NoCertificate"]);
    let misspelt = world.status(&["--addon", "telemetrie"]).await.stderr;
    assert!(misspelt.contains("No addon that an AddOnSigner lists is installed under these names"), "{misspelt}");
    remake_cluster(&admin, "spoke5").await;
    let remade = world.rows(&["--cluster", "spoke5"]).await;
    assert_eq!(remade.iter().map(state).collect::<Vec<_>>(), ["spoke5 NoCertificate"]);
    world.whole.stop().await.unwrap();
}

#[tokio::test]
async fn all_clusters_are_shown_in_pages_and_each_once() {
    let (clusters, limit) = soak((1_050, "400"), (550, "200"));
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let mk = |n: usize| {
        let (admin, cluster) = (admin.clone(), format!("c{n:04}"));
        async move {
            accept_cluster(&admin, &cluster).await;
            install_addon(&admin, &cluster, "telemetry").await;
        }
    };
    stream::iter(0..clusters).map(mk).buffer_unordered(16).collect::<Vec<()>>().await;
    let world = World::start(hub, options()).await;
    let names =
        |rows: Vec<Value>| rows.iter().map(|row| row["cluster"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let all = names(world.rows(&["--all"]).await);
    assert_eq!(all, (0..clusters).map(|n| format!("c{n:04}")).collect::<Vec<_>>());
    let mut paged = Vec::new();
    for page in ["1", "2", "3"] {
        paged.extend(names(world.rows(&["--limit", limit, "--page", page]).await));
    }
    assert_eq!(paged, all);
    world.whole.stop().await.unwrap();
}

/// What the hub reports in the Kubernetes API answers without the ledger: who has no certificate, and why.
#[tokio::test]
async fn without_the_ledger_the_hubs_reports_answer() {
    let World { hub, whole, home, kubeconfig } = mk_world().await;
    let admin = hub.admin().await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let counted = wait_until(TIMEOUT, "two of four to be certified", async || {
        let agents = signers.get("telemetry").await.unwrap().status?.agents?;
        (agents.summary == "2/4").then_some(agents)
    })
    .await;
    let named: Vec<_> = counted.without.iter().map(|without| without.name.as_str()).collect();
    assert_eq!(named, ["spoke2/telemetry", "spoke4/telemetry"]);
    assert_eq!(counted.without[0].waits_for, "its agent to make a CSR");
    assert!(counted.without[1].waits_for.contains("SubjectOfAnotherCluster"), "{counted:?}");
    for (cluster, value, reason) in [
        ("spoke1", "True", "Issued"),
        ("spoke2", "False", "NoRequest"),
        ("spoke3", "False", "NotEligible"),
        ("spoke4", "False", "Refused"),
    ] {
        wait_until(TIMEOUT, &format!("the condition of {cluster}"), async || {
            let addon = managed_cluster_addons(&admin, cluster).await.get("telemetry").await.unwrap();
            let conditions = addon.data["status"]["conditions"].as_array()?.clone();
            let message = conditions.into_iter().find(|it| it["type"] == "addon-signer.io/Certificate")?;
            (message["status"] == value && message["reason"] == reason).then_some(())
        })
        .await;
    }
    let ask = async |command: &str| run(home.path(), &[command, "--kubeconfig", &kubeconfig]).await;
    let status = ask("status").await;
    assert_eq!(status.code, 0, "{}", status.stderr);
    assert!(status.stdout.contains("spoke1   telemetry  NoTrust        20"), "with its end: {}", status.stdout);
    assert!(status.stdout.contains("spoke2   telemetry  NoCertificate"), "{}", status.stdout);
    assert!(!status.stdout.contains("Unknown"), "{}", status.stdout);
    assert!(status.stderr.contains("It is not known when certificates were last used, because"), "{}", status.stderr);
    define(&hub).await;
    let check = ask("check").await;
    let line = "BAD  addons on clusters: 2 of 4 have no valid certificate or had their last CSR refused: ";
    assert!(check.stdout.contains(line), "{}", check.stdout);
    assert!(!check.stdout.contains("could not be checked"), "the roles for viewers are enough: {}", check.stdout);
    whole.stop().await.unwrap();
}
