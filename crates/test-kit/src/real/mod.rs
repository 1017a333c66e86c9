//! A real hub: etcd and kube-apiserver, and kube-controller-manager if a test asks for it, all on 127.0.0.1. Or
//! the cluster with a node in which a test runs.

mod assets;
mod etcd;
mod server;
mod shared;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs};

use kube::config::Kubeconfig;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

pub use self::assets::{assets, has_or_skip};
use self::server::Server;
pub(crate) use self::server::WITHOUT_FSYNC;
use self::shared::Shared;
use super::pki::TestCa;
use super::process::Process;
use super::{AddOnApi, audit_log, rights};

/// The variable by which `tests/real/cluster.sh` names its folder.
const CLUSTER: &str = "ADDON_SIGNER_CLUSTER";
/// The port of that cluster's API server.
const CLUSTER_PORT: u16 = 6443;
/// How many hubs may run at the same time: a hub needs about 400 MB.
static SLOTS: Semaphore = Semaphore::const_new(8);

/// etcd and kube-apiserver with RBAC and a CA of their own. Dropping it kills everything, or leaves the API server to
/// another test.
pub struct RealHub {
    controller_manager: Mutex<Option<Process>>,
    server: Arc<Server>,
    /// How long the audit log was when the test began.
    log_begins: u64,
    dir: TempDir,
    uncounted: AtomicBool,
    _held: Option<Held>,
}

/// What ends with the hub.
enum Held {
    Slot { _slot: SemaphorePermit<'static> },
    Shared { _until: oneshot::Sender<Infallible> },
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
        let flags = [WITHOUT_FSYNC];
        tokio::join!(Self::start_in(slots, &flags), Self::start_in(other, &flags))
    }

    async fn start_in(slot: SemaphorePermit<'static>, etcd_flags: &[&str]) -> Self {
        shared::make_room();
        let server = Server::start(etcd_flags).await;
        Self::new(Arc::new(server), Some(Held::Slot { _slot: slot }))
    }

    /// Makes room in etcd for as much as was deleted.
    pub async fn compact(&self) {
        etcd::Etcd::connect(self.server.etcd_port()).await.compact().await;
    }

    /// A hub with OCM's CRDs and ours, and nothing else. Other tests have used its API server, and others will.
    pub(crate) async fn shared(api: AddOnApi) -> Self {
        tokio::task::yield_now().await; // what this test has dropped before is given back
        let slot = SLOTS.acquire().await.unwrap();
        let shared = Shared::take(api).await;
        let server = Arc::clone(&shared.server);
        Self::new(server, Some(Held::Shared { _until: shared.until_dropped(slot) }))
    }

    /// The cluster of `tests/real/cluster.sh`, if that runs this test: with a node and all of kube-controller-manager,
    /// but without an audit log.
    pub fn of_cluster() -> Option<Self> {
        let folder = PathBuf::from(env::var_os(CLUSTER)?);
        Some(Self::new(Arc::new(Server::of_cluster(&folder, CLUSTER_PORT)), None))
    }

    fn new(server: Arc<Server>, held: Option<Held>) -> Self {
        let log_begins = audit_log::length(server.dir());
        Self {
            controller_manager: Mutex::new(None),
            server,
            log_begins,
            dir: TempDir::new().unwrap(),
            uncounted: AtomicBool::new(false),
            _held: held,
        }
    }

    /// A kubeconfig with an embedded client certificate of this user and these groups.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Kubeconfig {
        self.server.kubeconfig(user, groups)
    }

    /// The API server's URL by one of its names: 127.0.0.1 or localhost.
    pub fn server(&self, host: &str) -> String {
        self.server.url(host)
    }

    /// The CA of the API server's certificate and of all users, for other servers beside it.
    pub fn ca(&self) -> &TestCa {
        self.server.ca()
    }

    /// Writes such a kubeconfig to `<name>.kubeconfig` in the hub's directory.
    pub fn kubeconfig_file(&self, name: &str, user: &str, groups: &[&str]) -> PathBuf {
        let path = self.dir.path().join(format!("{name}.kubeconfig"));
        fs::write(&path, serde_saphyr::to_string(&self.kubeconfig(user, groups)).unwrap()).unwrap();
        path
    }

    /// The CA of the API server's front proxy; the certificates of agents and users have another CA.
    pub fn front_proxy(&self) -> &TestCa {
        self.server.front_proxy()
    }

    /// Lets the API server believe a further CA's front proxies who calls. It reads the file again within a minute.
    pub fn trust_front_proxy(&self, ca: &str) {
        self.server.wear_out();
        let file = self.server.dir().join("front-proxy-ca.crt");
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
        audit_log::writes(self.server.dir(), self.log_begins)
    }

    /// One of the binaries beside kube-apiserver.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.server.binaries().join(name)
    }

    /// Kills the API server: connections break, new ones are refused, and etcd keeps the state.
    pub fn stop_api_server(&self) {
        self.server.wear_out();
        self.server.stop_api_server();
    }

    /// The process id of the API server.
    pub fn api_server_id(&self) -> u32 {
        self.server.wear_out();
        self.server.api_server_id()
    }

    /// Starts the API server again on the same port and waits until it is ready.
    pub async fn start_api_server(&self) {
        self.server.start_api_server().await;
    }

    /// Starts kube-controller-manager, once: it signs the agents' hub credentials, publishes the root CA, collects
    /// garbage and empties namespaces.
    pub fn start_controller_manager(&self) {
        let mut running = self.controller_manager.lock();
        if running.is_some() || !self.server.is_ours() {
            return;
        }
        let kubeconfig = self.kubeconfig_file("controller-manager", "controller-manager", &["system:masters"]);
        let file = |name: &str| self.server.dir().join(name).display().to_string();
        let flags = [
            "--controllers=csrsigning,csrapproving,csrcleaner,root-ca-cert-publisher,\
             garbage-collector-controller,namespace-controller"
                .to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--cluster-signing-cert-file={}", file("ca.crt")),
            format!("--cluster-signing-key-file={}", file("ca.key")),
            format!("--root-ca-file={}", file("ca.crt")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        *running = Some(Process::start(&self.binary("kube-controller-manager"), &flags, self.dir()));
    }
}

impl Drop for RealHub {
    /// Checks in every test that the hub did not write one object again and again. Collects the rights that it used.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.server.wear_out();
        }
        if !self.server.is_ours() || std::thread::panicking() {
            return;
        }
        if let Some(into) = rights::collected() {
            rights::collect(audit_log::events(self.server.dir(), self.log_begins).into_iter(), &into);
        }
        if !self.uncounted.load(Ordering::Relaxed) {
            audit_log::assert_nothing_is_hammered(&self.writes());
        }
    }
}
