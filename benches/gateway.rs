//! Measures requests and connections per second through the gateway, and compares them with the backend alone and with
//! nginx (`ssl_verify_client on`), by one client in one run. docs/figures.md has the figures.
//!
//! ```console
//! $ cargo bench --bench gateway -- --seconds 5
//! ```
//!
//! Backend, client and gateway each have a separate runtime in this process. nginx has as many workers as there are
//! cores. All share the machine. They use TLS 1.3, P-256 certificates, no resumption, and keep-alive except in the case
//! of connections per second.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a load program fails by panicking"
)]

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use test_kit::gateway::{ANY, GatewayWorld, LOCALHOST, route};
use test_kit::issue::{Leaf, base64};
use test_kit::process::{Process, free_port};

const MIB: usize = 1024 * 1024;
const ITEM: &[u8] = b"{\"items\":[],\"next\":null,\"status\":\"everything is as it should be\"}";
/// Each case runs this many times through each target in turn, so that a busy machine slows all alike.
const ROUNDS: u32 = 10;
/// The number of connections in the cases with large bodies.
const LARGE: usize = 4;
/// The number of handshakes at a time.
const HANDSHAKES: usize = 16;

#[derive(Parser)]
struct Arguments {
    /// How long each case runs through each target.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// What cargo passes.
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

/// A request that is repeated on `connections` connections.
#[derive(Clone)]
struct Case {
    name: &'static str,
    method: Method,
    path: &'static str,
    body: Bytes,
    connections: usize,
    /// Whether each request has a new connection.
    reconnect: bool,
}

/// The server that gets the requests.
#[derive(Clone)]
struct Target {
    name: &'static str,
    address: SocketAddr,
    prefix: &'static str,
    tls: Option<Arc<ClientConfig>>,
}

/// The measurements of one case through one target.
#[derive(Default)]
struct Figure {
    seconds: f64,
    latencies: Vec<Duration>,
}

impl Figure {
    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    /// A percentile of the latencies, which must be sorted, in microseconds.
    fn percentile(&self, percent: usize) -> u128 {
        self.latencies[self.latencies.len() * percent / 100].as_micros()
    }
}

fn main() {
    addon_signer_platform::crypto::install_provider();
    let length = Duration::from_secs(Arguments::parse().seconds);
    let backend = Runtime::new().unwrap();
    let gateway = Runtime::new().unwrap();
    let client = Runtime::new().unwrap();
    let backend = backend.block_on(start_backend());
    let world = gateway.block_on(GatewayWorld::start(vec![route("/", &format!("http://{backend}"))]));
    let tls = Some(Arc::new(world.client_config(Some(&world.agent()))));
    let mut targets = vec![
        Target { name: "backend alone", address: backend, prefix: "", tls: None },
        Target { name: "gateway", address: world.address, prefix: "/addons/telemetry", tls: tls.clone() },
    ];
    let directory = tempfile::TempDir::new().unwrap();
    let nginx = Nginx::start(directory.path(), &world, backend);
    match &nginx {
        Some(nginx) => {
            targets.push(Target { name: "nginx", address: nginx.address, prefix: "/addons/telemetry", tls });
        }
        None => println!("nginx is not installed: without it (on Debian: apt-get install nginx)"),
    }
    client.block_on(measure_all(&targets, length));
}

async fn measure_all(targets: &[Target], length: Duration) {
    println!("\n| case | through | per s | of the backend alone | of nginx | p50, µs | p99, µs |");
    println!("|---|---|---|---|---|---|---|");
    for case in cases() {
        let figures = measure(targets, &case, length).await;
        for (name, figure) in &figures {
            let of = |other| {
                let other = figures.iter().find(|(name, _)| *name == other);
                other.map_or("-".to_owned(), |(_, other)| format!("{:.2}", figure.rate() / other.rate()))
            };
            let alone = of("backend alone");
            let nginx = of("nginx");
            let rate = figure.rate();
            let p50 = figure.percentile(50);
            let p99 = figure.percentile(99);
            println!("| {} | {name} | {rate:.0} | {alone} | {nginx} | {p50} | {p99} |", case.name);
        }
    }
}

async fn measure(targets: &[Target], case: &Case, length: Duration) -> Vec<(&'static str, Figure)> {
    let targets = targets.iter().filter(|target| !case.reconnect || target.tls.is_some());
    let mut figures: Vec<_> = targets.map(|target| (target, Figure::default())).collect();
    for round in 0..=ROUNDS {
        for (target, figure) in &mut figures {
            let (latencies, seconds) = run(target, case, length / ROUNDS).await;
            if round > 0 {
                figure.latencies.extend(latencies); // round 0 only warms up
                figure.seconds += seconds;
            }
        }
    }
    figures.iter_mut().for_each(|(_, figure)| figure.latencies.sort_unstable());
    figures.into_iter().map(|(target, figure)| (target.name, figure)).collect()
}

fn cases() -> Vec<Case> {
    let get = |name, path, connections| Case {
        name,
        method: Method::GET,
        path,
        body: Bytes::new(),
        connections,
        reconnect: false,
    };
    let upload = Case { method: Method::POST, body: vec![b'x'; MIB].into(), ..get("1 MiB up, c=4", "/up", LARGE) };
    vec![
        get("small, c=1", "/item", 1),
        get("small, c=16", "/item", 16),
        get("small, c=64", "/item", 64),
        get("1 MiB down, c=4", "/mib", LARGE),
        upload,
        Case { reconnect: true, ..get("new connection each, c=16", "/item", HANDSHAKES) },
    ]
}

/// Sends requests for `length`, after all connections are open. Returns the latencies and the time in seconds.
async fn run(target: &Target, case: &Case, length: Duration) -> (Vec<Duration>, f64) {
    let mut senders = Vec::new();
    for _ in 0..case.connections {
        senders.push(connect(target).await);
    }
    let started = Instant::now();
    let asking =
        senders.into_iter().map(|sender| tokio::spawn(ask(target.clone(), case.clone(), sender, started + length)));
    let mut latencies = Vec::new();
    for asked in futures::future::join_all(asking).await {
        latencies.extend(asked.unwrap());
    }
    (latencies, started.elapsed().as_secs_f64())
}

async fn ask(target: Target, case: Case, mut sender: SendRequest<Full<Bytes>>, until: Instant) -> Vec<Duration> {
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let started = Instant::now();
        if case.reconnect {
            sender = connect(&target).await;
        }
        let request = Request::builder()
            .method(case.method.clone())
            .uri(format!("{}{}", target.prefix, case.path))
            .header("host", "gateway.example")
            .body(Full::new(case.body.clone()))
            .unwrap();
        sender.ready().await.unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame.unwrap();
        }
        latencies.push(started.elapsed());
    }
    latencies
}

