//! The tasks of a process of either role, and what they share.

use std::sync::Arc;

use futures::{FutureExt, TryFutureExt};
use kube::Client;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::metrics::ProcessMetrics;
use super::registry_age::RegistryAge;
use super::tasks::{Tasks, first_end, until_stopped};
use crate::inventory::{Inventory, InventoryInputs};
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::trust::Trust;
use addon_signer_gateway::certificates::{CertificateOrder, ServingNames, keep_certificate};
use addon_signer_gateway::{Gateway, GatewayInputs};
use addon_signer_hub::GatewayEnds;
use addon_signer_ledger::{Location, Reader};
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::audit::Audit;
use addon_signer_telemetry::pulse::Pulses;

/// The tasks that renew the gateway's own certificates, for agents and for backends.
const RENEWAL: &str = "renewal of the gateway's certificate";
const CLIENT_RENEWAL: &str = "renewal of the gateway's client certificate";

/// A certificate that a task keeps up to date; `None` until there is one.
pub(super) type OwnCertificate = watch::Receiver<Option<Arc<CertifiedKey>>>;

/// The tasks of the process.
pub(super) struct Running {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) audit: Audit,
    pub(super) pulses: Pulses,
    pub(super) stop: CancellationToken,
    pub(super) tasks: Tasks,
}

impl Running {
    /// Starts with what each process has: the age of its registry and the audit log.
    pub(super) fn new(
        client: Client,
        clock: Clock,
        audit: Audit,
        pulses: Pulses,
        age: RegistryAge,
        stop: CancellationToken,
    ) -> Self {
        let mut running = Self { client, clock, audit, pulses, stop, tasks: Tasks::new() };
        running.spawn("age of the registry", age.keep(running.stop.clone()).map(Ok));
        running.spawn("audit log", running.audit.clone().keep(running.stop.clone()).map(Ok));
        running
    }

    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { until_stopped(name, task, stop).await });
    }

    /// Keeps the certificate that agents see, and the API server where there is an inventory.
    pub(super) fn keep_serving(&mut self, names: ServingNames, trust: watch::Receiver<Arc<Trust>>) -> OwnCertificate {
        self.keep_certificate(RENEWAL, CertificateOrder { certificate: GatewayCertificate::Serving, names }, trust)
    }

    /// Keeps the certificate that backends see.
    pub(super) fn keep_client_certificate(&mut self, trust: watch::Receiver<Arc<Trust>>) -> OwnCertificate {
        self.keep_certificate(CLIENT_RENEWAL, CertificateOrder::for_backends(), trust)
    }

    fn keep_certificate(
        &mut self,
        task: &'static str,
        wanted: CertificateOrder,
        trust: watch::Receiver<Arc<Trust>>,
    ) -> OwnCertificate {
        let (renewed, certificate) = watch::channel(None);
        let (client, clock, pulse) = (self.client.clone(), self.clock.clone(), self.pulses.start(task));
        let keeper = keep_certificate(client, wanted, clock, trust, renewed, self.stop.clone(), pulse);
        self.spawn(task, keeper.map(Ok));
        certificate
    }

    /// Serves the gateway.
    pub(super) fn serve_gateway(
        &mut self,
        gateway: Gateway,
        ends: GatewayEnds,
        metrics: &ProcessMetrics,
        (serving, client_certificate): (OwnCertificate, OwnCertificate),
    ) {
        let inputs = GatewayInputs {
            trust: ends.trust.clone(),
            registry: ends.registry.clone(),
            serving,
            client_certificate,
            clock: self.clock.clone(),
            audit: self.audit.clone(),
            usage: ends.usage.clone(),
            stats: metrics.gateway.clone(),
            protected: ends.protected.clone(),
            routes: ends.routes.clone(),
        };
        let stop = self.stop.clone();
        self.spawn("gateway", async move {
            let ends = ends; // kept, so that the process ends with the hub's error and not with the gateway's
            gateway.run(inputs, ends.applied.clone(), stop).await.map_err(Into::into)
        });
    }

    /// Serves the inventory of the ledger.
    pub(super) fn serve_inventory(
        &mut self,
        inventory: Inventory,
        ledger: Location,
        trust: watch::Receiver<Arc<Trust>>,
        serving: OwnCertificate,
    ) {
        let inputs = InventoryInputs {
            client: self.client.clone(),
            trust,
            serving,
            clock: self.clock.clone(),
            audit: self.audit.clone(),
            reader: Reader::new(ledger),
        };
        let stop = self.stop.clone();
        self.spawn("inventory", inventory.run(inputs, stop).err_into());
    }

    /// Waits until `stop` is cancelled and all has ended, or until a task ends by itself. `hub` is what reads from the
    /// API server.
    pub(super) async fn ended(self, hub: Tasks) -> anyhow::Result<()> {
        let Self { tasks, stop, audit, .. } = self;
        first_end(hub, tasks, stop).inspect(|_| audit.write_all()).await
    }
}
