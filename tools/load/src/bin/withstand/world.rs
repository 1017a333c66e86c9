//! A real API server, and a hub as a process of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Client;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::crds::MANAGED_CLUSTERS;
use test_kit::deploy::apply;
use test_kit::gateways::gateway_pod;
use test_kit::hub::deploy;
use test_kit::process::{Process, free_port};
use test_kit::{AddOnApi, RealHub, TestHub, wait_until};

/// A process of one role.
pub(crate) struct Running {
    pub(crate) process: Process,
    metrics: SocketAddr,
}

impl Running {
    /// Waits until it is ready.
    pub(crate) async fn ready(&self, timeout: Duration) {
        wait_until(timeout, "the process to be ready", async || {
            let mut stream = TcpStream::connect(self.metrics).await.ok()?;
            stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            answer.starts_with("HTTP/1.0 200").then_some(())
        })
        .await;
    }
}

/// An API server with the chart installed.
pub(crate) struct World {
    pub(crate) hub: TestHub,
    pub(crate) admin: Client,
    /// The hub's program.
    program: PathBuf,
}

impl World {
    pub(crate) async fn start(program: &Path) -> Self {
        let hub = TestHub::with_ocm(RealHub::start(&[]).await, AddOnApi::V1beta1).await;
        hub.real().unwrap().leaves_writes_uncounted(); // one hub after the other writes the Lease
        deploy(&hub).await;
        let admin = hub.admin().await;
        // The hub's account may sign for every signer name of the domain.
        let rights = [
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": { "name": "all-of-example" },
                "rules": [{
                    "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
                    "resourceNames": ["example.com/*"], "verbs": ["approve", "sign"],
                }],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": { "name": "all-of-example" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all-of-example" },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HUB_USER }],
            }),
        ];
        apply(&admin, &rights).await;
        Self { hub, admin, program: program.to_owned() }
    }

    /// The hub with its defaults.
    pub(crate) fn start_hub(&self) -> Process {
        self.start_hub_at(SocketAddr::from(([127, 0, 0, 1], free_port())), &[])
    }

    /// The hub with its gateway at this address, for backends on this machine, and with these flags besides.
    pub(crate) fn start_hub_at(&self, gateway: SocketAddr, more: &[String]) -> Process {
        let real = self.hub.real().unwrap();
        let kubeconfig = real.kubeconfig_file("hub", HUB_USER, &HUB_GROUPS);
        let mut flags = vec![
            "hub".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--gateway-name=127.0.0.1".to_owned(),
            format!("--gateway-listen={gateway}"),
            "--backend-addresses=127.0.0.0/8".to_owned(),
            format!("--ledger=sqlite://{}/bench.db", real.dir().display()),
            format!("--metrics-listen=127.0.0.1:{}", free_port()),
        ];
        flags.extend_from_slice(more);
        Process::start(&self.program, &flags, real.dir())
    }

    /// A signer without a gateway.
    pub(crate) fn start_signer(&self) -> Running {
        let kubeconfig = self.hub.real().unwrap().kubeconfig_file("hub", HUB_USER, &HUB_GROUPS);
        let ledger = format!("--ledger=sqlite://{}/bench.db", self.hub.real().unwrap().dir().display());
        self.start_role("signer", &kubeconfig, &[ledger])
    }

    /// A gateway without a signer, with its rights.
    pub(crate) async fn start_gateway(&self, name: &str) -> Running {
        let pod = gateway_pod(&self.hub, name).await;
        let kubeconfig = self.hub.real().unwrap().dir().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, serde_json::to_string(&pod.kubeconfig).unwrap()).unwrap();
        let listen = format!("--gateway-listen=127.0.0.1:{}", free_port());
        self.start_role(
            "gateway",
            &kubeconfig,
            &[format!("--replica={name}"), format!("--pod-uid={}", pod.uid.unwrap()), listen],
        )
    }

    fn start_role(&self, roles: &str, kubeconfig: &Path, more: &[String]) -> Running {
        let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut flags = vec![
            "hub".to_owned(),
            format!("--roles={roles}"),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--gateway-name=127.0.0.1".to_owned(),
            "--backend-addresses=127.0.0.0/8".to_owned(),
            format!("--metrics-listen={metrics}"),
        ];
        flags.extend_from_slice(more);
        Running { process: Process::start(&self.program, &flags, self.hub.real().unwrap().dir()), metrics }
    }

    /// A client of its own for the administrator: its requests wait for nobody else's.
    pub(crate) async fn another_client(&self) -> Client {
        self.hub.admin().await
    }
}

/// Creates a request as the cluster's agent, by impersonation. A request that the API server refuses is an error.
pub(crate) async fn submit(
    admin: &Client,
    cluster: &str,
    csr: &CertificateSigningRequest,
) -> Result<CertificateSigningRequest, kube::Error> {
    let request = hyper::Request::post("/apis/certificates.k8s.io/v1/certificatesigningrequests")
        .header("content-type", "application/json")
        .header("impersonate-user", format!("system:open-cluster-management:{cluster}:a1"))
        .header("impersonate-group", format!("system:open-cluster-management:{cluster}"))
        .header("impersonate-group", MANAGED_CLUSTERS)
        .header("impersonate-group", "system:authenticated")
        .body(serde_json::to_vec(csr).unwrap())
        .unwrap();
    admin.request(request).await
}
