//! What agents lose while everything is replaced, killed and rotated: `just soak-cluster`, some minutes.

use std::convert::Infallible;
use std::time::Duration;

use addon_signer_agent::store::Store;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{EvictParams, ListParams};
use kube::{Api, Client, ResourceExt};
use test_kit::needed::{Needed, skip};
use test_kit::postgres::Postgres;
use test_kit::real::RealHub;
use test_kit::{accept_cluster, wait_until};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::traffic::Traffic;
use super::{Fleet, NODE, PATIENCE, TURN, allow_streams, gateway, install, kubectl, live_gateways, rotate};
use crate::whole::client::ClientPair;
use crate::whole::ours::{agent_with, pair};

/// How many agents call.
const AGENTS: usize = 50;
/// How long they call after each event.
const QUIET: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn fifty_agents_lose_nothing() {
    if std::env::var_os("ADDON_SIGNER_SOAK").is_none() {
        eprintln!("skipped: this is a part of `just soak-cluster`");
        return;
    }
    let Some(hub) = RealHub::of_cluster() else { return skip(Needed::Cluster) };
    let _turn = TURN.lock().await;
    let postgres = prepare_ledger().await;
    let fleet = Fleet::start(hub).await;
    install(&fleet, &["gateways.yaml", "two-signers.yaml"]).await;
    allow_streams();
    let dir = tempfile::tempdir().unwrap();
    let (pairs, _agents) = enrol(&fleet, dir.path()).await;
    println!("{AGENTS} agents are enrolled");
    let gap = watch_leader(fleet.admin.clone());
    let traffic = Traffic::start(pairs, Duration::from_millis(200));
    traffic.wait_passed(1_000).await;
    for (what, deployment) in [("gateways", "deployment/addon-signer-gateway"), ("signers", "deployment/addon-signer")]
    {
        roll_out(deployment);
        told(what, "rollout", &traffic).await;
    }
    rotate();
    rotate_gateways_line().await;
    told("both lines", "rotation", &traffic).await;
    evict(&fleet.admin, "gateway").await;
    told("a gateway", "eviction", &traffic).await;
    traffic.someone_kills(true);
    kill(&fleet.admin, "gateway").await;
    sleep(QUIET).await;
    traffic.someone_kills(false);
    told("a gateway", "SIGKILL", &traffic).await;
    kill(&fleet.admin, "hub").await;
    told("a signer", "SIGKILL", &traffic).await;
    println!("{}", traffic.stop().await);
    println!("longest time between two renewals of the Lease: {:.1} s", gap.stop().await.as_secs_f64());
    wait_until(PATIENCE, "three Leases", async || (live_gateways() == 3).then_some(())).await;
    drop(postgres);
}

async fn told(what: &str, event: &str, traffic: &Traffic) {
    sleep(QUIET).await;
    traffic.wait_passed(1_000).await;
    println!("{event} of {what}: done");
}

/// PostgreSQL on the node, and what pods need to reach it.
async fn prepare_ledger() -> Postgres {
    let postgres = Postgres::start_for_pods(NODE).await;
    postgres.create_database("ledger").await;
    let url = format!("--from-literal=url={}", postgres.url_for_pods("ledger", "/etc/ledger/ca.crt"));
    kubectl(&["create", "namespace", "addon-signer"]);
    kubectl(&["create", "secret", "generic", "-n", "addon-signer", "ledger-url", &url]);
    let ca = format!("--from-literal=ca.crt={}", postgres.ca());
    kubectl(&["create", "configmap", "-n", "addon-signer", "ledger-ca", &ca]);
    postgres
}

/// Our agents of so many clusters, each with its own certificate.
async fn enrol(fleet: &Fleet, dir: &std::path::Path) -> (Vec<ClientPair>, Vec<AbortOnDropHandle<Infallible>>) {
    let (mut pairs, mut agents) = (Vec::new(), Vec::new());
    for n in 0..AGENTS {
        let cluster = format!("soak{n}");
        accept_cluster(&fleet.admin, &cluster).await;
        test_kit::install_addon(&fleet.admin, &cluster, "telemetry").await;
        let user = format!("system:open-cluster-management:{cluster}:a1");
        let group = format!("system:open-cluster-management:{cluster}");
        let kubeconfig = fleet.kubeconfig(&user, &[&group, "system:open-cluster-management:managed-clusters"]);
        let agent = agent_with(&kubeconfig, dir, &cluster, gateway(), Store::directory(dir.join(&cluster)));
        agents.push(AbortOnDropHandle::new(tokio::spawn(agent.run())));
    }
    for n in 0..AGENTS {
        let cluster = format!("soak{n}");
        pairs.push(wait_until(PATIENCE, "an agent's certificate", async || pair(dir, &cluster)).await);
    }
    (pairs, agents)
}

