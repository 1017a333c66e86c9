//! The whole loop with `addon-signer-agent`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use addon_signer_agent::store::Store;
use addon_signer_agent::{Agent, Settings, Timing};
use addon_signer_core::identity::{AgentName, Convention, PeerIdentity};
use addon_signer_platform::clock::Clock;
use hyper::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::json;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::client::ClientPair;
use super::{Whole, get, mk_whole, prepare, rotate};
use crate::gateway::backend;
use test_kit::accounts::AGENT_USER;
use test_kit::deploy::{apply, file, part};
use test_kit::hub::{TIMEOUT, change_signer, create_route, create_signer, deploy};
use test_kit::objects::managed_cluster_addons;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

const RECEIVE: &str = "/addons/telemetry/api/v1/receive";

fn agent(hub: &TestHub, dir: &Path, cluster: &str, gateway: SocketAddr, store: Store) -> Agent {
    let user = format!("system:open-cluster-management:{cluster}:a1");
    let group = format!("system:open-cluster-management:{cluster}");
    let kubeconfig = hub.kubeconfig(&user, &[&group, "system:open-cluster-management:managed-clusters"]);
    agent_with(&kubeconfig, dir, cluster, gateway, store)
}

pub(crate) fn agent_with(
    kubeconfig: &Kubeconfig,
    dir: &Path,
    cluster: &str,
    gateway: SocketAddr,
    store: Store,
) -> Agent {
    Agent::new(settings(kubeconfig, dir, cluster, gateway), store, Clock::default())
}

/// The settings of the agent of the addon telemetry on this cluster, whose kubeconfig is written to `dir`.
pub(crate) fn settings(kubeconfig: &Kubeconfig, dir: &Path, cluster: &str, gateway: SocketAddr) -> Settings {
    let file = dir.join(format!("{cluster}.kubeconfig"));
    std::fs::write(&file, serde_saphyr::to_string(kubeconfig).unwrap()).unwrap();
    let addon = "telemetry".parse().unwrap();
    Settings {
        identity: PeerIdentity { cluster: cluster.parse().unwrap(), agent: AgentName::of_addon(&addon), addon },
        convention: Convention::default(),
        signer_name: "example.com/telemetry".to_owned(),
        expiration_seconds: None,
        hub_kubeconfig: file,
        plugins: addon_signer_platform::kubeconfig::Plugins::Refuse,
        gateway: format!("https://{gateway}").parse().unwrap(),
        timing: Timing {
            poll: Duration::from_millis(300),
            retry_first: Duration::from_secs(1),
            refresh: Duration::from_secs(1),
            ..Timing::default()
        },
    }
}

/// What the agent has stored; `None` until there are all three files.
pub(crate) fn pair(dir: &Path, cluster: &str) -> Option<ClientPair> {
    ClientPair::read(&dir.join(cluster))
}

pub(crate) fn issuer(pair: &ClientPair) -> String {
    let leaf = pair.leaf();
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    leaf.issuer().to_string().rsplit(' ').next().unwrap().to_owned()
}

pub(crate) async fn enrolled(
    hub: &TestHub,
    admin: &Client,
    dir: &Path,
    cluster: &str,
    gateway: SocketAddr,
) -> ClientPair {
    accept_cluster(admin, cluster).await;
    install_addon(admin, cluster, "telemetry").await;
    let store = Store::directory(dir.join(cluster));
    tokio::spawn(agent(hub, dir, cluster, gateway, store).run());
    let pair = wait_until(TIMEOUT, "the agent's certificate", async || pair(dir, cluster)).await;
    wait_routed(&pair, gateway).await;
    pair
}

/// Waits until the gateway knows the routes of the pair's signer. An agent may have its certificate before that.
async fn wait_routed(pair: &ClientPair, gateway: SocketAddr) {
    wait_until(TIMEOUT, "the gateway's routes", async || {
        // While the gateway does not trust the certificate either, there is no answer.
        let answer = pair.call(gateway, Method::GET, RECEIVE).await.ok()?;
        (answer.0 != 503).then_some(())
    })
    .await;
}

