//! Strangers at the gateway, from a process of their own, while an honest agent makes calls, each on a new connection.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use axum::Router;
use axum::routing::post;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use ring::rand::SystemRandom;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::world::{World, submit};
use addon_signer_load::measure::{cpu_ms, peak_mb, resident_mb};
use addon_signer_load::quantiles::Quantiles;
use test_kit::hub::{certificate, create_route, create_signer, wait_ready};
use test_kit::process::{Process, free_port};
use test_kit::request::mk_csr_of;
use test_kit::{accept_cluster, install_addon};

const CALLS: usize = 300;
const PAUSE: Duration = Duration::from_millis(20);
const IDLE: usize = 10_000;
const HALF_OPEN: usize = 1_000;
/// How long a stranger waits before it comes back.
const COME_BACK: Duration = Duration::from_secs(1);
/// Until all strangers have come.
const GATHER: Duration = Duration::from_secs(15);
/// The begin of a TLS record with a ClientHello of 512 bytes, of which no more comes.
const HALF_A_HELLO: [u8; 9] = [22, 3, 1, 2, 0, 1, 0, 1, 252];

pub(crate) async fn run(program: &Path) {
    raise_open_files();
    let world = World::start(program).await;
    let (hub, gateway) = start_gateway(&world, &[]).await;
    let dir = world.hub.real().unwrap().dir();
    let honest = enrol(&world, "honest", dir).await;
    enrol(&world, "hostile", dir).await;
    let failed = "not answered";
    println!("\n| when | p50, ms | p99, ms | longest, ms | {failed} | hub resident / peak, MB | CPU of the hub, s |");
    println!("|---|---|---|---|---|---|---|");
    calls("quiet", &honest, gateway, &hub).await;
    let strangers = Strangers::start(gateway, dir);
    tokio::time::sleep(GATHER).await;
    calls("strangers", &honest, gateway, &hub).await;
    drop(strangers);
    tokio::time::sleep(GATHER).await;
    calls("after", &honest, gateway, &hub).await;
}

