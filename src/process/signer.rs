//! The process that signs, with or without the gateway.

use futures::{FutureExt, TryFutureExt};
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::preflight::{Preflight, Rights, preflight};
use super::probe::{Probe, ProcessMetrics, SignerProbe};
use super::registry_age::RegistryAge;
use super::running::{Running, Tasks, until_stopped};
use super::{CERTIFICATE_LIFETIME, HubOptions, HubProcess, NOT_ASKED, serving_names};
use addon_signer_core::policy::GatewayRules;
use addon_signer_gateway::certificates::ServingNames;
use addon_signer_hub::gateways::keep_trust;
use addon_signer_hub::lease::{Holder, Leading, LeaseSettings};
use addon_signer_hub::{Hub, HubEnds, HubParts, HubSettings};
use addon_signer_ledger::{FileLock, LedgerError, hold_alone};
use addon_signer_telemetry::pulse::{Pulse, Pulses};

impl HubProcess {
    /// Runs the hub and, in that role, the gateway. The Lease is released at once after `stop`, so that the next hub
    /// can lead while this gateway drains, but last of all if a task ended.
    pub(super) async fn run_signer(self, identity: String, stop: CancellationToken) -> anyhow::Result<()> {
        let _alone = self.hold_ledger_alone(&identity)?;
        let lease = LeaseSettings {
            namespace: self.options.hub.namespace.clone(),
            identity: identity.clone(),
            duration: self.options.lease_duration,
            // After a deletion the Lease's epoch restarts at 1, but the ledger knows a later one.
            ledger: self.options.ledger.clone(),
        };
        let (holder, leading) = Holder::new(self.connection.client.clone(), self.clock.clone(), lease);
        let (give_back, begun) = (stop.child_token(), CancellationToken::new());
        let mut holding = JoinSet::new();
        holding.spawn(hold(holder, begun.clone(), give_back.clone()));
        let start = Start {
            client: self.connection.client.clone(),
            options: self.options.clone(),
            addresses: self.addresses(),
            waits: watch::Sender::new(Some(NOT_ASKED.to_owned())),
            begun,
            replica: identity,
        };
        let result = self.run_signer_tasks(leading, start, stop).await;
        give_back.cancel();
        // If it ended early, the Lease was lost, and the hub has reported that.
        while holding.join_next().await.is_some() {}
        result
    }

    /// Locks the ledger's file at the start: a signer that waits is ready, so it would otherwise go unnoticed that it
    /// cannot take over while another signer has the file.
    fn hold_ledger_alone(&self, identity: &str) -> anyhow::Result<Option<FileLock>> {
        if self.options.roles.has_gateway() {
            return Ok(None);
        }
        match hold_alone(&self.options.ledger, identity) {
            Err(error @ LedgerError::Held { .. }) => Err(error.into()),
            Err(_) => Ok(None), // the ledger's writer reports that, and retries
            Ok(lock) => Ok(lock),
        }
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
            contacts: self.connection.contacts.clone(),
            has_gateway: self.gateway.is_some(),
        }
    }

    async fn run_signer_tasks(self, leading: Leading, start: Start, stop: CancellationToken) -> anyhow::Result<()> {
        let (metrics, pulses) = (ProcessMetrics::register(self.options.roles), Pulses::default());
        let (hub, HubEnds { gateway: ends, ledger }) = Hub::wire(self.hub_parts(&leading, &metrics, &start, &pulses));
        let Self { connection, options, clock, gateway, inventory, metrics_listener, .. } = self;
        let client = connection.client;
        let age = RegistryAge::new(connection.contacts, ends.registry.clone(), options.registry_age, options.roles);
        let mut running =
            Running::new(client.clone(), clock.clone(), ends.audit.clone(), pulses.clone(), age.clone(), stop.clone());
        let mut probe = Probe {
            metrics: metrics.clone(),
            age,
            pulses: pulses.clone(),
            serving: None,
            client_certificate: None,
            routes: gateway.as_ref().map(|_| ends.routes.clone()),
            protected: gateway.as_ref().map(|_| ends.protected.clone()),
            clock,
            signer: Some(SignerProbe { leading, ledger: ledger.health(), location: options.ledger.clone() }),
            waiting: start.waits.subscribe(),
            leaving: stop.clone(),
        };
        let names = serving_names(&options);
        if let Some(gateway) = gateway {
            let serving = running.keep_serving(names, ends.trust.clone());
            let client_certificate = running.keep_client_certificate(ends.trust.clone());
            (probe.serving, probe.client_certificate) = (Some(serving.clone()), Some(client_certificate.clone()));
            if let Some(inventory) = inventory {
                running.serve_inventory(inventory, options.ledger, ends.trust.clone(), serving.clone());
            }
            running.serve_gateway(gateway, ends, metrics.gateway.clone(), (serving, client_certificate));
        } else if let Some(inventory) = inventory {
            // A signer that waits for the Lease serves its inventory too, so it reads the anchors as gateways do.
            let (reads, trust) = watch::channel(Default::default());
            let reader = keep_trust(client, options.hub.namespace.clone(), reads);
            running.spawn("trust of the inventory", reader.map(Ok));
            let serving = running.keep_serving(names, trust.clone());
            probe.serving = Some(serving.clone());
            running.serve_inventory(inventory, options.ledger, trust, serving);
        }
        running.spawn("metrics", probe.serve(metrics_listener, stop.clone()).map(Ok));
        let mut hub_task = Tasks::new();
        hub_task.spawn(start.run(hub, pulses.start("first questions to the API server"), stop));
        running.ended(hub_task).await
    }
}

/// Holds the Lease once `begun`: before that the hub might lack rights that a leader needs.
async fn hold(holder: Holder, begun: CancellationToken, give_back: CancellationToken) {
    if give_back.run_until_cancelled(begun.cancelled()).await.is_some() {
        holder.run(give_back).await;
    }
}

/// What the hub must know before it runs.
struct Start {
    client: Client,
    options: HubOptions,
    addresses: String,
    /// The name of this start of the process in Lease and ledger.
    replica: String,
    /// Why the hub does not run yet.
    waits: watch::Sender<Option<String>>,
    /// Cancelled once the hub may run.
    begun: CancellationToken,
}

impl Start {
    async fn run(self, hub: Hub, pulse: Pulse, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { client, options, addresses, waits, begun, .. } = self;
        let Preflight { account, addon_api } =
            preflight(&client, &options.hub.namespace, Rights::Signer, &waits, pulse).await?;
        info!(account, roles = %options.roles, %addresses, "Starting the hub");
        begun.cancel();
        let settings = settings(&options, account);
        until_stopped("hub", hub.run(settings, addon_api).err_into(), stop).await
    }
}

fn settings(options: &HubOptions, account: String) -> HubSettings {
    let rules = |account: String, names: ServingNames| GatewayRules {
        account,
        dns_names: names.dns,
        ip_addresses: names.ips,
        duration: CERTIFICATE_LIFETIME,
    };
    let names = serving_names(options);
    let (gateway, inventory) = if options.roles.has_gateway() {
        (rules(account, names), None)
    } else {
        let of_gateways = ServingNames::of(&options.hub.routes.names);
        let account_of_gateways = format!("system:serviceaccount:{}:addon-signer-gateway", options.hub.namespace);
        (rules(account_of_gateways, of_gateways), options.inventory.is_some().then(|| rules(account, names)))
    };
    HubSettings { config: options.hub.clone(), gateway, inventory }
}
