//! The hub's process. It waits for all its tasks; when the first one ends, the process ends (invariant I12).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use futures::future::OptionFuture;
use futures::{FutureExt, TryFutureExt};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::gateway::serving::{ServingNames, keep_serving_certificate};
use crate::gateway::{Gateway, GatewayConfig, GatewayInputs, Limits};
use crate::hub::lease::{self, Holder, Leading, LeaseSettings};
use crate::hub::{Hub, HubParts, HubSettings};
use crate::inventory::{self, Inventory};
use crate::ledger::{Location, Reader};
use crate::preflight::{account, check_rights};
use crate::probe::Probe;
use crate::pulse::Pulses;
use crate::registry_age::{AgeBounds, RegistryAge};
use crate::telemetry::Metrics;
use addon_signer_core::policy::ServingRules;
use addon_signer_core::rate::Rate;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;

/// The life of the gateway's own certificate. It is short, because the gateway renews it itself.
const SERVING_LIFETIME: Duration = Duration::from_secs(86_400);

/// The task that renews the gateway's own certificate.
const RENEWAL: &str = "renewal of the gateway's certificate";

type Tasks = JoinSet<anyhow::Result<()>>;

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
    /// Whether backends may have loopback addresses.
    pub allow_loopback_upstreams: bool,
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
    /// How old may be what the hub knows of clusters and addons.
    pub registry_age: AgeBounds,
    /// Where the inventory is served; `None` for nowhere.
    pub inventory: Option<InventoryOptions>,
}

/// The way to the API server.
pub struct HubConnection {
    /// The client with the hub's account.
    pub client: Client,
    /// When that client heard the API server.
    pub contacts: Contacts,
}

/// A client that notes no contacts: what the hub knows never becomes old.
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
    account: String,
    gateway: Gateway,
    inventory: Option<Inventory>,
    metrics_listener: TcpListener,
    metrics_address: SocketAddr,
}

impl HubProcess {
    /// Binds the sockets, asks the API server for the account of this process, and checks the account's rights.
    ///
    /// # Errors
    /// An address in use, an API server that does not answer, missing rights or a missing CRD: one sentence each.
    pub async fn prepare(
        connection: impl Into<HubConnection>,
        options: HubOptions,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let connection = connection.into();
        let allow_loopback = options.allow_loopback_upstreams;
        let limits = options.gateway_limits.clone();
        let names = options.gateway_names.clone();
        let config = GatewayConfig { listen: options.gateway_listen, limits, allow_loopback, names };
        let gateway = Gateway::bind(config).await?;
        let inventory = options.inventory.as_ref().map(|inventory| Inventory::bind(inventory.listen));
        let inventory = OptionFuture::from(inventory).await.transpose()?;
        let listening =
            || format!("cannot listen for metrics on {}; choose another --metrics-listen", options.metrics_listen);
        let metrics_listener = TcpListener::bind(options.metrics_listen).await.with_context(listening)?;
        let metrics_address = metrics_listener.local_addr().with_context(listening)?;
        let account = account(&connection.client).await?;
        check_rights(&connection.client, &account, &options.namespace).await?;
        Ok(Self { connection, options, clock, account, gateway, inventory, metrics_listener, metrics_address })
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

    /// Runs hub and gateway until `stop` is cancelled or one of the tasks ends. The Lease is given back at once after
    /// `stop`, and last of all if a task ended.
    ///
    /// # Errors
    /// Which task ended, and why.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let gateway = self.gateway_address();
        info!(account = self.account, %gateway, metrics = %self.metrics_address, "The hub starts");
        let identity = lease::identity(&self.options.replica)?;
        let lease = LeaseSettings {
            namespace: self.options.namespace.clone(),
            identity: identity.clone(),
            duration: self.options.lease_duration,
            // The epoch of a deleted Lease begins again at 1, but the ledger knows a later one.
            ledger: self.options.ledger.clone(),
        };
        let (holder, leading) = Holder::new(self.connection.client.clone(), self.clock.clone(), lease);
        let give_back = stop.child_token();
        let mut holding = JoinSet::new();
        holding.spawn(holder.run(give_back.clone()));
        let result = self.run_tasks(leading, identity, stop).await;
        give_back.cancel();
        // If it ended early, the Lease was lost, and the hub has reported that.
        while holding.join_next().await.is_some() {}
        result
    }

