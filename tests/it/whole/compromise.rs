//! Somebody else has a key: what they can do with it, and how long after a command they can no longer. On a real API
//! server the tests print the times of the table in SECURITY.md, "What the theft of a key costs".

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use addon_signer_core::ca::authority::BACKDATE;
use addon_signer_core::timestamp::Timestamp;
use hyper::{Method, StatusCode};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use super::client::ClientPair;
use super::ours::{enrolled, issuer, pair};
use super::{Whole, active, mk_whole};
use crate::cli::{run, write};
use crate::gateway::backend;
use test_kit::issue::{Ca, Leaf};
use test_kit::{TestHub, wait_until};

const RECEIVE: &str = "/addons/telemetry/api/v1/receive";
const CLUSTERS: [&str; 3] = ["spoke1", "spoke2", "spoke3"];
const DAY: Duration = Duration::from_secs(86_400);
/// Between two requests of an agent.
const PAUSE: Duration = Duration::from_millis(20);
/// Within this a gateway refuses whom it must no longer let in.
const BOUND: Duration = Duration::from_secs(2);
/// Agents that are told to renew do so within a minute.
const LONG: Duration = Duration::from_secs(90);

/// A hub with a gateway, whose agents call all the time.
struct World {
    hub: TestHub,
    admin: Client,
    whole: Whole,
    dir: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let (hub, admin, whole) = mk_whole(backend::start().await).await;
        let dir = tempfile::tempdir().unwrap();
        for cluster in CLUSTERS {
            enrolled(&hub, &admin, dir.path(), cluster, whole.gateway).await;
        }
        Self { hub, admin, whole, dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn pairs(&self) -> Vec<ClientPair> {
        CLUSTERS.iter().filter_map(|cluster| pair(self.path(), cluster)).collect()
    }

    /// The authority of this id, with its key, from the lineage's Secret.
    async fn steal(&self, secret: &str, id: &str) -> Ca {
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), "addon-signer");
        let data = secrets.get(secret).await.unwrap().data.unwrap();
        let certificate = CertificateDer::from_pem_slice(&data[&format!("{id}.crt")].0).unwrap();
        Ca::of_pair(&certificate, &data[&format!("{id}.key")].0)
    }

    /// Runs a command of an administrator; returns when it had ended.
    async fn command(&self, arguments: &[&str]) -> Instant {
        let kubeconfig = write(self.path(), &self.hub.kubeconfig("ann", &["system:masters"])).display().to_string();
        let output = run(self.path(), &[arguments, &["--kubeconfig", &kubeconfig]].concat()).await;
        assert_eq!(output.code, 0, "{}", output.stderr);
        Instant::now()
    }

    async fn status(&self, pair: &ClientPair) -> Option<StatusCode> {
        let answer = pair.call(self.whole.gateway, Method::POST, RECEIVE).await;
        answer.ok().map(|(status, _)| status)
    }
}

/// Requests of all agents, each with the certificate that it has at that moment.
struct Calls {
    stop: Arc<AtomicBool>,
    passed: Arc<AtomicU32>,
    failed: Arc<AtomicU32>,
    tasks: JoinSet<()>,
}

impl Calls {
    fn start(world: &World) -> Self {
        let (stop, passed, failed) = (Arc::<AtomicBool>::default(), Arc::default(), Arc::default());
        let mut tasks = JoinSet::new();
        for cluster in CLUSTERS {
            let (dir, gateway) = (world.path().to_owned(), world.whole.gateway);
            let (stop, passed, failed): (_, Arc<AtomicU32>, Arc<AtomicU32>) =
                (Arc::clone(&stop), Arc::clone(&passed), Arc::clone(&failed));
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    // The agent writes its files one after the other: between two of them they do not belong together.
                    let Some(pair) = pair(&dir, cluster).filter(ClientPair::belongs_together) else {
                        sleep(PAUSE).await; // it looks again, as an addon does
                        continue;
                    };
                    let answer = pair.call(gateway, Method::POST, RECEIVE).await;
                    let count = if answer.is_ok_and(|(status, _)| status == 200) { &passed } else { &failed };
                    count.fetch_add(1, Ordering::Relaxed);
                    sleep(PAUSE).await; // leaves time to other tests
                }
            });
        }
        Self { stop, passed, failed, tasks }
    }

    /// How many passed and failed.
    async fn stop(self) -> (u32, u32) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        (self.passed.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix(k8s_openapi::jiff::Timestamp::now().as_second())
}

