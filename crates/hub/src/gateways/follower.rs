//! The part of a gateway in a process of its own that reads from the API server. It writes nothing.

use std::sync::Arc;

use futures::FutureExt;
use kube::Client;
use tokio::sync::watch;

use super::trust;
use crate::registrations::registry::{self, Recorded};
use crate::routes::{self, RouteLinks, RouteSettings};
use crate::tasks::HubTasks;
use crate::{GatewayEnds, HubError, protected};
use addon_signer_api::ocm::AddOnApi;
use addon_signer_core::gateway::protected::ProtectedAddresses;
use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::trust::Trust;
use addon_signer_core::usage::UsageTracker;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_telemetry::pulse::Pulses;

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

/// The settings of a gateway in a process of its own.
#[derive(Debug, Clone)]
pub struct FollowerSettings {
    /// The namespace of the hub.
    pub namespace: String,
    /// What AddOnRoutes may name.
    pub routes: RouteSettings,
}

/// Reads what a gateway must know.
pub struct Follower {
    client: Client,
    contacts: Contacts,
    registry: SharedRegistry,
    trust: watch::Sender<Arc<Trust>>,
    protected: watch::Sender<ProtectedAddresses>,
    routes: watch::Sender<Arc<RouteTable>>,
    pulses: Pulses,
}

impl Follower {
    /// Creates a follower and its links to the gateway.
    pub fn wire(parts: FollowerParts) -> (Self, GatewayEnds, watch::Receiver<Arc<Trust>>) {
        let FollowerParts { client, contacts, clock, pulses } = parts;
        let (senders, ends, applied) = GatewayEnds::wire(&clock, Arc::new(UsageTracker::undrained()));
        let registry = ends.registry.clone();
        let follower = Self {
            client,
            contacts,
            registry,
            trust: senders.trust,
            protected: senders.protected,
            routes: senders.routes,
            pulses,
        };
        (follower, ends, applied)
    }

    /// Reads until one of the tasks ends. The gateway's Lease must be there before: the signer waits for gateways that
    /// it knows, and others must read what it has done.
    ///
    /// # Errors
    /// [`HubError`] says which task ended.
    pub async fn run(self, settings: FollowerSettings, addon_api: AddOnApi) -> Result<(), HubError> {
        let mut tasks = HubTasks::default();
        let FollowerSettings { namespace, routes } = settings;
        registry::start(
            &mut tasks,
            &self.client,
            addon_api.into(),
            Recorded { registry: self.registry.clone(), sinks: None },
        );
        let beside = protected::keep(self.client.clone(), namespace.clone(), self.protected.clone());
        tasks.spawn("pods and Services of the hub's namespace", beside.map(Ok));
        let links = RouteLinks {
            client: self.client.clone(),
            contacts: self.contacts.clone(),
            trust: self.trust.subscribe(),
            table: self.routes.clone(),
            pulses: self.pulses.clone(),
        };
        let _judged = routes::start(&mut tasks, links, routes); // the signer says what there is to say about each
        tasks.spawn("AddOnSigners", trust::keep(self.client.clone(), namespace, self.trust.clone()).map(Ok));
        Err(tasks.ended().await)
    }
}
