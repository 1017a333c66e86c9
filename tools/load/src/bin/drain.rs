//! Measures how fast the hub works off a backlog of requests on a real API server. It compares the hub with the most
//! that the API server allows (the floor) and with the signer of addon-framework. docs/figures.md has the figures.
//!
//! ```console
//! $ export KUBEBUILDER_ASSETS=$(tests/real/build.sh)
//! $ cargo run --release --manifest-path tools/Cargo.toml --bin drain -- --requests 2000 --peer 100
//! ```
//!
//! Every contestant drains requests that were created before, of the same clusters, on the same API server with an etcd
//! that waits for the disk. The floor and our hub use the same account. An observer watches the requests. A rate is the
//! number of certificates after the first, divided by the time from the first to the last that the observer saw.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a load program fails by panicking"
)]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use addon_signer_api::ocm::OcmObject;
use addon_signer_hub::registrations::registry;
use addon_signer_platform::clock::Clock;
use clap::Parser;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use addon_signer_load::floor::approve_and_sign;
use addon_signer_load::measure::{cpu_ms, resident_mb};

use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::built::hub_program;
use test_kit::hub::{certificate, create_signer, deploy, telemetry, wait_ready};
use test_kit::process::{Process, free_port};
use test_kit::request::mk_csr;
use test_kit::{AddOnApi, RealHub, TestHub, accept_cluster, install_addon, real, wait_until};

/// How many writes the floor has in flight: as many as the hub (`CONCURRENCY` of its signers).
const IN_FLIGHT: usize = 32;
/// How many requests are created at a time.
const CREATING: usize = 16;
const READY: Duration = Duration::from_secs(120);
/// The observer gives up if nothing was issued for this long.
const STALLED: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Arguments {
    /// The number of requests in a backlog.
    #[arg(long, default_value_t = 2_000)]
    requests: usize,
    /// How many backlogs the floor and our hub drain, in turn, so that a busy machine slows both alike.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The number of clusters that the requests come from.
    #[arg(long, default_value_t = 200)]
    clusters: usize,
    /// Also run addon-framework's signer: on this many requests with its defaults, on a whole backlog unthrottled.
    #[arg(long)]
    peer: Option<usize>,
}

/// One line of the table.
struct Figure {
    who: String,
    /// The number of certificates after the first.
    requests: usize,
    /// The time from the first certificate to the last.
    seconds: f64,
    /// From the start of the program to the first certificate, in seconds.
    first: Option<f64>,
    /// Resident memory after the drain, in MB.
    resident: Option<f64>,
    /// Processor time of the program from its start to the end, in ms per request.
    cpu: Option<f64>,
}

impl Figure {
    fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Adds another backlog. Values that are not sums become those of the other backlog.
    fn add(&mut self, other: Figure) {
        *self = Figure { requests: self.requests + other.requests, seconds: self.seconds + other.seconds, ..other };
    }
}

#[tokio::main]
async fn main() {
    addon_signer_platform::crypto::install_provider();
    let arguments = Arguments::parse();
    if real::assets().is_none() {
        println!("skipped: KUBEBUILDER_ASSETS names no real API server (tests/real/build.sh)");
        return;
    }
    let world = World::start(&arguments).await;
    let stores = Stores::start().await;
    let mut figures = vec![world.floor().await];
    for (who, ledger) in &stores.all {
        figures.push(world.ours(who, ledger).await);
    }
    for _ in 1..arguments.rounds {
        figures[0].add(world.floor().await);
        for ((who, ledger), figure) in stores.all.iter().zip(figures.iter_mut().skip(1)) {
            figure.add(world.ours(who, ledger).await);
        }
    }
    figures[0].add(world.floor().await);
    let fastest = figures[1].rate();
    let rates = figures.iter().skip(2).map(|figure| (figure.who.clone(), figure.rate()));
    let ratios: Vec<_> = rates.map(|(who, rate)| format!("{who}: {:.3}", rate / fastest)).collect();
    println!("\nof the rate without durable writes: {}", ratios.join(", "));
    if let Some(few) = arguments.peer {
        figures.push(world.peer("addon-framework, unthrottled", world.requests, &["--qps=1000", "--burst=1000"]).await);
        figures.push(world.peer("addon-framework, its defaults", few, &[]).await);
    }
    print(&figures);
}

fn print(figures: &[Figure]) {
    let floor = figures[0].rate();
    println!("\n| who | certificates | s | CSRs/s | of the floor | first after, s | resident, MB | CPU, ms each |");
    println!("|---|---|---|---|---|---|---|---|");
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    for figure in figures {
        let rate = figure.rate();
        let of_floor = rate / floor;
        let Figure { who, requests, seconds, first, resident, cpu } = figure;
        let first = number(*first);
        let resident = number(*resident);
        let cpu = number(*cpu);
        println!("| {who} | {requests} | {seconds:.1} | {rate:.1} | {of_floor:.3} | {first} | {resident} | {cpu} |");
    }
}