/// Taint, wait, revoke: the way that locks nobody out.
#[tokio::test]
async fn stolen_client_authority_ends_without_one_failed_call() {
    let world = World::start().await;
    let id = active(&world.admin).await.unwrap();
    let stolen = world.steal("telemetry-client-authorities", &id).await;
    let leaf = stolen.client("spoke1", "telemetry", now().plus(BACKDATE), DAY); // no revocation is later
    let thief = ClientPair::of_leaf(&leaf, &[], &world.pairs()[0].anchors);
    assert_eq!(world.status(&thief).await, Some(StatusCode::OK), "the thief is the agent");

    let calls = Calls::start(&world);
    let tainted = world.command(&["ca", "taint", "telemetry"]).await;
    wait_until(LONG, "certificates of the new authority", async || {
        let renewed = world.pairs().iter().filter(|pair| issuer(pair) != id).count();
        (renewed == CLUSTERS.len()).then_some(())
    })
    .await;
    let renewed = tainted.elapsed();
    assert_eq!(world.status(&thief).await, Some(StatusCode::OK), "a tainted authority is still trusted");
    let revoked = world.command(&["ca", "revoke", "telemetry", &id, "--yes"]).await;
    let is_out = async || world.status(&thief).await.is_none().then_some(());
    wait_until(BOUND, "the gateway to refuse the thief", is_out).await;
    let ended = revoked.elapsed();
    let (passed, failed) = calls.stop().await;
    eprintln!(
        "client authority: agents renewed after {renewed:.1?}, thief out {ended:.1?} after revoke, {failed} calls \
         failed, {passed} passed"
    );
    assert!(passed > 0 && failed == 0, "{failed} failed, {passed} passed");
    assert!(ended < BOUND, "{ended:?}");
    world.whole.stop().await.unwrap();
}

/// The id of the authority of the gateway's certificate.
async fn serving_id(world: &World) -> String {
    let anchors = super::serving_anchors(&world.admin).await;
    let der = CertificateDer::from_pem_slice(anchors.as_bytes()).unwrap();
    addon_signer_core::ca::authority::Authority::from_der(&der).unwrap().id().to_string()
}

/// A server that pretends to be the gateway; returns its address.
async fn pretend(leaf: Leaf) -> SocketAddr {
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.certificate], leaf.key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            acceptor.accept(tcp).await.ok(); // a client that does not believe it ends the handshake
        }
    });
    address
}

/// The same ends what whoever has the key of a gateway's certificate can do: it is below that authority.
#[tokio::test]
async fn stolen_serving_authority_is_believed_until_agents_enrol() {
    let world = World::start().await;
    let id = serving_id(&world).await;
    let stolen = world.steal("addon-signer-serving-authorities", &id).await;
    let thief = pretend(stolen.server(&[], &["127.0.0.1".parse().unwrap()], now())).await;
    for pair in world.pairs() {
        assert!(pair.shown(thief).await.is_some(), "an agent believes the thief");
    }
    let calls = Calls::start(&world);
    let revoked = world.command(&["ca", "revoke", "--serving", &id, "--yes"]).await;
    wait_until(LONG, "agents that believe the gateway alone", async || {
        for pair in world.pairs() {
            let is_good = world.status(&pair).await == Some(StatusCode::OK);
            if !is_good || pair.shown(thief).await.is_some() {
                return None;
            }
        }
        (world.pairs().len() == CLUSTERS.len()).then_some(())
    })
    .await;
    let ended = revoked.elapsed();
    let (passed, failed) = calls.stop().await;
    eprintln!(
        "serving authority: no agent believes the thief {ended:.1?} after revoke, {failed} failed, {passed} passed"
    );
    assert!(passed > 0);
    world.whole.stop().await.unwrap();
}
