//! etcd and kube-apiserver with RBAC and a CA of their own, on 127.0.0.1.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use kube::config::Kubeconfig;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::assets::assets;
use crate::audit_log;
use crate::client;
use crate::pki::{PemPair, TestCa, base64};
use crate::process::{Process, free_port};
use crate::wait::wait_until;

/// etcd's flag for tests: what it has need not survive a crash of the machine.
pub(crate) const WITHOUT_FSYNC: &str = "--unsafe-no-fsync";
/// How many may start at the same time: each needs a core for that.
static STARTS: Semaphore = Semaphore::const_new(2);
const READY: Duration = Duration::from_secs(60);

/// The processes. Dropping it kills them.
pub(super) struct Server {
    api_server: Mutex<Option<Process>>,
    /// None if the processes are not ours.
    etcd: Option<Mutex<Process>>,
    binaries: PathBuf,
    etcd_port: u16,
    port: u16,
    ca: TestCa,
    front_proxy: TestCa,
    dir: TempDir,
    /// Whether a test did to it what the next one would notice.
    worn: AtomicBool,
}

impl Server {
    /// Starts etcd, with `etcd_flags` besides its own, and the API server, and waits until that is ready.
    pub(super) async fn start(etcd_flags: &[&str]) -> Self {
        let binaries = assets().unwrap_or_else(|| panic!("KUBEBUILDER_ASSETS is not set; see tests/real/README.md"));
        let dir = TempDir::new().unwrap();
        let ca = TestCa::default();
        let front_proxy = TestCa::default();
        write_credentials(dir.path(), &ca, &front_proxy);
        audit_log::write_policy(dir.path());
        let etcd_port = free_port();
        let etcd = start_etcd(&binaries, etcd_port, dir.path(), etcd_flags);
        let server = Self {
            api_server: Mutex::new(None),
            etcd: Some(Mutex::new(etcd)),
            binaries,
            etcd_port,
            port: free_port(),
            ca,
            front_proxy,
            dir,
            worn: AtomicBool::new(false),
        };
        let _start = STARTS.acquire().await.unwrap();
        server.start_api_server().await;
        server
    }

    /// The API server of the cluster whose folder this is.
    pub(super) fn of_cluster(folder: &Path, port: u16) -> Self {
        let pem = |name: &str| fs::read_to_string(folder.join("pki").join(name)).unwrap();
        Self {
            api_server: Mutex::new(None),
            etcd: None,
            binaries: assets().unwrap(),
            etcd_port: 0,
            port,
            ca: TestCa::of_hub(pem("ca.crt"), &pem("ca.key")),
            front_proxy: TestCa::default(), // one that this API server does not believe
            dir: TempDir::new().unwrap(),
            worn: AtomicBool::new(false),
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.etcd.is_some()
    }

    pub(super) fn kubeconfig(&self, user: &str, groups: &[&str]) -> Kubeconfig {
        let PemPair { cert, key } = self.ca.client(user, groups);
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "hub", "cluster": {
                "server": self.url("127.0.0.1"),
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

    pub(super) fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.port)
    }

    pub(super) fn ca(&self) -> &TestCa {
        &self.ca
    }

    pub(super) fn front_proxy(&self) -> &TestCa {
        &self.front_proxy
    }

    pub(super) fn etcd_port(&self) -> u16 {
        self.etcd_port
    }

    /// Where its keys, certificates and logs are.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn binaries(&self) -> &Path {
        &self.binaries
    }

    pub(super) fn is_running(&self) -> bool {
        let runs = |process: &mut Process| process.exited().is_none();
        self.etcd.as_ref().is_some_and(|etcd| runs(&mut etcd.lock()))
            && self.api_server.lock().as_mut().is_some_and(runs)
    }

    /// Notes that no other test may use it.
    pub(super) fn wear_out(&self) {
        self.worn.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_worn(&self) -> bool {
        self.worn.load(Ordering::Relaxed)
    }

    pub(super) fn stop_api_server(&self) {
        *self.api_server.lock() = None;
    }

    pub(super) fn api_server_id(&self) -> u32 {
        self.api_server.lock().as_ref().unwrap().id()
    }

    /// Starts the API server, perhaps again on the same port, and waits until it is ready.
    pub(super) async fn start_api_server(&self) {
        let server = Process::start(&self.binaries.join("kube-apiserver"), &self.api_server_flags(), self.dir.path());
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

    fn api_server_flags(&self) -> Vec<String> {
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        vec![
            format!("--etcd-servers={}", etcd_url(self.etcd_port)),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            "--authorization-mode=RBAC,Node".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("service-account.pub")),
            format!("--service-account-signing-key-file={}", file("service-account.key")),
            "--service-cluster-ip-range=10.0.0.0/24,fd00:10::/112".to_owned(),
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
            "--audit-log-maxsize=100000".to_owned(), // megabytes: tests remember where in the file they began
        ]
    }
}

fn etcd_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn start_etcd(binaries: &Path, port: u16, dir: &Path, more: &[&str]) -> Process {
    let client_url = etcd_url(port);
    let peer_url = etcd_url(free_port());
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
