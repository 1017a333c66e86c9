//! A real hub: etcd and kube-apiserver, and kube-controller-manager if a test asks for it, all on 127.0.0.1. Dropping
//! the value ends them. Or the cluster with a node in which a test runs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs};

use kube::Client;
use kube::config::Kubeconfig;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::needed::{Needed, lacks, skip};
use super::pki::{PemPair, TestCa, base64};
use super::process::{Process, free_port};
use super::wait::wait_until;
use super::{audit_log, client, rights};

/// The variable that names the directory with the binaries, as for Kubernetes' envtest.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// The variable by which `tests/real/cluster.sh` names its folder.
const CLUSTER: &str = "ADDON_SIGNER_CLUSTER";
/// The port of that cluster's API server.
const CLUSTER_PORT: u16 = 6443;
/// How many hubs may run at the same time: a hub needs about 400 MB.
static SLOTS: Semaphore = Semaphore::const_new(8);
/// How many may start at the same time: each needs a core for that.
static STARTS: Semaphore = Semaphore::const_new(2);
const READY: Duration = Duration::from_secs(60);

/// The directory that `tests/real/build.sh` printed, if the tests are to run on real parts.
pub fn assets() -> Option<PathBuf> {
    let assets = env::var_os(ASSETS).filter(|value| !value.is_empty()).map(PathBuf::from);
    if assets.is_none() {
        lacks(Needed::ApiServer);
    }
    assets
}

/// Whether one of the binaries was built; if not, says that the test is skipped.
#[track_caller]
pub fn has_or_skip(binary: &str, needed: Needed) -> bool {
    let there = assets().is_some_and(|assets| assets.join(binary).exists());
    if !there {
        skip(needed);
    }
    there
}

/// etcd and kube-apiserver with RBAC and a CA of their own. Dropping it kills everything.
pub struct RealHub {
    controller_manager: Mutex<Option<Process>>,
    api_server: Mutex<Option<Process>>,
    /// None if the cluster's programs are not ours.
    etcd: Option<Process>,
    binaries: PathBuf,
    etcd_url: String,
    port: u16,
    ca: TestCa,
    front_proxy: TestCa,
    dir: TempDir,
    uncounted: AtomicBool,
    _slot: Option<SemaphorePermit<'static>>,
}

impl RealHub {
    /// Starts etcd, with `etcd_flags` besides its own, and the API server, and waits until that is ready, or first
    /// for a slot.
    pub async fn start(etcd_flags: &[&str]) -> Self {
        Self::start_in(SLOTS.acquire().await.unwrap(), etcd_flags).await
    }

    /// A hub and a managed cluster for one test. It waits for both slots at once, so that two such tests do not wait
    /// for each other.
    pub async fn start_two() -> (Self, Self) {
        let mut slots = SLOTS.acquire_many(2).await.unwrap();
        let other = slots.split(1).unwrap();
        let flags = ["--unsafe-no-fsync"];
        tokio::join!(Self::start_in(slots, &flags), Self::start_in(other, &flags))
    }

    /// The cluster of `tests/real/cluster.sh`, if that runs this test: with a node and all of kube-controller-manager,
    /// but without an audit log.
    pub fn of_cluster() -> Option<Self> {
        let folder = PathBuf::from(env::var_os(CLUSTER)?);
        let pem = |name: &str| fs::read_to_string(folder.join("pki").join(name)).unwrap();
        Some(Self {
            controller_manager: Mutex::new(None),
            api_server: Mutex::new(None),
            etcd: None,
            binaries: assets()?,
            etcd_url: String::new(),
            port: CLUSTER_PORT,
            ca: TestCa::of_hub(pem("ca.crt"), &pem("ca.key")),
            front_proxy: TestCa::default(), // one that this API server does not believe
            dir: TempDir::new().unwrap(),
            uncounted: AtomicBool::new(false),
            _slot: None,
        })
    }