/// A ledger on each kind of store, with its name in the table.
struct Stores {
    all: Vec<(&'static str, String)>,
    _memory: tempfile::TempDir,
    _disk: tempfile::TempDir,
    _server: Option<test_kit::postgres::Postgres>,
}

impl Stores {
    /// Makes SQLite files in memory, which never wait for a disk, and on disk, and uses PostgreSQL if
    /// ADDON_SIGNER_POSTGRES names it.
    async fn start() -> Self {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let disk = tempfile::tempdir_in(hub_program().parent().unwrap()).unwrap();
        let url = |dir: &tempfile::TempDir| format!("sqlite://{}/ledger.db", dir.path().display());
        let mut all = vec![("addon-signer, no durable writes", url(&memory)), ("addon-signer, SQLite", url(&disk))];
        let mut server = None;
        if test_kit::postgres::programs().is_some() {
            let postgres = test_kit::postgres::Postgres::start().await; // its writes wait for the disk
            postgres.create_database("ledger").await;
            all.push(("addon-signer, PostgreSQL", postgres.url("ledger")));
            server = Some(postgres);
        }
        Self { all, _memory: memory, _disk: disk, _server: server }
    }
}

/// A real API server with clusters, the addon on each, and our signer's rights.
struct World {
    hub: TestHub,
    admin: Client,
    clusters: Vec<String>,
    requests: usize,
}

impl World {
    async fn start(arguments: &Arguments) -> Self {
        let hub = TestHub::with_ocm(RealHub::start(&[]).await, AddOnApi::V1beta1).await;
        hub.real().unwrap().leaves_writes_uncounted(); // one hub after the other writes the Lease
        deploy(&hub).await;
        let admin = hub.admin().await;
        let clusters: Vec<String> = (0..arguments.clusters).map(|index| format!("cluster{index}")).collect();
        let created = stream::iter(&clusters).for_each_concurrent(CREATING, |cluster| async {
            accept_cluster(&admin, cluster).await;
            install_addon(&admin, cluster, "telemetry").await;
        });
        created.await;
        create_signer(&admin, "telemetry", telemetry()).await;
        let world = Self { hub, admin, clusters, requests: arguments.requests };
        world.register().await;
        world
    }

    /// Runs the hub once and stops it. Then CA and registrations are there, as after an upgrade or an outage.
    async fn register(&self) {
        let dir = tempfile::tempdir().unwrap();
        let _hub = self.start_hub(&format!("sqlite://{}/ledger.db", dir.path().display()));
        wait_ready(&self.admin, "telemetry", "True").await;
        let addons = registry::addons_api(&self.admin, registry::discover(&self.admin).await.unwrap());
        wait_until(READY, "the registrations to be written", async || {
            let addons = addons.list(&ListParams::default()).await.unwrap();
            let registered = |addon: &OcmObject| addon.object.data.pointer("/status/registrations/0").is_some();
            addons.items.iter().all(registered).then_some(())
        })
        .await;
    }

    fn requests(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.admin.clone())
    }

    /// Deletes all requests and creates `count` new ones, from all clusters in turn.
    async fn backlog(&self, count: usize) -> Vec<CertificateSigningRequest> {
        self.requests().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        let clusters = self.clusters.iter().cycle().take(count);
        let created = stream::iter(clusters).map(|cluster| self.submit(cluster)).buffer_unordered(CREATING);
        created.collect().await
    }

    /// Creates a request as the cluster's agent by impersonation, so that one connection pool serves all clusters.
    async fn submit(&self, cluster: &str) -> CertificateSigningRequest {
        let csr = serde_json::to_vec(&mk_csr(cluster, "telemetry")).unwrap();
        let request = hyper::Request::post("/apis/certificates.k8s.io/v1/certificatesigningrequests")
            .header("content-type", "application/json")
            .header("impersonate-user", format!("system:open-cluster-management:{cluster}:a1"))
            .header("impersonate-group", format!("system:open-cluster-management:{cluster}"))
            .header("impersonate-group", test_kit::crds::MANAGED_CLUSTERS)
            .header("impersonate-group", "system:authenticated")
            .body(csr)
            .unwrap();
        self.admin.request(request).await.unwrap()
    }

    /// The most that the API server allows any signer: PUT of the approval, PUT of a ready certificate. It knows the
    /// requests already, as a hub does by its watch.
    async fn floor(&self) -> Figure {
        let requests = self.backlog(self.requests).await;
        let count = requests.len();
        let ca = test_kit::issue::Ca::new("floor", Clock::default().now());
        let leaf = ca.client("cluster0", "telemetry", Clock::default().now(), Duration::from_secs(86_400));
        let pem = Arc::new(encode_pem(&leaf.certificate));
        let api: Api<CertificateSigningRequest> = Api::all(self.hub.client_as(HUB_USER, &HUB_GROUPS).await);
        let seen = self.observe(count);
        let write = stream::iter(requests).map(|csr| tokio::spawn(approve_and_sign(api.clone(), csr, pem.clone())));
        let write = write.buffer_unordered(IN_FLIGHT).map(Result::unwrap).collect::<()>();
        let ((), seconds) = tokio::join!(write, seen);
        Figure {
            who: "floor".to_owned(),
            requests: count - 1,
            seconds: seconds.1,
            first: None,
            resident: None,
            cpu: None,
        }
    }