async fn connect(target: &Target) -> SendRequest<Full<Bytes>> {
    let tcp = TcpStream::connect(target.address).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    let Some(tls) = &target.tls else { return drive(handshake(TokioIo::new(tcp))).await };
    let name = ServerName::IpAddress(target.address.ip().into());
    let tls = TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await.unwrap();
    drive(handshake(TokioIo::new(tls))).await
}

async fn drive<C>(
    handshake: impl Future<Output = hyper::Result<(SendRequest<Full<Bytes>>, C)>>,
) -> SendRequest<Full<Bytes>>
where
    C: Future<Output = hyper::Result<()>> + Send + 'static,
{
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection); // its error also appears in the request's result
    sender
}

async fn start_backend() -> SocketAddr {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mib = Bytes::from(vec![b'x'; MIB]);
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            tcp.set_nodelay(true).unwrap();
            let mib = mib.clone();
            let service = service_fn(move |request| answer(request, mib.clone()));
            let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service);
            tokio::spawn(serving); // an error is expected, because clients close connections
        }
    });
    address
}

async fn answer(request: Request<Incoming>, mib: Bytes) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = match request.uri().path() {
        "/mib" => mib,
        _ => Bytes::from_static(ITEM),
    };
    let mut upload = request.into_body();
    while let Some(frame) = upload.frame().await {
        assert!(frame.is_ok());
    }
    Ok(Response::new(Full::new(body)))
}

/// nginx in the place of the gateway, with the same certificates and the same backend.
struct Nginx {
    address: SocketAddr,
    _process: Process,
}

impl Nginx {
    fn start(directory: &Path, world: &GatewayWorld, backend: SocketAddr) -> Option<Self> {
        Command::new("nginx").arg("-v").output().ok()?;
        let now = world.clock.now();
        let serving = world.serving_ca.server(&[], &[LOCALHOST], now);
        write_pair(directory, &serving);
        let client_ca = pem("CERTIFICATE", world.telemetry.authority().certificate());
        std::fs::write(directory.join("client-ca.crt"), client_ca).unwrap();
        let address = SocketAddr::new(LOCALHOST, free_port());
        let configuration = nginx_configuration(address, backend);
        std::fs::write(directory.join("nginx.conf"), configuration).unwrap();
        let flags = ["-p", directory.to_str()?, "-e", "error.log", "-c", "nginx.conf"].map(str::to_owned);
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].map(Path::new).into_iter().find(|path| path.exists())?;
        let process = Process::start(program, &flags, directory);
        let listening = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            std::net::TcpStream::connect(address).is_ok()
        });
        assert!(listening, "nginx does not listen: {}", process.tail());
        Some(Self { address, _process: process })
    }
}

fn write_pair(directory: &Path, leaf: &Leaf) {
    std::fs::write(directory.join("serving.crt"), pem("CERTIFICATE", &leaf.certificate)).unwrap();
    std::fs::write(directory.join("serving.key"), pem("PRIVATE KEY", leaf.key.secret_der())).unwrap();
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", base64(der))
}

/// Like the gateway, nginx streams both ways, writes no access log, and tells the backend the caller's identity.
fn nginx_configuration(address: SocketAddr, backend: SocketAddr) -> String {
    format!(
        "daemon off; worker_processes auto; pid nginx.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi; tcp_nodelay on; keepalive_requests 100000000;
  backend addon {{ server {backend}; keepalive 128; keepalive_requests 100000000; }}
  server {{
    listen {address} ssl; ssl_protocols TLSv1.3; ssl_certificate serving.crt; ssl_certificate_key serving.key;
    ssl_client_certificate client-ca.crt; ssl_verify_client on; ssl_session_cache off; ssl_session_tickets off;
    client_max_body_size 1m;
    location /addons/telemetry/ {{
      proxy_pass http://addon/; proxy_http_version 1.1; proxy_set_header Connection \"\";
      proxy_set_header X-Remote-User $ssl_client_s_dn; proxy_set_header Client-Cert $ssl_client_escaped_cert;
      proxy_set_header X-Forwarded-For $remote_addr; proxy_request_buffering off; proxy_buffering off;
    }}
  }}
}}
"
    )
}
