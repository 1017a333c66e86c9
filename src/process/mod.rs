//! The hub's process. It waits for all its tasks; when the first one ends, the process ends (invariant I12).

pub(crate) mod metrics;
pub(crate) mod open_files;
mod preflight;
mod probe;
pub mod registry_age;
mod tasks;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use futures::future::OptionFuture;
use futures::{FutureExt, TryFutureExt};
use ipnet::IpNet;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::inventory::{self, Inventory};
use crate::process::metrics::ProcessMetrics;
use crate::process::preflight::{Preflight, preflight};
use crate::process::probe::Probe;
use crate::process::registry_age::{AgeBounds, RegistryAge};
use crate::process::tasks::{Tasks, first_end, until_stopped};
use addon_signer_core::policy::{GatewayCertificate, GatewayRules};
use addon_signer_core::rate::Rate;
use addon_signer_gateway::certificates::{ServingNames, Wanted, keep_certificate};
use addon_signer_gateway::{Gateway, GatewayConfig, GatewayInputs, Limits};
use addon_signer_hub::lease::{self, Holder, Leading, LeaseSettings};
use addon_signer_hub::routes::RouteSettings;
use addon_signer_hub::{Hub, HubParts, HubSettings};
use addon_signer_ledger::{Location, Reader};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_telemetry::pulse::{Pulse, Pulses};

/// The life of the gateway's own certificates. It is short, because the gateway renews them itself.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(86_400);

/// The tasks that renew the gateway's own certificates, for agents and for backends.
const RENEWAL: &str = "renewal of the gateway's certificate";
const CLIENT_RENEWAL: &str = "renewal of the gateway's client certificate";

/// What keeps the hub from starting before the API server has answered for the first time.
const NOT_ASKED: &str = "the API server has not answered yet";

/// The settings of the hub's process.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// The namespace of the hub's Secrets, ConfigMaps and Lease.
    pub namespace: String,
    /// Where the gateway listens; port 0 for any.
    pub gateway_listen: SocketAddr,
    /// How much clients of the gateway may use.
    pub gateway_limits: Limits,
    /// The names and addresses by which agents reach the gateway.
    pub gateway_names: Vec<String>,
    /// Where `/healthz`, `/readyz` and `/metrics` are; port 0 for any.
    pub metrics_listen: SocketAddr,
    /// The account of OCM's gRPC server, which makes requests for agents.
    pub grpc_proxy: Option<String>,
    /// The networks in which a backend may be an address.
    pub backend_addresses: Vec<IpNet>,
    /// How long refused requests are kept.
    pub retention: Duration,
    /// How many certificates one addon of a cluster may get.
    pub rate: Rate,
    /// The name of this process in the Lease and in the ledger, such as the pod's name.
    pub replica: String,
    /// Where decisions are recorded.
    pub ledger: Location,
    /// How long the Lease is valid without a renewal, in whole seconds.
    pub lease_duration: Duration,
    /// Maximum age of what the hub knows about clusters and addons.
    pub registry_age: AgeBounds,
    /// Where the inventory is served; `None` for nowhere.
    pub inventory: Option<InventoryOptions>,
}

/// Access to the API server.
pub struct HubConnection {
    /// The client with the hub's account.
    pub client: Client,
    /// When that client last heard from the API server.
    pub contacts: Contacts,
}

/// A client that notes no contacts: what the hub knows never goes stale.
impl From<Client> for HubConnection {
    fn from(client: Client) -> Self {
        Self { client, contacts: Contacts::default() }
    }
}

/// How Kubernetes' API server reaches the inventory.
#[derive(Debug, Clone)]
pub struct InventoryOptions {
    /// Where it listens; port 0 for any.
    pub listen: SocketAddr,
    /// The Service, in the hub's namespace, that the APIService names.
    pub service: String,
}

/// The hub's process with its sockets bound, so that an address in use is found before anything runs.
pub struct HubProcess {
    connection: HubConnection,
    options: HubOptions,
    clock: Clock,
    gateway: Gateway,
    inventory: Option<Inventory>,
    metrics_listener: TcpListener,
    metrics_address: SocketAddr,
}