#[tokio::test]
async fn agent_enrols_requests_and_survives_rotation_until_detached() {
    let backend = backend::start().await;
    let (hub, admin, whole) = mk_whole(backend).await;
    let dir = tempfile::tempdir().unwrap();
    let first = enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    let (status, body) = first.call(whole.gateway, Method::GET, "/v1/whoami").await.unwrap();
    assert_eq!(status, 200, "{body}");
    let whoami: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(whoami["cluster"], "spoke1");
    assert_eq!(whoami["signer"], "telemetry");
    assert_eq!(first.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    assert_eq!(first.call(whole.gateway, Method::GET, RECEIVE).await.unwrap().0, 405);

    let traffic = Traffic::start(whole.gateway, first.clone());
    let second_authority = rotate(&admin).await;
    std::fs::remove_dir_all(dir.path().join("spoke1")).unwrap();
    let second = wait_until(TIMEOUT, "a certificate of the new authority", async || {
        pair(dir.path(), "spoke1").filter(|pair| issuer(pair) == second_authority)
    })
    .await;
    assert_eq!(second.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    assert_eq!(first.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200, "the old one still counts");
    let (sent, failed) = traffic.stop().await;
    assert!(sent > 0, "{failed} of {sent} failed during the rotation");
    assert!(failed == 0, "{failed} of {sent} failed during the rotation");

    managed_cluster_addons(&admin, "spoke1").await.delete("telemetry", &Default::default()).await.unwrap();
    let detached = Instant::now();
    wait_until(Duration::from_secs(2), "the gateway to refuse a detached cluster", async || {
        let answer = second.call(whole.gateway, Method::POST, RECEIVE).await;
        answer.map_or(true, |(status, _)| status == 403).then_some(())
    })
    .await;
    assert!(detached.elapsed() < Duration::from_secs(2), "it took {:?}", detached.elapsed());
    whole.stop().await.unwrap();
}

/// An address that the administrator allows may lead there.
#[tokio::test]
async fn forwarding_to_hub_metrics_is_refused_there() {
    let hub = TestHub::start().await;
    deploy(&hub).await;
    let whole = Whole::start(&hub, Clock::default()).await;
    let admin = hub.admin().await;
    let from = json!({ "routesFrom": { "namespaces": ["default"] } });
    let spec = json!({ "signerName": "example.com/telemetry", "addOns": ["telemetry"], "gateway": from });
    create_signer(&admin, "telemetry", spec).await;
    create_route(&admin, whole.metrics, "/metrics", &["GET"]).await;
    let dir = tempfile::tempdir().unwrap();
    let pair = enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    let answer = pair.call(whole.gateway, Method::GET, "/addons/telemetry/metrics").await.unwrap();
    assert_eq!((answer.0.as_u16(), &*answer.1), (403, "the gateway forwards nothing to this address\n"));
    assert_eq!(get(whole.metrics, "/metrics").await.0, 200);
    whole.stop().await.unwrap();
}

#[tokio::test]
async fn an_agent_keeps_its_secret_with_the_rights_of_deploy_agent() {
    let (hub, admin, whole) = mk_whole(backend::start().await).await;
    accept_cluster(&admin, "spoke1").await;
    install_addon(&admin, "spoke1", "telemetry").await;
    let namespace = "open-cluster-management-agent-addon";
    for name in [namespace, "open-cluster-management-agent"] {
        test_kit::objects::create_namespace(&admin, name).await; // OCM's klusterlet makes it
    }
    if hub.is_real() {
        apply(&admin, &file("deploy/agent.yaml")).await; // the hub's API server is the managed cluster as well
    }
    let dir = tempfile::tempdir().unwrap();
    let managed_cluster = hub.client_as(AGENT_USER, &[]).await;
    let store = Store::secret(managed_cluster, namespace, &"telemetry".parse().unwrap());
    tokio::spawn(agent(&hub, dir.path(), "spoke1", whole.gateway, store).run());
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), namespace);
    let read = async || -> Option<ClientPair> {
        let mut data = secrets.get_opt("telemetry-client-cert").await.unwrap()?.data?;
        let mut take = |name: &str| data.remove(name).map(|bytes| bytes.0);
        Some(ClientPair { certificate: take("tls.crt")?, key: take("tls.key")?, anchors: take("ca.crt")? })
    };
    let first = wait_until(TIMEOUT, "the Secret", read).await;
    wait_routed(&first, whole.gateway).await;
    assert_eq!(first.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    secrets.delete("telemetry-client-cert", &Default::default()).await.unwrap();
    let second = wait_until(TIMEOUT, "the Secret to come back", read).await;
    assert_ne!(first.certificate, second.certificate);
    assert_eq!(second.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    let damage = Patch::Merge(json!({ "data": { "tls.key": ByteString(b"garbage".to_vec()) } }));
    secrets.patch("telemetry-client-cert", &PatchParams::default(), &damage).await.unwrap();
    wait_until(TIMEOUT, "another certificate in the same Secret", async || {
        read().await.filter(|pair| pair.certificate != second.certificate)
    })
    .await;
    whole.stop().await.unwrap();
}

/// No pod of the addon needs the cluster's identity then.
#[tokio::test]
async fn agent_asks_with_addon_hub_identity_and_requester_rights() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, backend::start().await, "24h").await;
    if hub.is_real() {
        apply(&admin, &part("requesters")).await;
    }
    change_signer(&admin, json!({ "spec": { "identity": { "requesters": ["Cluster", "AddOn"] } } })).await;
    let whole = Whole::start(&hub, Clock::default()).await;
    accept_cluster(&admin, "spoke1").await;
    install_addon(&admin, "spoke1", "telemetry").await;
    let addon = "system:open-cluster-management:cluster:spoke1:addon:telemetry";
    // The klusterlet's agent id, as OCM up to v1.2 has it.
    let user = format!("{addon}:agent:x7k2p");
    let kubeconfig = hub.kubeconfig(&user, &[addon, "system:open-cluster-management:addon:telemetry"]);
    let dir = tempfile::tempdir().unwrap();
    let store = Store::directory(dir.path().join("spoke1"));
    tokio::spawn(agent_with(&kubeconfig, dir.path(), "spoke1", whole.gateway, store).run());
    let pair = wait_until(TIMEOUT, "the agent's certificate", async || pair(dir.path(), "spoke1")).await;
    wait_routed(&pair, whole.gateway).await;
    let (status, body) = pair.call(whole.gateway, Method::GET, "/v1/whoami").await.unwrap();
    assert!(status == 200, "{body}");
    assert!(body.contains("\"agent\":\"telemetry\""), "{body}");

    // With the same identity an addon reads the trust bundle, if nothing brings it.
    if hub.is_real() {
        apply(&admin, &part("trust-readers")).await;
    }
    let own = hub.client_as(&user, &[addon, "system:open-cluster-management:addon:telemetry"]).await;
    let maps: Api<ConfigMap> = Api::namespaced(own, "addon-signer");
    let read = wait_until(TIMEOUT, "the right to read", async || maps.get("addon-signer-trust").await.ok()).await;
    assert_eq!(read.data.unwrap()["ca.crt"].as_bytes(), pair.anchors);
    whole.stop().await.unwrap();
}

/// Sends one request after the other, each on a connection of its own.
pub(super) struct Traffic {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU32>,
    failed: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<()>,
}

impl Traffic {
    pub(super) fn start(gateway: SocketAddr, pair: ClientPair) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let sent = Arc::<AtomicU32>::default();
        let failed = Arc::<AtomicU32>::default();
        let stopped = stop.clone();
        let count = sent.clone();
        let failures = failed.clone();
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let answer = pair.call(gateway, Method::POST, RECEIVE).await;
                count.fetch_add(1, Ordering::Relaxed);
                if !answer.is_ok_and(|(status, _)| status == 200) {
                    failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { stop, sent, failed, task }
    }

    pub(super) async fn stop(self) -> (u32, u32) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        (self.sent.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}