/// A hub with one addon whose gateway has one route, and the gateway's address.
pub(crate) async fn start_gateway(world: &World, flags: &[String]) -> (Process, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = listener.local_addr().unwrap();
    let router = Router::new().route("/receive", post(|| async { "ok" }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let spec = json!({
        "signerName": "example.com/telemetry", "addOns": ["telemetry"],
        "gateway": { "routesFrom": { "namespaces": ["default"] } },
    });
    create_signer(&world.admin, "telemetry", spec).await;
    create_route(&world.admin, backend, "/receive", &["POST"]).await;
    let gateway = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let hub = world.start_hub_at(gateway, flags);
    wait_ready(&world.admin, "telemetry", "True").await;
    (hub, gateway)
}

async fn calls(when: &str, pair: &TlsConnector, gateway: SocketAddr, hub: &Process) {
    let mut times = Vec::new();
    let mut failed = 0;
    for _ in 0..CALLS {
        let began = Instant::now();
        match call(pair, gateway).await {
            Some(StatusCode::OK) => times.push(began.elapsed()),
            _ => failed += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
    let Quantiles { half, most, longest } = Quantiles::of(times);
    let resident = resident_mb(hub.id());
    let peak = peak_mb(hub.id());
    let cpu = cpu_ms(hub.id()) / 1e3;
    println!(
        "| {when} | {half:.1} | {most:.1} | {longest:.1} | {failed} of {CALLS} | {resident:.1} / {peak:.1} | {cpu:.1} |"
    );
}

pub(crate) async fn connect(pair: &TlsConnector, gateway: SocketAddr) -> Option<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(gateway).await.ok()?;
    tcp.set_nodelay(true).ok()?;
    pair.connect(ServerName::from(gateway.ip()), tcp).await.ok()
}

async fn call(pair: &TlsConnector, gateway: SocketAddr) -> Option<StatusCode> {
    let stream = connect(pair, gateway).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let answer = sender.send_request(request()).await.ok()?;
    let status = answer.status();
    answer.into_body().collect().await.ok()?;
    Some(status)
}

pub(crate) fn request() -> Request<Full<Bytes>> {
    let body = Full::new(Bytes::from_static(b"metrics"));
    Request::post("https://gateway/addons/telemetry/receive").header("host", "gateway").body(body).unwrap()
}

/// Enrols a cluster's addon; keeps its pair and the gateway's anchors in the directory.
pub(crate) async fn enrol(world: &World, cluster: &str, dir: &Path) -> TlsConnector {
    accept_cluster(&world.admin, cluster).await;
    install_addon(&world.admin, cluster, "telemetry").await;
    let rng = SystemRandom::new();
    let (key, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let addon = format!("system:open-cluster-management:cluster:{cluster}:addon:telemetry");
    let wish = CsrParams {
        common_name: format!("{addon}:agent:telemetry"),
        organizations: vec![addon],
        dns_names: vec![],
        ip_addresses: vec![],
    };
    let mut csr = mk_csr_of(cluster, "telemetry", &wish);
    csr.spec.request.0 = wish.sign(&key, &rng).unwrap().into_bytes();
    let name = submit(&world.admin, cluster, &csr).await.unwrap().name_any();
    let requests: Api<CertificateSigningRequest> = Api::all(world.admin.clone());
    let is_issued = |csr: Option<&CertificateSigningRequest>| csr.is_some_and(|csr| certificate(csr).is_some());
    let issued = await_condition(requests, &name, is_issued).await.unwrap().unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(world.admin.clone(), "addon-signer");
    let anchors = maps.get("addon-signer-trust").await.unwrap().data.unwrap().remove("ca.crt").unwrap();
    let file = |part: &str| dir.join(format!("{cluster}.{part}"));
    fs::write(file("crt"), certificate(&issued).unwrap()).unwrap();
    fs::write(file("key"), &*pkcs8).unwrap();
    fs::write(file("ca"), anchors).unwrap();
    pair(dir, cluster, b"http/1.1")
}

pub(crate) fn pair(dir: &Path, cluster: &str, protocol: &[u8]) -> TlsConnector {
    let read = |part: &str| fs::read(dir.join(format!("{cluster}.{part}"))).unwrap();
    let mut roots = RootCertStore::empty();
    for anchor in CertificateDer::pem_slice_iter(&read("ca")) {
        roots.add(anchor.unwrap()).unwrap();
    }
    let leaf = CertificateDer::from_pem_slice(&read("crt")).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(read("key")));
    let mut config =
        ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(vec![leaf], key).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// The process of the strangers. Dropping it kills the process.
struct Strangers(Child);

impl Strangers {
    fn start(gateway: SocketAddr, dir: &Path) -> Self {
        let program = std::env::current_exe().unwrap();
        let arguments = ["--part", "strangers", "--as-strangers", &gateway.to_string()];
        Self(Command::new(program).args(arguments).arg(dir).spawn().unwrap())
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// What the strangers do, until they are killed.
pub(crate) async fn act(gateway: SocketAddr, dir: &Path) {
    raise_open_files();
    for n in 0..IDLE + HALF_OPEN {
        let hello: &[u8] = if n < IDLE { &[] } else { &HALF_A_HELLO };
        tokio::spawn(stay(gateway, hello));
        if n % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let hostile = pair(dir, "hostile", b"h2");
    loop {
        reset_requests(&hostile, gateway).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Connects, sends no more than this, and comes back whenever the gateway ends the connection.
async fn stay(gateway: SocketAddr, hello: &[u8]) {
    loop {
        if let Ok(mut tcp) = TcpStream::connect(gateway).await {
            // The gateway may have ended the connection already.
            if tcp.write_all(hello).await.is_ok() {
                // The end comes with or without an error.
                tcp.read_to_end(&mut Vec::new()).await.ok();
            }
        }
        tokio::time::sleep(COME_BACK).await;
    }
}

/// Makes calls and gives each up at once, until the gateway ends the connection.
async fn reset_requests(pair: &TlsConnector, gateway: SocketAddr) {
    let Some(stream) = connect(pair, gateway).await else { return };
    let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let Ok((mut sender, connection)) = shaken else { return };
    let serving = tokio::spawn(connection);
    while !serving.is_finished() && sender.ready().await.is_ok() {
        let request = Request::post("https://gateway/addons/telemetry/receive").body(Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request);
        tokio::task::yield_now().await;
        drop(answer);
    }
}

pub(crate) fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}
