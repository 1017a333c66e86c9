//! The links between hub, gateway and the rest of the process.

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use crate::csrs::guard::Guard;
use crate::lease::Leading;
use crate::metrics::HubMetrics;
use addon_signer_core::gateway::protected::ProtectedAddresses;
use addon_signer_core::gateway::replicas::TrustInEffect;
use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::trust::Trust;
use addon_signer_core::usage::UsageTracker;
use addon_signer_ledger::Ledger;
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::audit::Audit;
use addon_signer_telemetry::pulse::Pulses;

/// The hub's ends of the links between hub, gateway and the rest of the process. Clones are ends of the same links.
#[derive(Clone)]
pub(crate) struct HubLinks {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) registry: SharedRegistry,
    /// What the gateway must trust.
    pub(crate) trust: watch::Sender<Arc<Trust>>,
    /// The trust that all gateways have in effect.
    pub(crate) in_effect: watch::Receiver<TrustInEffect>,
    pub(crate) leading: Leading,
    pub(crate) metrics: HubMetrics,
    pub(crate) audit: Audit,
    pub(crate) ledger: Ledger,
    pub(crate) usage: Arc<UsageTracker>,
    pub(crate) protected: watch::Sender<ProtectedAddresses>,
    pub(crate) routes: watch::Sender<Arc<RouteTable>>,
    pub(crate) pulses: Pulses,
    /// Whether the annotations of OCM's gRPC server can be trusted.
    pub(crate) guard: Guard,
}

/// The other ends of these links.
pub struct HubEnds {
    /// For the gateway in the same process.
    pub gateway: GatewayEnds,
    /// The ledger.
    pub ledger: Ledger,
}

/// The gateway's ends of the links.
pub struct GatewayEnds {
    /// The eligible addons: the hub writes them, the gateway reads them.
    pub registry: SharedRegistry,
    /// What the gateway must trust.
    pub trust: watch::Receiver<Arc<Trust>>,
    /// Where the gateway reports the trust that it has in effect.
    pub applied: watch::Sender<Arc<Trust>>,
    /// The audit log.
    pub audit: Audit,
    /// Where the gateway notes which certificates are in use.
    pub usage: Arc<UsageTracker>,
    /// The addresses that no backend may have.
    pub protected: watch::Receiver<ProtectedAddresses>,
    /// The gateway's routes.
    pub routes: watch::Receiver<Arc<RouteTable>>,
    /// Keeps [`Self::trust`] open when the hub fails, so that the process ends with the hub's error, not with the
    /// gateway's error about a closed input.
    _trust: watch::Sender<Arc<Trust>>,
}

/// The senders to the gateway.
pub(crate) struct GatewaySenders {
    pub(crate) trust: watch::Sender<Arc<Trust>>,
    pub(crate) protected: watch::Sender<ProtectedAddresses>,
    pub(crate) routes: watch::Sender<Arc<RouteTable>>,
}

impl GatewayEnds {
    /// The senders, the gateway's ends, and the trust that the gateway has in effect.
    pub(crate) fn wire(clock: &Clock, usage: Arc<UsageTracker>) -> (GatewaySenders, Self, watch::Receiver<Arc<Trust>>) {
        let (trust, trusted) = watch::channel(Arc::new(Trust::default()));
        let (protected, known) = watch::channel(ProtectedAddresses::default());
        let (routes, routed) = watch::channel(Arc::default());
        let (applied, in_effect) = watch::channel(Arc::new(Trust::default()));
        let ends = Self {
            registry: SharedRegistry::default(),
            trust: trusted,
            applied,
            audit: Audit::new(clock.clone()),
            usage,
            protected: known,
            routes: routed,
            _trust: trust.clone(),
        };
        (GatewaySenders { trust, protected, routes }, ends, in_effect)
    }
}

/// The links of a hub with an API server, whose ledger nobody opens.
#[cfg(test)]
pub(crate) fn mk_links(client: Client, leading: Leading) -> HubLinks {
    let parts = crate::HubParts {
        client,
        clock: Clock::default(),
        leading,
        metrics: HubMetrics::default(),
        ledger: "sqlite:///nowhere".parse().unwrap(),
        replica: "hub-a".to_owned(),
        pulses: Pulses::default(),
        contacts: Default::default(),
        has_gateway: true,
    };
    crate::Hub::wire(parts).0.links
}