    /// Our hub as a separate process, on a backlog that was there before it.
    async fn ours(&self, who: &str, ledger: &str) -> Figure {
        let count = self.backlog(self.requests).await.len();
        let figure = self.drain(who, count, || self.start_hub(ledger)).await;
        self.assert_issued(count).await;
        println!("{who}: {} actions were tried again", self.retries());
        figure
    }

    async fn peer(&self, who: &str, requests: usize, flags: &[&str]) -> Figure {
        self.backlog(requests).await;
        self.drain(who, requests, || self.start_peer(flags)).await
    }

    async fn drain(&self, who: &str, requests: usize, start: impl FnOnce() -> Process) -> Figure {
        let seen = self.observe(requests);
        let started = Instant::now();
        let mut process = start();
        let (first, seconds) = seen.await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        process.assert_running();
        let first = Some(first.duration_since(started).as_secs_f64());
        let resident = Some(resident_mb(process.id()));
        let cpu = Some(cpu_ms(process.id()) / requests as f64);
        Figure { who: who.to_owned(), requests: requests - 1, seconds, first, resident, cpu }
    }

    /// When the first of `count` certificates was seen, and how many seconds later the last one was seen.
    fn observe(&self, count: usize) -> impl Future<Output = (Instant, f64)> + use<> {
        let mut events = watcher(self.requests(), watcher::Config::default()).applied_objects().boxed();
        async move {
            let mut issued = HashSet::new();
            let mut first = None;
            while issued.len() < count {
                let next = tokio::time::timeout(STALLED, events.try_next()).await;
                let csr = next.unwrap_or_else(|_| panic!("stalled after {} of {count}", issued.len()));
                let csr = csr.unwrap().unwrap();
                if certificate(&csr).is_some() && issued.insert(csr.name_any()) {
                    first.get_or_insert_with(Instant::now);
                }
            }
            let first = first.unwrap();
            (first, first.elapsed().as_secs_f64())
        }
    }

    async fn assert_issued(&self, count: usize) {
        let all = self.requests().list(&ListParams::default().fields("spec.signerName=example.com/telemetry")).await;
        let issued = all.unwrap().items.iter().filter(|csr| certificate(csr).is_some()).count();
        assert_eq!(issued, count);
    }

    /// How often the hub's log says that work on a CSR or the watch of CSRs failed.
    fn retries(&self) -> usize {
        let log = std::fs::read_to_string(self.hub.real().unwrap().dir().join("addon-signer.log")).unwrap();
        let failures = ["Could not work on a CSR; the hub retries", "The watch of CSRs failed; the hub retries"];
        log.lines().filter(|line| failures.iter().any(|failure| line.contains(failure))).count()
    }

    fn start_hub(&self, ledger: &str) -> Process {
        let real = self.hub.real().unwrap();
        let kubeconfig = real.kubeconfig_file("hub", HUB_USER, &HUB_GROUPS);
        let flags = [
            "hub".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--gateway-name=localhost".to_owned(),
            "--gateway-listen=127.0.0.1:0".to_owned(),
            format!("--ledger={ledger}"),
            "--lease-duration=1s".to_owned(), // the hub before was killed and still has the Lease
            format!("--metrics-listen=127.0.0.1:{}", free_port()),
            "--rate-burst=1000".to_owned(),
        ];
        Process::start(&hub_program(), &flags, real.dir())
    }

    fn start_peer(&self, flags: &[&str]) -> Process {
        let real = self.hub.real().unwrap();
        let kubeconfig = real.kubeconfig_file("peer", "admin", &["system:masters"]);
        make_rsa_ca(real.dir());
        let mut all = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--ca-cert=peer-ca.crt".to_owned(),
            "--ca-key=peer-ca.key".to_owned(),
        ];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Process::start(&real.binary("peer-signer"), &all, real.dir())
    }
}

/// Makes a CA with an RSA key in PKCS#1, the only kind of key that addon-framework reads.
fn make_rsa_ca(dir: &Path) {
    let script = "openssl genrsa -traditional -out peer-ca.key 2048 && \
                  openssl req -x509 -new -key peer-ca.key -subj /CN=peer -days 365 -out peer-ca.crt";
    let made = std::process::Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn encode_pem(der: &[u8]) -> Vec<u8> {
    let text = test_kit::issue::base64(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n").into_bytes()
}