    async fn run_tasks(self, leading: Leading, replica: String, stop: CancellationToken) -> anyhow::Result<()> {
        let HubConnection { client, contacts } = self.connection;
        let metrics = Metrics::new(|registry| self.gateway.stats().register(registry));
        let (renewed, serving) = watch::channel(None);
        let names = serving_names(&self.options);
        let pulses = Pulses::default();
        let pulse = pulses.start(RENEWAL);
        let parts = HubParts {
            client: client.clone(),
            clock: self.clock.clone(),
            leading: leading.clone(),
            metrics: metrics.clone(),
            ledger: self.options.ledger.clone(),
            replica,
            pulses: pulses.clone(),
        };
        let (hub, ends) = Hub::wire(parts, settings(&self.options, self.account, &names));
        let (mut hub_task, mut tasks) = (Tasks::new(), Tasks::new());

        let age = RegistryAge { contacts, registry: ends.registry.clone(), bounds: self.options.registry_age };
        tasks.spawn(until_stopped("age of the registry", age.clone().keep(stop.clone()).map(Ok), stop.clone()));
        let probe = Probe {
            ledger: ends.ledger.health(),
            location: self.options.ledger.clone(),
            metrics,
            age,
            pulses,
            serving: serving.clone(),
            clock: self.clock.clone(),
            leading,
        };
        tasks.spawn(until_stopped("metrics", probe.serve(self.metrics_listener, stop.clone()).map(Ok), stop.clone()));
        tasks.spawn(until_stopped("audit log", ends.audit.clone().keep(stop.clone()).map(Ok), stop.clone()));
        hub_task.spawn(until_stopped("hub", hub.run().err_into(), stop.clone()));

        let inputs = GatewayInputs {
            trust: ends.trust.clone(),
            registry: ends.registry,
            serving: serving.clone(),
            clock: self.clock.clone(),
            audit: ends.audit.clone(),
            seen: ends.seen,
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

        let keeper = keep_serving_certificate(client, names, self.clock, ends.trust, renewed, stop.clone(), pulse);
        tasks.spawn(until_stopped(RENEWAL, keeper.map(Ok), stop.clone()));

        let ended = first_end(hub_task, tasks, stop).await;
        ends.audit.write_all();
        ended
    }
}

/// Runs a task that ends after `stop`; its end before `stop` is an error.
async fn until_stopped(
    name: &str,
    task: impl Future<Output = anyhow::Result<()>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    task.await?;
    anyhow::ensure!(stop.is_cancelled(), "the task {name:?} ended, although it must run as long as the process");
    Ok(())
}

/// Waits for `stop` and the tasks that heed it, or for the first task that ends by itself. After `stop` the hub may end
/// before the gateway, because the next hub leads already.
async fn first_end(mut hub: Tasks, mut tasks: Tasks, stop: CancellationToken) -> anyhow::Result<()> {
    let ended = tokio::select! {
        biased; // `stop` first: tasks that heed it end at once, and the others must still be waited for
        () = stop.cancelled() => {
            // The gateway drains requests in flight; the hub's watches are dropped.
            let drain = Limits::default().drain_timeout + Duration::from_secs(1);
            let drained = tokio::time::timeout(drain, async { while tasks.join_next().await.is_some() {} });
            if drained.await.is_err() {
                info!("Requests were still in flight when the process ended");
            }
            if let Some(Ok(Err(error))) = hub.try_join_next() {
                info!(error = format!("{error:#}"), "The hub ended while the gateway drained");
            }
            return Ok(());
        }
        ended = hub.join_next() => ended,
        ended = tasks.join_next() => ended,
    };
    match ended {
        Some(result) => {
            result.context("a task of the process failed")?.context("the process stops, because one of its tasks ended")
        }
        None => Ok(()),
    }
}

fn settings(options: &HubOptions, account: String, names: &ServingNames) -> HubSettings {
    HubSettings {
        namespace: options.namespace.clone(),
        grpc_proxy: options.grpc_proxy.clone(),
        allow_loopback_upstreams: options.allow_loopback_upstreams,
        retention: options.retention,
        rate: options.rate,
        serving: ServingRules {
            account,
            dns_names: names.dns.clone(),
            ip_addresses: names.ips.clone(),
            duration: SERVING_LIFETIME,
        },
    }
}

/// The names of the gateway and, with an inventory, the name by which the API server calls a Service (kube-aggregator,
/// `BuildTransportConfig`).
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

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;

    #[tokio::test]
    async fn the_end_of_each_task_ends_the_process_and_is_said() {
        const ENDED: &str = "the process stops, because one of its tasks ended: the task \"a\" ended, although it must \
                             run as long as the process";
        for is_hub in [false, true] {
            let end = async |task: BoxFuture<'static, anyhow::Result<()>>| {
                let stop = CancellationToken::new();
                let mut ending = Tasks::new();
                ending.spawn(until_stopped("a", task, stop.clone()));
                let mut lasting = Tasks::new();
                lasting.spawn(std::future::pending());
                let ended = if is_hub {
                    first_end(ending, lasting, stop).await
                } else {
                    first_end(lasting, ending, stop).await
                };
                format!("{:#}", ended.unwrap_err())
            };
            assert_eq!(end(Box::pin(async { Ok(()) })).await, ENDED);
            let failed = end(Box::pin(async { anyhow::bail!("no more files") })).await;
            assert_eq!(failed, "the process stops, because one of its tasks ended: no more files");
            let panicked = end(Box::pin(async { std::panic::resume_unwind(Box::new(())) })).await;
            assert!(panicked.starts_with("a task of the process failed: task "), "{panicked}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_gateway_drains_also_when_the_hub_ends_first() {
        let mut hub = Tasks::new();
        hub.spawn(async { anyhow::bail!("another hub writes the ledger") });
        let mut tasks = Tasks::new();
        let (drained, is_drained) = watch::channel(false);
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drained.send_replace(true);
            Ok(())
        });
        let stop = CancellationToken::new();
        stop.cancel();
        first_end(hub, tasks, stop).await.unwrap();
        assert!(*is_drained.borrow());
    }
}