fn roll_out(deployment: &str) {
    kubectl(&["rollout", "restart", "-n", "addon-signer", deployment]);
    kubectl(&["rollout", "status", "-n", "addon-signer", deployment, "--timeout=180s"]);
}

/// Asks for a new serving authority. It signs once all agents have its anchor; meanwhile both are trusted.
async fn rotate_gateways_line() {
    kubectl(&["annotate", "-n", "addon-signer", "configmap/addon-signer-trust", "addon-signer.io/rotate=now"]);
    let anchors = || kubectl(&["get", "-n", "addon-signer", "configmap/addon-signer-trust", "-o=jsonpath={.data}"]);
    // Each stands in `ca.crt` and in the report.
    let are_two = async || (anchors().matches("BEGIN CERTIFICATE").count() == 4).then_some(());
    wait_until(PATIENCE, "the gateway's second authority", are_two).await;
}

/// A pod of this component that does not end; of the signers, the one that leads.
async fn one_pod(admin: &Client, component: &str) -> Pod {
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "addon-signer");
    let label = format!("app.kubernetes.io/component={component}");
    let leases: Api<Lease> = Api::namespaced(admin.clone(), "addon-signer");
    let leader = leases.get("addon-signer").await.unwrap().spec.unwrap().holder_identity.unwrap();
    let found = pods.list(&ListParams::default().labels(&label)).await.unwrap().items.into_iter();
    let mut lasting = found.filter(|pod| pod.metadata.deletion_timestamp.is_none());
    lasting.find(|pod| component == "gateway" || leader.starts_with(&format!("{}_", pod.name_any()))).unwrap()
}

async fn evict(admin: &Client, component: &str) {
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "addon-signer");
    let pod = one_pod(admin, component).await;
    pods.evict(&pod.name_any(), &EvictParams::default()).await.unwrap();
}

/// Kills the program in one pod, which gets no chance to say goodbye, and waits until it runs again.
async fn kill(admin: &Client, component: &str) {
    let status = |pod: Pod| pod.status.unwrap().container_statuses.unwrap().remove(0);
    let pod = one_pod(admin, component).await;
    let (name, before) = (pod.name_any(), status(pod));
    let id = before.container_id.unwrap();
    let id = id.strip_prefix("containerd://").unwrap();
    let killed =
        std::process::Command::new("ctr").args(["-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", id]).status();
    assert!(killed.unwrap().success());
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "addon-signer");
    wait_until(PATIENCE, "the program to run again", async || {
        let now = status(pods.get(&name).await.unwrap());
        (now.ready && now.restart_count > before.restart_count).then_some(())
    })
    .await;
}

/// Watches how long nobody renews the leader's Lease.
struct LeaderWatch(JoinHandle<Duration>, tokio_util::sync::CancellationToken);

impl LeaderWatch {
    async fn stop(self) -> Duration {
        self.1.cancel();
        self.0.await.unwrap()
    }
}

fn watch_leader(admin: Client) -> LeaderWatch {
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    let leases: Api<Lease> = Api::namespaced(admin, "addon-signer");
    let task = tokio::spawn(async move {
        let (mut last, mut since, mut longest) = (None, Instant::now(), Duration::ZERO);
        while !stopped.is_cancelled() {
            let renewed = leases.get("addon-signer").await.unwrap().spec.and_then(|spec| {
                spec.holder_identity.filter(|holder| !holder.is_empty())?;
                spec.renew_time
            });
            if renewed.is_some() && renewed != last {
                longest = longest.max(since.elapsed());
                (last, since) = (renewed, Instant::now());
            }
            sleep(Duration::from_millis(50)).await;
        }
        longest
    });
    LeaderWatch(task, stop)
}
