//! Gateways in processes of their own. A signer and its gateways communicate only through Kubernetes objects: a gateway
//! reads what to trust (`trust`), and reports in its Lease (`gateway_lease`) what it trusts; the signer reads these
//! Leases in `replicas`. [`Follower`] is the part of such a gateway that reads; it writes nothing.

use std::sync::Arc;

use futures::FutureExt;
use kube::Client;
use tokio::sync::watch;

use super::links::GatewaySenders;
use super::registrations::registry::{self, Recorded};
use super::routes::{self, RouteLinks};
use super::tasks::HubTasks;
use super::{GatewayEnds, HubConfig, HubError, protected};
use addon_signer_api::ocm::AddOnApi;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::trust::Trust;
use addon_signer_core::usage::UsageTracker;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_telemetry::pulse::Pulses;
pub use gateway_lease::{GatewayLease, GatewayLeaseError, LEASES, LeaseKeeper};
pub use trust::keep as keep_trust;

mod gateway_lease;
pub(crate) mod replicas;
mod trust;

/// What [`Follower::wire`] needs.
pub struct FollowerParts {
    /// The client with the gateway's account.
    pub client: Client,
    /// When that client last heard from the API server.
    pub contacts: Contacts,
    /// The clock.
    pub clock: Clock,
    /// The signs of life of the tasks.
    pub pulses: Pulses,
}

/// Reads what a gateway needs.
pub struct Follower {
    parts: FollowerParts,
    registry: SharedRegistry,
    senders: GatewaySenders,
}

impl Follower {
    /// Creates a follower and its links to the gateway.
    pub fn wire(parts: FollowerParts) -> (Self, GatewayEnds, watch::Receiver<Arc<Trust>>) {
        let (senders, ends, applied) = GatewayEnds::wire(&parts.clock, Arc::new(UsageTracker::undrained()));
        let registry = ends.registry.clone();
        (Self { parts, registry, senders }, ends, applied)
    }

    /// Reads until one of the tasks ends. The gateway's Lease must exist before: the signer waits only for gateways
    /// that it knows, so a gateway that reads earlier could miss a new authority that already signs.
    pub async fn run(self, config: HubConfig, addon_api: AddOnApi) -> Result<(), HubError> {
        let Self { parts: FollowerParts { client, contacts, clock: _, pulses }, registry, senders } = self;
        let GatewaySenders { trust, protected, routes: table } = senders;
        let HubConfig { namespace, routes, .. } = config;
        let mut tasks = HubTasks::default();
        registry::start(&mut tasks, &client, addon_api.into(), Recorded { registry, sinks: None });
        let beside = protected::keep(client.clone(), namespace.clone(), protected);
        tasks.spawn("pods and Services of the hub's namespace", beside.map(Ok));
        let links = RouteLinks { client: client.clone(), contacts, trust: trust.subscribe(), table, pulses };
        let _judged = routes::start(&mut tasks, links, routes); // the signer reports on each
        tasks.spawn("AddOnSigners", trust::keep(client, namespace, trust).map(Ok));
        Err(tasks.ended().await)
    }
}
