//! Tests of everything together: hub and gateway in one process, our own agents, calls, rotation, detachment, on both
//! kinds of hubs. `beside_ocm` has OCM's unmodified agents.

mod aggregated;
mod audit;
pub(crate) mod client;
mod company;
mod compromise;
mod cut_off;
mod gateway_lease;
mod ipv6;
mod metrics;
pub(crate) mod ours;
mod own_identity;
mod revocation;
mod samples;
mod signer_inventory;
mod silence;
pub(crate) mod split;
mod startup;

use std::net::SocketAddr;
use std::time::Duration;

use addon_signer::process::registry_age::AgeBounds;
use addon_signer::process::{HubConnection, HubOptions, HubProcess, Roles};
use addon_signer_api::AddOnSigner;
use addon_signer_api::status::AuthorityState;
use addon_signer_core::rate::Rate;
use addon_signer_gateway::Limits;
use addon_signer_hub::HubConfig;
use addon_signer_hub::lease::DEFAULT_DURATION;
use addon_signer_hub::routes::RouteSettings;
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use addon_signer_core::names::ANNOTATION_ROTATE;
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::hub::{TIMEOUT, change_signer, create_route, create_signer, deploy, fresh_ledger};
use test_kit::{TestHub, wait_for, wait_until};

/// A hub and a gateway, as `addon-signer hub` runs them. Dropping it kills them.
pub(crate) struct Whole {
    pub(crate) gateway: SocketAddr,
    pub(crate) metrics: SocketAddr,
    stop: CancellationToken,
    task: AbortOnDropHandle<anyhow::Result<()>>,
    pub(crate) ledger: TempDir,
}

pub(crate) fn options() -> HubOptions {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    HubOptions {
        roles: Roles::Both,
        hub: HubConfig {
            routes: RouteSettings {
                names: ["127.0.0.1", "gateway.example"].map(|name| name.parse().unwrap()).to_vec(),
                backend_addresses: vec!["127.0.0.0/8".parse().unwrap()],
            },
            rate: Rate { burst: 100, interval: Duration::from_secs(1) },
            ..HubConfig::default()
        },
        gateway_listen: any,
        gateway_limits: Limits::default(),
        access_log: false,
        metrics_listen: any,
        inventory: None,
        replica: "hub".to_owned(),
        pod_uid: None,
        shutdown_delay: Duration::ZERO,
        ledger: "sqlite:///named/by/whoever/starts.db".parse().unwrap(),
        lease_duration: DEFAULT_DURATION,
        registry_age: AgeBounds::default(),
    }
}

impl Whole {
    /// Starts the process with the rights of the chart.
    pub(crate) async fn start(hub: &TestHub, clock: Clock) -> Self {
        let client = hub.client_at(HUB_USER, &HUB_GROUPS, &clock).await;
        Self::start_with(client, options(), clock).await
    }

    /// Starts the process with these options and a ledger of its own.
    pub(crate) async fn start_with(connection: impl Into<HubConnection>, options: HubOptions, clock: Clock) -> Self {
        let (ledger, location) = fresh_ledger();
        let whole = Self::start_on(connection, HubOptions { ledger: location, ..options }, clock).await;
        Self { ledger, ..whole }
    }

    /// The same with the ledger of these options.
    pub(crate) async fn start_on(connection: impl Into<HubConnection>, options: HubOptions, clock: Clock) -> Self {
        let process = HubProcess::prepare(connection, options, clock).await.unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9)); // a signer has no gateway
        let gateway = process.gateway_address().unwrap_or(nowhere);
        let metrics = process.metrics_address();
        let stop = CancellationToken::new();
        let task = AbortOnDropHandle::new(tokio::spawn(process.run(stop.clone())));
        Self { gateway, metrics, stop, task, ledger: tempfile::tempdir().unwrap() }
    }

    /// Waits until the process ends by itself; returns how it ended.
    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        wait_for(TIMEOUT, "the process to end", self.task).await.unwrap()
    }

    /// Stops the process as SIGTERM does.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        wait_for(TIMEOUT, "the process to end", self.task).await.unwrap()
    }
}

/// Installs the chart and creates the signer `telemetry` with a route to `backend`.
pub(crate) async fn prepare(hub: &TestHub, backend: SocketAddr, duration: &str) -> Client {
    deploy(hub).await;
    let admin = hub.admin().await;
    let spec: Value = json!({
        "signerName": "example.com/telemetry",
        "addOns": ["telemetry"],
        "certificate": { "duration": duration, "maxDuration": "24h" },
        "gateway": { "routesFrom": { "namespaces": ["default"] } },
    });
    create_signer(&admin, "telemetry", spec).await;
    create_route(&admin, backend, "/api/v1/receive", &["POST"]).await;
    admin
}

/// The same, and a process of our hub with its gateway.
pub(crate) async fn mk_whole(backend: SocketAddr) -> (TestHub, Client, Whole) {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, backend, "24h").await;
    let whole = Whole::start(&hub, Clock::default()).await;
    (hub, admin, whole)
}

/// The id of the authority that signs.
pub(crate) async fn active(admin: &Client) -> Option<String> {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let authorities = signers.get("telemetry").await.ok()?.status?.authorities;
    authorities.into_iter().find(|authority| authority.state == AuthorityState::Active).map(|active| active.id)
}

/// Asks for a rotation as `addon-signer ca rotate` does, and waits until another authority signs.
pub(crate) async fn rotate(admin: &Client) -> String {
    let before = active(admin).await.unwrap();
    let body = json!({ "metadata": { "annotations": { ANNOTATION_ROTATE: format!("after {before}") } } });
    change_signer(admin, body).await;
    wait_until(TIMEOUT, "another authority to sign", async || active(admin).await.filter(|id| *id != before)).await
}

/// The serving anchors that the hub publishes for agents that have no certificate yet.
pub(crate) async fn serving_anchors(admin: &Client) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    wait_until(TIMEOUT, "the serving anchors", async || {
        maps.get_opt("addon-signer-trust").await.unwrap()?.data?.remove("ca.crt")
    })
    .await
}

/// Sends a GET without TLS, as for metrics; returns the status and the whole answer.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}
