//! Unmodified programs that run beside our hub on a real one: OCM's hub controllers, and an addon's own controller that
//! uses addon-framework.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, MutexGuard};

use super::pki::PemPair;
use super::process::{Process, free_port};
use super::real::RealHub;
use super::wait::wait_until;
use super::{AddOnApi, client, objects};

/// The namespace of OCM's hub controllers.
const CONTROLLERS: &str = "open-cluster-management-hub";
/// How long a program may take until it listens.
const STARTED: Duration = Duration::from_secs(60);
/// How long another run of these tests may have the port 8000.
const FREE: Duration = Duration::from_secs(600);

/// Starts OCM's addon-manager, which runs the addons that have AddOnTemplates. Dropping it kills it.
pub async fn start_addon_manager(hub: &RealHub) -> Process {
    start_controller(hub, "addon-manager").await
}

/// Starts one of OCM's hub controllers. Dropping it kills it.
pub async fn start_controller(hub: &RealHub, name: &str) -> Process {
    let admin = client(hub.kubeconfig("admin", &["system:masters"])).await;
    objects::create_namespace(&admin, CONTROLLERS).await;
    let flags = [
        format!("--kubeconfig={}", kubeconfig(hub, name).display()),
        format!("--namespace={CONTROLLERS}"),
        "--disable-leader-election".to_owned(),
        format!("--listen=127.0.0.1:{}", free_port()),
    ];
    Process::start(&hub.binary(name), &flags, hub.dir())
}

/// The webhook that converts between the versions of the addon API. Dropping it kills it.
pub struct AddOnWebhook {
    process: Process,
    pub url: String,
    port: u16,
    _port: MutexGuard<'static, ()>,
}

impl AddOnWebhook {
    /// Kills the webhook. While the socket lives, its port refuses connections: another test's server must not get the
    /// port and let the API server wait.
    pub fn kill(self) -> TcpSocket {
        drop(self.process);
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], self.port))).unwrap();
        socket
    }
}

/// Starts that webhook. It also takes the port 8000 of all addresses, which its program does not let one choose, so
/// there is one at a time.
pub async fn start_addon_webhook(hub: &RealHub) -> AddOnWebhook {
    static PORT: Mutex<()> = Mutex::const_new(());
    let _port = PORT.lock().await;
    let what = "the port 8000 to be free, which OCM's webhook takes";
    wait_until(FREE, what, async || TcpListener::bind(("0.0.0.0", 8000)).await.ok()).await;
    let dir = hub.dir().join("webhook");
    std::fs::create_dir_all(&dir).unwrap();
    let PemPair { cert, key } = hub.ca().server();
    std::fs::write(dir.join("tls.crt"), cert).unwrap();
    std::fs::write(dir.join("tls.key"), key).unwrap();
    let port = free_port();
    let flags = [
        format!("--kubeconfig={}", kubeconfig(hub, "addon-webhook").display()),
        format!("--port={port}"),
        format!("--certdir={}", dir.display()),
    ];
    let process = Process::start(&hub.binary("addon-webhook"), &flags, &dir);
    wait_until(STARTED, "the webhook to listen", async || TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
    AddOnWebhook { process, url: format!("https://127.0.0.1:{port}/convert"), port, _port }
}

/// What an addon's own controller names in `status.registrations`.
#[derive(Clone, Copy, Debug)]
pub enum Registers {
    /// No registration at all: it reports `NilRegistration` and leaves the list alone.
    Nothing,
    /// The agent's access to the kube-apiserver, as nearly every addon does.
    KubeClient,
    /// This signer.
    Signer(&'static str),
}

/// Starts an addon's own controller, with the addon-framework that uses `api`. Dropping it kills it.
pub fn start_framework_addon(hub: &RealHub, api: AddOnApi, addon: &str, registers: Registers) -> Process {
    let program = match api {
        AddOnApi::V1alpha1 => "framework-addon-v1alpha1",
        AddOnApi::V1beta1 => "framework-addon-v1beta1",
    };
    let registers = match registers {
        Registers::Nothing => "nothing",
        Registers::KubeClient => "kube-client",
        Registers::Signer(name) => name,
    };
    let dir = hub.dir().join(addon);
    std::fs::create_dir_all(&dir).unwrap();
    let flags = [
        format!("--kubeconfig={}", kubeconfig(hub, addon).display()),
        format!("--addon={addon}"),
        format!("--registers={registers}"),
    ];
    Process::start(&hub.binary(program), &flags, &dir)
}

fn kubeconfig(hub: &RealHub, user: &str) -> PathBuf {
    hub.kubeconfig_file(user, user, &["system:masters"])
}
