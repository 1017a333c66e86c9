//! The tasks of a process of either role, and what they share. When the first one ends, the process ends (invariant
//! I12).

use std::sync::Arc;

use anyhow::Context;
use futures::{FutureExt, TryFutureExt};
use kube::Client;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::registry_age::RegistryAge;
use crate::inventory::{Inventory, InventoryInputs};
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::trust::Trust;
use addon_signer_gateway::certificates::{CertificateOrder, ServingNames, keep_certificate};
use addon_signer_gateway::listener::DRAIN_MARGIN;
use addon_signer_gateway::{Gateway, GatewayInputs, GatewayStats, Limits};
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
    /// Starts the tasks that every process has: the age of its registry and the audit log.
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

    /// Keeps the certificate for agents, and for the API server if there is an inventory.
    pub(super) fn keep_serving(&mut self, names: ServingNames, trust: watch::Receiver<Arc<Trust>>) -> OwnCertificate {
        self.keep_certificate(RENEWAL, CertificateOrder { certificate: GatewayCertificate::Serving, names }, trust)
    }

    /// Keeps the certificate for backends.
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
        stats: Arc<GatewayStats>,
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
            stats,
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

    /// Waits until `stop` is cancelled and all tasks have ended, or until a task ends by itself. `hub` are the tasks
    /// that read from the API server.
    pub(super) async fn ended(self, hub: Tasks) -> anyhow::Result<()> {
        let Self { tasks, stop, audit, .. } = self;
        first_end(hub, tasks, stop).inspect(|_| audit.write_all()).await
    }
}

pub(crate) type Tasks = JoinSet<anyhow::Result<()>>;

/// Runs a task that ends after `stop`; its end before `stop` is an error.
pub(crate) async fn until_stopped(
    name: &str,
    task: impl Future<Output = anyhow::Result<()>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let ended = async {
        task.await?;
        anyhow::ensure!(stop.is_cancelled(), "the task {name:?} ended, although it must run as long as the process");
        Ok(())
    };
    match ended.await {
        Err(error) if !stop.is_cancelled() => Err(error.context("the process stops, because one of its tasks ended")),
        ended => ended,
    }
}

/// Waits for `stop` and the tasks that obey it, or for the first task that ends by itself. After `stop` the hub may end
/// before the gateway, because the next hub is already leading.
pub(crate) async fn first_end(mut hub: Tasks, mut tasks: Tasks, stop: CancellationToken) -> anyhow::Result<()> {
    let ended = tokio::select! {
        biased; // `stop` first: tasks that obey it end at once, and the others must still be waited for
        () = stop.cancelled() => {
            // The gateway drains requests in flight. Meanwhile the hub's watches continue, because an addon that loses
            // its eligibility must be cut off within 2 s even now (invariant I15).
            let drain = Limits::default().drain_timeout + 2 * DRAIN_MARGIN;
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
        Some(result) => result.context("a task of the process failed")?,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::BoxFuture;
    use tokio::sync::watch;

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

    #[tokio::test(start_paused = true)]
    async fn process_ends_despite_starting_hub_and_endless_task() {
        let mut tasks = [Tasks::new(), Tasks::new()];
        for tasks in &mut tasks {
            tasks.spawn(std::future::pending());
        }
        let [hub, tasks] = tasks;
        let stop = CancellationToken::new();
        stop.cancel();
        // Kubernetes gives 30 s.
        tokio::time::timeout(Duration::from_secs(30), first_end(hub, tasks, stop)).await.unwrap().unwrap();
    }
}