impl HubProcess {
    /// Binds the sockets. [`Self::run`] is the first to contact the API server.
    ///
    /// # Errors
    /// An address in use: one sentence.
    pub async fn prepare(
        connection: impl Into<HubConnection>,
        options: HubOptions,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let connection = connection.into();
        let limits = options.gateway_limits.clone();
        let names = options.gateway_names.clone();
        let config = GatewayConfig { listen: options.gateway_listen, limits, names };
        let gateway = Gateway::bind(config).await?;
        let inventory = options.inventory.as_ref().map(|inventory| Inventory::bind(inventory.listen));
        let inventory = OptionFuture::from(inventory).await.transpose()?;
        let listening =
            || format!("cannot listen for metrics on {}; choose another --metrics-listen", options.metrics_listen);
        let metrics_listener = TcpListener::bind(options.metrics_listen).await.with_context(listening)?;
        let metrics_address = metrics_listener.local_addr().with_context(listening)?;
        Ok(Self { connection, options, clock, gateway, inventory, metrics_listener, metrics_address })
    }

    /// Where the inventory listens, if it is served.
    pub fn inventory_address(&self) -> Option<SocketAddr> {
        self.inventory.as_ref().map(Inventory::local_addr)
    }

    /// Where the gateway listens.
    pub fn gateway_address(&self) -> SocketAddr {
        self.gateway.local_addr()
    }

    /// Where metrics are served.
    pub fn metrics_address(&self) -> SocketAddr {
        self.metrics_address
    }

    /// Runs hub and gateway until `stop` is cancelled or one of the tasks ends. The Lease is released at once after
    /// `stop`, and last of all if a task ended. Until the API server first answers, everything but the hub runs, and
    /// `/readyz` says why.
    ///
    /// # Errors
    /// A missing right or CRD, in one sentence; otherwise which task ended, and why.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let identity = lease::identity(&self.options.replica)?;
        let lease = LeaseSettings {
            namespace: self.options.namespace.clone(),
            identity: identity.clone(),
            duration: self.options.lease_duration,
            // The epoch of a deleted Lease begins again at 1, but the ledger knows a later one.
            ledger: self.options.ledger.clone(),
        };
        let (holder, leading) = Holder::new(self.connection.client.clone(), self.clock.clone(), lease);
        let (give_back, begun) = (stop.child_token(), CancellationToken::new());
        let mut holding = JoinSet::new();
        holding.spawn(hold(holder, begun.clone(), give_back.clone()));
        let start = Start {
            client: self.connection.client.clone(),
            options: self.options.clone(),
            gateway: self.gateway_address(),
            metrics: self.metrics_address,
            waits: watch::Sender::new(Some(NOT_ASKED.to_owned())),
            begun,
            replica: identity,
        };
        let result = self.run_tasks(leading, start, stop).await;
        give_back.cancel();
        // If it ended early, the Lease was lost, and the hub has reported that.
        while holding.join_next().await.is_some() {}
        result
    }

    fn hub_parts(&self, leading: &Leading, metrics: &ProcessMetrics, start: &Start, pulses: &Pulses) -> HubParts {
        HubParts {
            client: self.connection.client.clone(),
            clock: self.clock.clone(),
            leading: leading.clone(),
            metrics: metrics.hub.clone(),
            ledger: self.options.ledger.clone(),
            replica: start.replica.clone(),
            pulses: pulses.clone(),
        }
    }

    async fn run_tasks(self, leading: Leading, start: Start, stop: CancellationToken) -> anyhow::Result<()> {
        let metrics = ProcessMetrics::register();
        let [(renewed, serving), (client_renewed, client_certificate)] = [(); 2].map(|()| watch::channel(None));
        let (names, pulses) = (serving_names(&self.options), Pulses::default());
        let (hub, ends) = Hub::wire(self.hub_parts(&leading, &metrics, &start, &pulses));
        let HubConnection { client, contacts } = self.connection;
        let (mut hub_task, mut tasks) = (Tasks::new(), Tasks::new());
        let age = RegistryAge { contacts, registry: ends.registry.clone(), bounds: self.options.registry_age };
        tasks.spawn(until_stopped("age of the registry", age.clone().keep(stop.clone()).map(Ok), stop.clone()));
        let probe = Probe {
            ledger: ends.ledger.health(),
            location: self.options.ledger.clone(),
            metrics: metrics.clone(),
            age,
            pulses: pulses.clone(),
            serving: serving.clone(),
            client_certificate: client_certificate.clone(),
            routes: ends.routes.clone(),
            clock: self.clock.clone(),
            leading,
            waiting: start.waits.subscribe(),
        };
        tasks.spawn(until_stopped("metrics", probe.serve(self.metrics_listener, stop.clone()).map(Ok), stop.clone()));
        tasks.spawn(until_stopped("audit log", ends.audit.clone().keep(stop.clone()).map(Ok), stop.clone()));
        hub_task.spawn(start.run(hub, pulses.start("first questions to the API server"), stop.clone()));

        let inputs = GatewayInputs {
            trust: ends.trust.clone(),
            registry: ends.registry,
            serving: serving.clone(),
            client_certificate,
            clock: self.clock.clone(),
            audit: ends.audit.clone(),
            usage: ends.usage,
            stats: metrics.gateway,
            neighbours: ends.neighbours,
            routes: ends.routes,
        };
        let gateway = self.gateway.run(inputs, ends.applied, stop.clone()).err_into();
        tasks.spawn(until_stopped("gateway", gateway, stop.clone()));

        if let Some(inventory) = self.inventory {
            let inputs = inventory::InventoryInputs {
                client: client.clone(),
                trust: ends.trust.clone(),
                serving,
                clock: self.clock.clone(),
                audit: ends.audit.clone(),
                reader: Reader::new(self.options.ledger.clone()),
            };
            tasks.spawn(until_stopped("inventory", inventory.run(inputs, stop.clone()).err_into(), stop.clone()));
        }

        for (task, wanted, renewed) in [
            (RENEWAL, Wanted { certificate: GatewayCertificate::Serving, names }, renewed),
            (CLIENT_RENEWAL, Wanted::for_backends(), client_renewed),
        ] {
            let (client, clock, trust) = (client.clone(), self.clock.clone(), ends.trust.clone());
            let keeper = keep_certificate(client, wanted, clock, trust, renewed, stop.clone(), pulses.start(task));
            tasks.spawn(until_stopped(task, keeper.map(Ok), stop.clone()));
        }
        first_end(hub_task, tasks, stop).inspect(|_| ends.audit.write_all()).await
    }
}

