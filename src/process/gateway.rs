//! The process that serves the gateway and signs nothing. It holds no key but its own and no ledger, and writes nothing
//! but its Lease and the CSRs for its own certificates.

use std::time::Duration;

use anyhow::Context;
use futures::{FutureExt, TryFutureExt};
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::preflight::{Preflight, Rights, preflight};
use super::probe::{Probe, ProcessMetrics};
use super::registry_age::RegistryAge;
use super::running::{Running, Tasks, until_stopped};
use super::{HubConnection, HubOptions, HubProcess, NOT_ASKED, serving_names};
use addon_signer_hub::gateways::{Follower, FollowerParts, GatewayLease, LeaseKeeper};
use addon_signer_telemetry::pulse::{Pulse, Pulses};

/// Why the gateway does not run before its Lease is written.
const NO_LEASE: &str = "the gateway's Lease was not written yet";

impl HubProcess {
    /// Runs the gateway. After `leaving` it is not ready, and stops a little later; its Lease is released last.
    pub(super) async fn run_gateway(self, identity: String, leaving: CancellationToken) -> anyhow::Result<()> {
        let (addresses, stop) = (self.addresses(), CancellationToken::new());
        let Self { connection, options, clock, gateway, metrics_listener, .. } = self;
        let gateway = gateway.context("a process with the role gateway has no gateway")?;
        let bound = options.registry_age.outdated.context("a gateway needs --registry-refuse-after")?;
        let (metrics, pulses) = (ProcessMetrics::register(options.roles), Pulses::default());
        let HubConnection { client, contacts } = connection;
        let parts = FollowerParts {
            client: client.clone(),
            contacts: contacts.clone(),
            clock: clock.clone(),
            pulses: pulses.clone(),
        };
        let (follower, ends, applied) = Follower::wire(parts);
        let age = RegistryAge::new(contacts.clone(), ends.registry.clone(), options.registry_age, options.roles);
        let mut running =
            Running::new(client.clone(), clock.clone(), ends.audit.clone(), pulses.clone(), age.clone(), stop.clone());
        let serving = running.keep_serving(serving_names(&options), ends.trust.clone());
        let client_certificate = running.keep_client_certificate(ends.trust.clone());
        let waits = watch::Sender::new(Some(NOT_ASKED.to_owned()));
        let probe = Probe {
            metrics: metrics.clone(),
            age,
            pulses: pulses.clone(),
            serving: Some(serving.clone()),
            client_certificate: Some(client_certificate.clone()),
            routes: Some(ends.routes.clone()),
            protected: Some(ends.protected.clone()),
            clock: clock.clone(),
            signer: None,
            waiting: waits.subscribe(),
            leaving: leaving.clone(),
        };
        running.spawn("delay of the shutdown", delay(leaving, options.shutdown_delay, stop.clone()).map(Ok));
        running.spawn("metrics", probe.serve(metrics_listener, stop.clone()).map(Ok));
        let audit = ends.audit.clone();
        running.serve_gateway(gateway, ends, metrics.gateway.clone(), (serving, client_certificate));
        let lease = lease_of(&options, identity, bound);
        let (keeper, registered) = LeaseKeeper::new(client.clone(), lease, clock, applied, contacts);
        let (begun, drained) = (CancellationToken::new(), CancellationToken::new());
        let mut holding = JoinSet::new();
        holding.spawn(hold(keeper, pulses.clone(), begun.clone(), drained.clone()));
        let start = Start { client, options, addresses, waits, begun, registered };
        let mut hub_task = Tasks::new();
        hub_task.spawn(start.run(follower, pulses.start("first questions to the API server"), stop));
        let result = tokio::select! {
            result = running.ended(hub_task) => result,
            Some(lost) = holding.join_next() => {
                audit.write_all();
                return lost.context("the task that keeps the Lease failed")?;
            }
        };
        drained.cancel();
        while let Some(released) = holding.join_next().await {
            if let Err(error) = released.context("the task that keeps the Lease failed").flatten() {
                warn!(error = format!("{error:#}"), "The gateway's Lease was not released");
            }
        }
        result
    }
}

fn lease_of(options: &HubOptions, identity: String, bound: Duration) -> GatewayLease {
    GatewayLease {
        namespace: options.hub.namespace.clone(),
        name: options.replica.clone(),
        pod_uid: options.pod_uid.clone(),
        identity,
        bound,
    }
}

/// Stops a while after `leaving`.
async fn delay(leaving: CancellationToken, delay: Duration, stop: CancellationToken) {
    leaving.cancelled().await;
    tokio::time::sleep(delay).await;
    stop.cancel();
}

/// Keeps the Lease once `begun`: before that the gateway might lack the right. It may wait for hours for an API server,
/// so signs of life are expected only afterwards.
async fn hold(
    keeper: LeaseKeeper,
    pulses: Pulses,
    begun: CancellationToken,
    drained: CancellationToken,
) -> anyhow::Result<()> {
    match drained.run_until_cancelled(begun.cancelled()).await {
        Some(()) => Ok(keeper.run(drained, pulses.start("Lease of the gateway")).await?),
        None => Ok(()),
    }
}

/// What the gateway must know before it starts to read.
struct Start {
    client: Client,
    options: HubOptions,
    addresses: String,
    /// Why the gateway does not run yet.
    waits: watch::Sender<Option<String>>,
    /// Cancelled once the gateway has its rights.
    begun: CancellationToken,
    /// Whether the Lease was written.
    registered: watch::Receiver<bool>,
}

impl Start {
    async fn run(self, follower: Follower, pulse: Pulse, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { client, options, addresses, waits, begun, mut registered } = self;
        let rights = Rights::Gateway { lease: &options.replica };
        let Preflight { account, addon_api } =
            preflight(&client, &options.hub.namespace, rights, &waits, pulse).await?;
        info!(account, roles = %options.roles, %addresses, "Starting the gateway");
        waits.send_replace(Some(NO_LEASE.to_owned()));
        begun.cancel();
        // The task that keeps the Lease reports why it ended.
        if registered.wait_for(|is| *is).await.is_err() {
            std::future::pending::<()>().await;
        }
        waits.send_replace(None);
        until_stopped("gateway's watches", follower.run(options.hub, addon_api).err_into(), stop).await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::pin::pin;

    use hyper::{Request, Response};
    use kube::client::Body;

    use super::*;
    use addon_signer_platform::clock::Clock;
    use addon_signer_platform::contacts::Contacts;
    use addon_signer_telemetry::pulse::HANGS_AFTER;

    #[tokio::test(start_paused = true)]
    async fn gateway_that_waits_for_its_rights_does_not_hang() {
        let service = tower::service_fn(async |_: Request<Body>| pending::<Result<Response<Body>, Infallible>>().await);
        let lease = GatewayLease {
            namespace: "ns".to_owned(),
            name: "gateway-1".to_owned(),
            pod_uid: None,
            identity: "gateway-1_a".to_owned(),
            bound: Duration::from_secs(600),
        };
        let (client, trust) = (Client::new(service, "default"), watch::channel(Default::default()).1);
        let (keeper, _registered) = LeaseKeeper::new(client, lease, Clock::default(), trust, Contacts::default());
        let pulses = Pulses::default();
        // It is kept running, because a task that has ended counts as healthy.
        let mut holding = pin!(hold(keeper, pulses.clone(), CancellationToken::new(), CancellationToken::new()));
        assert!(tokio::time::timeout(2 * HANGS_AFTER, &mut holding).await.is_err());
        assert!(pulses.silent(HANGS_AFTER).is_empty(), "Kubernetes would restart it");
    }
}
