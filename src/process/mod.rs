//! The hub's process. It waits for all its tasks; when the first one ends, the process ends (invariant I12).

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use futures::future::OptionFuture;
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::inventory::Inventory;
use addon_signer_core::named;
use addon_signer_gateway::certificates::ServingNames;
use addon_signer_gateway::{Gateway, GatewayConfig, Limits};
use addon_signer_hub::{HubConfig, lease};
use addon_signer_ledger::Location;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_platform::listen;
pub use probe::{PATHS, metrics};
use registry_age::AgeBounds;

mod gateway;
mod preflight;
mod probe;
pub mod registry_age;
mod running;
mod signer;

/// The life of the gateway's own certificates. It is short, because the gateway renews them itself.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(86_400);

/// Why the hub has not started before the API server's first response.
const NOT_ASKED: &str = "the API server has not answered yet";

/// The settings of the hub's process.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// What the process does.
    pub roles: Roles,
    /// What the hub does.
    pub hub: HubConfig,
    /// Where the gateway listens; port 0 for any.
    pub gateway_listen: SocketAddr,
    /// The limits of the gateway's clients.
    pub gateway_limits: Limits,
    /// Whether the gateway logs each request that has ended, on the tracing target `access`.
    pub access_log: bool,
    /// Where `/healthz`, `/readyz` and `/metrics` are; port 0 for any.
    pub metrics_listen: SocketAddr,
    /// The name of this process in the Lease and in the ledger, such as the pod's name. A gateway without a signer has
    /// a Lease of this name.
    pub replica: String,
    /// `metadata.uid` of the pod: the Lease of a gateway without a signer is deleted together with it.
    pub pod_uid: Option<String>,
    /// How long a gateway without a signer still accepts connections after it was told to stop, so that load balancers
    /// can notice.
    pub shutdown_delay: Duration,
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
    gateway: Option<Gateway>,
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
        let names = options.hub.routes.names.clone();
        let config = GatewayConfig { listen: options.gateway_listen, limits, names, access_log: options.access_log };
        let gateway = OptionFuture::from(options.roles.has_gateway().then(|| Gateway::bind(config)));
        let gateway = gateway.await.transpose()?;
        let inventory = options.inventory.as_ref().map(|inventory| Inventory::bind(inventory.listen));
        let inventory = OptionFuture::from(inventory).await.transpose()?;
        let listening =
            || format!("cannot listen for metrics on {}; choose another --metrics-listen", options.metrics_listen);
        let metrics_listener = listen::bind(options.metrics_listen, None).with_context(listening)?;
        let metrics_address = metrics_listener.local_addr().with_context(listening)?;
        Ok(Self { connection, options, clock, gateway, inventory, metrics_listener, metrics_address })
    }

    /// Where the inventory listens, if it is served.
    pub fn inventory_address(&self) -> Option<SocketAddr> {
        self.inventory.as_ref().map(Inventory::local_addr)
    }

    /// Where the gateway listens, if this process serves it.
    pub fn gateway_address(&self) -> Option<SocketAddr> {
        self.gateway.as_ref().map(Gateway::local_addr)
    }

    /// Where metrics are served.
    pub fn metrics_address(&self) -> SocketAddr {
        self.metrics_address
    }

    /// The addresses of the process, for the log.
    fn addresses(&self) -> String {
        let gateway = self.gateway_address().map(|address| format!("gateway {address}, ")).unwrap_or_default();
        format!("{gateway}metrics {}", self.metrics_address)
    }

    /// Runs until `stop` is cancelled or one of the tasks ends. Until the API server first responds, the tasks that
    /// read from it do not run, and `/readyz` reports the reason.
    ///
    /// # Errors
    /// A missing right or CRD, in one sentence; otherwise which task ended, and why.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let identity = lease::identity(&self.options.replica)?;
        if self.options.roles.has_signer() {
            self.run_signer(identity, stop).await
        } else {
            self.run_gateway(identity, stop).await
        }
    }
}

/// The names in the serving certificate of this process: those of the gateway, if it serves that; and, with an
/// inventory, the name by which the API server addresses its Service (kube-aggregator, `BuildTransportConfig`).
fn serving_names(options: &HubOptions) -> ServingNames {
    let of_gateway = if options.roles.has_gateway() { &options.hub.routes.names[..] } else { &[] };
    let mut serving = ServingNames::of(of_gateway);
    if let Some(inventory) = &options.inventory {
        serving.dns.insert(format!("{}.{}.svc", inventory.service, options.hub.namespace));
    }
    serving
}

named! {
    /// The roles of a process.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Roles {
        /// Signer and gateway in one process.
        #[default]
        Both = "signer,gateway",
        /// Only the signer. It holds the keys of the authorities and the ledger; no agent reaches it.
        Signer = "signer",
        /// Only the gateway. It holds no key but its own, and no ledger.
        Gateway = "gateway",
    }
    /// The value of `--roles`.
    pub fn as_str(self) -> &'static str;
}

impl Roles {
    /// Whether the process signs.
    pub fn has_signer(self) -> bool {
        self != Self::Gateway
    }

    /// Whether the process serves the gateway.
    pub fn has_gateway(self) -> bool {
        self != Self::Signer
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut roles: Vec<&str> = text.split(',').map(str::trim).collect();
        roles.sort_unstable();
        match roles[..] {
            ["gateway", "signer"] => Ok(Self::Both),
            ["signer"] => Ok(Self::Signer),
            ["gateway"] => Ok(Self::Gateway),
            _ => Err("the roles are signer, gateway, or both as signer,gateway".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_in_any_order() {
        for roles in [Roles::Both, Roles::Signer, Roles::Gateway] {
            assert_eq!(roles.to_string().parse(), Ok(roles));
        }
        assert_eq!("gateway, signer".parse(), Ok(Roles::Both));
        for wrong in ["", "hub", "signer,signer", "signer,gateway,hub"] {
            assert!(wrong.parse::<Roles>().is_err(), "{wrong}");
        }
    }
}
