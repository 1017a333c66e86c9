//! What agents lose while everything is replaced, killed and rotated: `just soak-cluster`, some minutes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use addon_signer_agent::store::Store;
use addon_signer_core::encoding::pem;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{EvictParams, ListParams};
use kube::config::Kubeconfig;
use kube::{Api, Client, ResourceExt};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use test_kit::needed::{Needed, found};
use test_kit::ocm::ADDON_NAMESPACE;
use test_kit::postgres::Postgres;
use test_kit::real::RealHub;
use test_kit::wait::wait_or_explain;
use test_kit::{accept_cluster, wait_until};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::signing::Signing;
use super::traffic::{Caller, Traffic};
use super::{
    CLUSTER, Fleet, NODE, TIMEOUT, TURN, allow_streams, command, gateway, install, kubectl, live_gateways, rotate,
};
use crate::whole::client::ClientPair;
use crate::whole::ours::{agent_with, issuer, pair};

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
    let Some(hub) = found(Needed::Cluster, RealHub::of_cluster()) else { return };
    let _turn = TURN.lock().await;
    let postgres = prepare_ledger().await;
    let fleet = Fleet::start(hub).await;
    install(&fleet, &["gateways.yaml", "two-signers.yaml"]).await;
    allow_streams();
    let dir = tempfile::tempdir().unwrap();
    let _agents = enrol(&fleet, dir.path()).await;
    let signing = Signing::start((0..AGENTS).map(cluster).map(|it| (it.clone(), kubeconfig(&fleet, &it))).collect());
    let (plain, _follows) = plain_addon(&fleet).await;
    println!("{AGENTS} agents of ours are enrolled, and one of OCM's");
    let callers = (0..AGENTS).map(|n| ours(dir.path(), n)).chain([plain.clone()]);
    let traffic = Traffic::start(callers, Duration::from_millis(200));
    traffic.wait_passed(1_000).await;
    roll_out("deployment/addon-signer");
    reported("signers", "rollout", &traffic).await;
    taint(dir.path()).await;
    rotate();
    reported("the clients' line, twice", "rotation", &traffic).await;
    rotate_gateways_line(dir.path(), &plain).await;
    reported("the gateway's line", "rotation", &traffic).await;
    // From here on all connections are made with certificates of the new authorities.
    roll_out("deployment/addon-signer-gateway");
    reported("gateways", "rollout", &traffic).await;
    settled(&fleet.admin).await;
    evict(&fleet.admin, "gateway").await;
    settled(&fleet.admin).await;
    reported("a gateway", "eviction", &traffic).await;
    traffic.someone_kills(true);
    kill(&fleet.admin, "gateway").await;
    sleep(QUIET).await;
    traffic.someone_kills(false);
    reported("a gateway", "SIGKILL", &traffic).await;
    kill(&fleet.admin, "hub").await;
    reported("a signer", "SIGKILL", &traffic).await;
    println!("{}", traffic.stop().await);
    let (signed, longest) = signing.stop().await;
    println!("{signed} certificates meanwhile, the slowest after {:.1} s", longest.as_secs_f64());
    wait_until(TIMEOUT, "three Leases", async || (live_gateways() == 3).then_some(())).await;
    drop(postgres);
}