    async fn start_in(slot: SemaphorePermit<'static>, etcd_flags: &[&str]) -> Self {
        let binaries = assets().unwrap_or_else(|| panic!("{ASSETS} is not set; see tests/real/README.md"));
        let dir = TempDir::new().unwrap();
        let ca = TestCa::default();
        let front_proxy = TestCa::default();
        write_credentials(dir.path(), &ca, &front_proxy);
        audit_log::write_policy(dir.path());
        let etcd_url = format!("http://127.0.0.1:{}", free_port());
        let etcd = start_etcd(&binaries, &etcd_url, dir.path(), etcd_flags);
        let hub = Self {
            controller_manager: Mutex::new(None),
            api_server: Mutex::new(None),
            etcd: Some(etcd),
            binaries,
            etcd_url,
            port: free_port(),
            ca,
            front_proxy,
            dir,
            uncounted: AtomicBool::new(false),
            _slot: Some(slot),
        };
        let _start = STARTS.acquire().await.unwrap();
        hub.start_api_server().await;
        hub
    }

    /// A kubeconfig with an embedded client certificate of this user and these groups.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Kubeconfig {
        let PemPair { cert, key } = self.ca.client(user, groups);
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "hub", "cluster": {
                "server": self.server("127.0.0.1"),
                "certificate-authority-data": base64(self.ca.pair().cert.as_bytes()),
            }}],
            "users": [{ "name": "user", "user": {
                "client-certificate-data": base64(cert.as_bytes()),
                "client-key-data": base64(key.as_bytes()),
            }}],
            "contexts": [{ "name": "default", "context": { "cluster": "hub", "user": "user" } }],
            "current-context": "default",
        }))
        .unwrap()
    }

    /// The API server's URL by one of its names: 127.0.0.1 or localhost.
    pub fn server(&self, host: &str) -> String {
        format!("https://{host}:{}", self.port)
    }

    /// The CA of the API server's certificate and of all users, for other servers beside it.
    pub fn ca(&self) -> &TestCa {
        &self.ca
    }

    /// Writes such a kubeconfig to `<name>.kubeconfig` in the hub's directory.
    pub fn kubeconfig_file(&self, name: &str, user: &str, groups: &[&str]) -> PathBuf {
        let path = self.dir.path().join(format!("{name}.kubeconfig"));
        fs::write(&path, serde_saphyr::to_string(&self.kubeconfig(user, groups)).unwrap()).unwrap();
        path
    }

    /// The CA of the API server's front proxy; the certificates of agents and users have another CA.
    pub fn front_proxy(&self) -> &TestCa {
        &self.front_proxy
    }

    /// Lets the API server believe a further CA's front proxies who calls. It reads the file again within a minute.
    pub fn trust_front_proxy(&self, ca: &str) {
        let file = self.dir.path().join("front-proxy-ca.crt");
        let known = fs::read_to_string(&file).unwrap();
        fs::write(file, known + ca).unwrap();
    }

    /// A directory that exists as long as the hub.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Notes that two hubs write, so that [`Drop`] does not count the writes: a test makes two hubs believe that they
    /// lead, or a load program starts one hub after the other.
    pub fn leaves_writes_uncounted(&self) {
        self.uncounted.store(true, Ordering::Relaxed);
    }

    /// Every write that the API server has answered so far.
    pub fn writes(&self) -> Vec<audit_log::Write> {
        audit_log::writes(self.dir.path())
    }

    /// One of the binaries beside kube-apiserver.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    /// Kills the API server: connections break, new ones are refused, and etcd keeps the state.
    pub fn stop_api_server(&self) {
        *self.api_server.lock() = None;
    }

    /// The process id of the API server.
    pub fn api_server_id(&self) -> u32 {
        self.api_server.lock().as_ref().unwrap().id()
    }

    /// Starts the API server again on the same port and waits until it is ready.
    pub async fn start_api_server(&self) {
        let server = Process::start(&self.binary("kube-apiserver"), &self.api_server_flags(), self.dir.path());
        *self.api_server.lock() = Some(server);
        let admin = client(self.kubeconfig("admin", &["system:masters"])).await;
        wait_until(READY, "the API server to be ready", async || {
            if let Some(server) = self.api_server.lock().as_mut() {
                server.assert_running();
            }
            is_ready(&admin).await.then_some(())
        })
        .await;
    }

    /// Starts kube-controller-manager, once: it signs the agents' hub credentials, publishes the root CA, collects
    /// garbage and empties namespaces.
    pub fn start_controller_manager(&self) {
        let mut running = self.controller_manager.lock();
        if running.is_some() || self.etcd.is_none() {
            return;
        }
        let kubeconfig = self.kubeconfig_file("controller-manager", "controller-manager", &["system:masters"]);
        let dir = self.dir.path();
        let flags = [
            "--controllers=csrsigning,csrapproving,csrcleaner,root-ca-cert-publisher,\
             garbage-collector-controller,namespace-controller"
                .to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--cluster-signing-cert-file={}", dir.join("ca.crt").display()),
            format!("--cluster-signing-key-file={}", dir.join("ca.key").display()),
            format!("--root-ca-file={}", dir.join("ca.crt").display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        *running = Some(Process::start(&self.binary("kube-controller-manager"), &flags, dir));
    }

    fn api_server_flags(&self) -> Vec<String> {
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        vec![
            format!("--etcd-servers={}", self.etcd_url),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            "--authorization-mode=RBAC,Node".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("service-account.pub")),
            format!("--service-account-signing-key-file={}", file("service-account.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            // Without them Kubernetes 1.36 has no ClusterTrustBundles.
            "--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true".to_owned(),
            "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(), // it refuses loopback addresses
            format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
            "--requestheader-allowed-names=front-proxy-client,addon-signer-gateway".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
            format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
            format!("--audit-policy-file={}", file(audit_log::POLICY)),
            format!("--audit-log-path={}", file(audit_log::LOG)),
        ]
    }
}

impl Drop for RealHub {
    /// Checks in every test that the hub did not write one object again and again. Collects the rights that it used.
    fn drop(&mut self) {
        if self.etcd.is_none() {
            return;
        }
        if let Some(into) = rights::collected().filter(|_| !std::thread::panicking()) {
            rights::collect(audit_log::events(self.dir.path()).into_iter(), &into);
        }
        if !self.uncounted.load(Ordering::Relaxed) && !std::thread::panicking() {
            audit_log::assert_nothing_is_hammered(&self.writes());
        }
    }
}

fn start_etcd(binaries: &Path, client_url: &str, dir: &Path, more: &[&str]) -> Process {
    let peer_url = format!("http://127.0.0.1:{}", free_port());
    let mut flags = vec![
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={client_url}"),
        format!("--advertise-client-urls={client_url}"),
        format!("--listen-peer-urls={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster=default={peer_url}"),
        "--log-level=warn".to_owned(),
    ];
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    Process::start(&binaries.join("etcd"), &flags, dir)
}

fn write_credentials(dir: &Path, ca: &TestCa, front_proxy: &TestCa) {
    let service_account = rcgen::KeyPair::generate().unwrap();
    fs::write(dir.join("service-account.key"), service_account.serialize_pem()).unwrap();
    fs::write(dir.join("service-account.pub"), service_account.public_key_pem()).unwrap();
    for (name, pair) in [
        ("ca", ca.pair()),
        ("server", ca.server()),
        ("front-proxy-ca", front_proxy.pair()),
        ("front-proxy-client", front_proxy.client("front-proxy-client", &[])),
    ] {
        fs::write(dir.join(format!("{name}.crt")), pair.cert).unwrap();
        fs::write(dir.join(format!("{name}.key")), pair.key).unwrap();
    }
}

async fn is_ready(admin: &Client) -> bool {
    let request = hyper::Request::get("/readyz").body(Vec::new()).unwrap();
    admin.request_text(request).await.is_ok()
}