/// Holds the Lease once `begun`: before that the hub might lack the rights to lead.
async fn hold(holder: Holder, begun: CancellationToken, give_back: CancellationToken) {
    if give_back.run_until_cancelled(begun.cancelled()).await.is_some() {
        holder.run(give_back).await;
    }
}

/// The hub's start: what must be known before it runs.
struct Start {
    client: Client,
    options: HubOptions,
    gateway: SocketAddr,
    metrics: SocketAddr,
    /// The name of this start of the process in Lease and ledger.
    replica: String,
    /// What keeps the hub from running.
    waits: watch::Sender<Option<String>>,
    /// Cancelled once nothing keeps the hub from running.
    begun: CancellationToken,
}

impl Start {
    async fn run(self, hub: Hub, pulse: Pulse, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { client, options, gateway, metrics, waits, begun, .. } = self;
        let Preflight { account, addon_api } = preflight(&client, &options.namespace, &waits, pulse).await?;
        info!(account, %gateway, %metrics, "Starting the hub");
        begun.cancel();
        let settings = settings(&options, account, &serving_names(&options));
        until_stopped("hub", hub.run(settings, addon_api).err_into(), stop).await
    }
}

fn settings(options: &HubOptions, account: String, names: &ServingNames) -> HubSettings {
    HubSettings {
        namespace: options.namespace.clone(),
        grpc_proxy: options.grpc_proxy.clone(),
        routes: RouteSettings {
            names: options.gateway_names.clone(),
            backend_addresses: options.backend_addresses.clone(),
        },
        retention: options.retention,
        rate: options.rate,
        gateway: GatewayRules {
            account,
            dns_names: names.dns.clone(),
            ip_addresses: names.ips.clone(),
            duration: CERTIFICATE_LIFETIME,
        },
    }
}

/// The names of the gateway and, with an inventory, the name under which the API server calls a Service
/// (kube-aggregator, `BuildTransportConfig`).
fn serving_names(options: &HubOptions) -> ServingNames {
    let mut serving = ServingNames::default();
    if let Some(inventory) = &options.inventory {
        serving.dns.insert(format!("{}.{}.svc", inventory.service, options.namespace));
    }
    for name in &options.gateway_names {
        match name.parse::<IpAddr>() {
            Ok(address) => serving.ips.insert(address),
            Err(_) => serving.dns.insert(name.clone()),
        };
    }
    serving
}