async fn reported(what: &str, event: &str, traffic: &Traffic) {
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

/// The name of a cluster whose agent is ours.
fn cluster(n: usize) -> String {
    format!("soak{n}")
}

fn ours(dir: &Path, n: usize) -> Caller {
    let dir = dir.to_owned();
    Caller { addon: "telemetry", streams: true, pair: Arc::new(move || pair(&dir, &cluster(n))) }
}

fn pairs(dir: &Path) -> Vec<ClientPair> {
    (0..AGENTS).filter_map(|n| pair(dir, &cluster(n))).collect()
}

/// What OCM's agent of this cluster has.
fn kubeconfig(fleet: &Fleet, cluster: &str) -> Kubeconfig {
    let group = format!("system:open-cluster-management:{cluster}");
    fleet.kubeconfig(&format!("{group}:a1"), &[&group, "system:open-cluster-management:managed-clusters"])
}

/// Our agents of so many clusters, each with its own certificate.
async fn enrol(fleet: &Fleet, dir: &Path) -> Vec<AbortOnDropHandle<Infallible>> {
    let mut agents = Vec::new();
    for cluster in (0..AGENTS).map(cluster) {
        accept_cluster(&fleet.admin, &cluster).await;
        test_kit::install_addon(&fleet.admin, &cluster, "telemetry").await;
        let agent =
            agent_with(&kubeconfig(fleet, &cluster), dir, &cluster, gateway(), Store::directory(dir.join(&cluster)));
        agents.push(AbortOnDropHandle::new(tokio::spawn(agent.run())));
    }
    let all = async || (pairs(dir).len() == AGENTS).then_some(());
    wait_until(TIMEOUT, "every agent's certificate", all).await;
    agents
}

/// The addon telemetry-plain of the node's cluster. OCM's agent keeps its certificate, and a ManifestWork brings its
/// anchors.
async fn plain_addon(fleet: &Fleet) -> (Caller, AbortOnDropHandle<()>) {
    test_kit::install_addon(&fleet.admin, CLUSTER, "telemetry-plain").await;
    let secrets: Api<Secret> = Api::namespaced(fleet.admin.clone(), ADDON_NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(fleet.admin.clone(), ADDON_NAMESPACE);
    let (sender, stored) = watch::channel(None);
    let follows = tokio::spawn(async move {
        loop {
            // The addon has what it had before while the API server does not answer.
            if let (Ok(secret), Ok(map)) = (
                secrets.get("telemetry-plain-example.com-telemetry-client-cert").await,
                maps.get("telemetry-plain-hub-trust").await,
            ) {
                sender.send_replace(plain_pair(secret, map));
            }
            sleep(Duration::from_millis(500)).await; // an addon looks at its files from time to time
        }
    });
    let pair = Arc::new(move || stored.borrow().clone());
    wait_until(TIMEOUT, "the certificate and the anchors of telemetry-plain", async || pair().map(drop)).await;
    (Caller { addon: "telemetry-plain", streams: false, pair }, AbortOnDropHandle::new(follows))
}

fn plain_pair(secret: Secret, map: ConfigMap) -> Option<ClientPair> {
    let mut data = secret.data?;
    let mut part = |name: &str| data.remove(name).map(|bytes| bytes.0);
    let anchors = map.data?.remove("ca.crt")?.into_bytes();
    Some(ClientPair { certificate: part("tls.crt")?, key: part("tls.key")?, anchors })
}

/// Runs our own command as an administrator.
pub(super) fn addon_signer(arguments: &[&str]) -> String {
    command(env!("CARGO_BIN_EXE_addon-signer"), arguments)
}

/// Another authority signs, and our agents are told to renew: all have a certificate of it.
async fn taint(dir: &Path) {
    let before: BTreeSet<_> = pairs(dir).iter().map(issuer).collect();
    addon_signer(&["ca", "taint", "telemetry"]);
    let renewed = || pairs(dir).iter().filter(|pair| !before.contains(&issuer(pair))).count();
    let all = async || (renewed() == AGENTS).then_some(());
    wait_or_explain(TIMEOUT, "every agent to renew", all, || format!("{} of {AGENTS}", renewed())).await;
}

fn roll_out(deployment: &str) {
    kubectl(&["rollout", "restart", "-n", "addon-signer", deployment]);
    kubectl(&["rollout", "status", "-n", "addon-signer", deployment, "--timeout=180s"]);
}

/// Rotates the authority of the gateway's certificate. Nobody applies the ManifestWorks of our agents' clusters, and
/// pods may need a quarter of an hour: the administrator knows that all have the new anchor.
async fn rotate_gateways_line(dir: &Path, plain: &Caller) {
    addon_signer(&["ca", "rotate", "--serving"]);
    let has_both = |pair: &ClientPair| CertificateDer::pem_slice_iter(&pair.anchors).count() == 2;
    let all = async || {
        let ours = pairs(dir).iter().filter(|pair| has_both(pair)).count() == AGENTS;
        (ours && (plain.pair)().is_some_and(|pair| has_both(&pair))).then_some(())
    };
    wait_until(TIMEOUT, "the new anchor at every agent", all).await;
    let clusters: Vec<_> = (0..AGENTS).map(cluster).chain([CLUSTER.to_owned()]).collect();
    let pair = pairs(dir).remove(0);
    let shown = async || {
        let leaf = pair.shown(gateway()).await?;
        Some(issuer(&ClientPair { certificate: pem::encode("CERTIFICATE", &leaf).into_bytes(), ..pair.clone() }))
    };
    let before = wait_until(TIMEOUT, "the gateway's certificate", shown).await;
    addon_signer(&["ca", "advance", "--serving", "--except", &clusters.join(",")]);
    let another = async || shown().await.filter(|now| *now != before);
    wait_until(TIMEOUT, "a certificate of the new authority", another).await;
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

/// Waits until no gateway ends any more: what an earlier event does must not count as a later one's.
async fn settled(admin: &Client) {
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "addon-signer");
    let label = ListParams::default().labels("app.kubernetes.io/component=gateway");
    wait_until(TIMEOUT, "three gateways, none of which ends", async || {
        let found = pods.list(&label).await.unwrap().items;
        (found.len() == 3 && found.iter().all(|pod| pod.metadata.deletion_timestamp.is_none())).then_some(())
    })
    .await;
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
    wait_until(TIMEOUT, "the program to run again", async || {
        let now = status(pods.get(&name).await.unwrap());
        (now.ready && now.restart_count > before.restart_count).then_some(())
    })
    .await;
}
