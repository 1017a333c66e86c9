//! Starts what the gateway and each AddOnSigner need: the reconciler of the lineage, the signer, and the task that
//! reports changes of the lineage.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::Supervisor;
use super::entry::{Served, SignerState};
use crate::HubSettings;
use crate::authorities::GATEWAY_PLAN;
use crate::authorities::activation::ActivationCheck;
use crate::authorities::asked::RequestedSteps;
use crate::authorities::reconciler::{LineagePlan, LineageReconciler, ReconcilerLineage, ReconcilerLinks, Reserve};
use crate::authorities::state::LineageState;
use crate::authorities::store::{AuthorityStore, LineageNames};
use crate::authorities::supply::SupplyPlan;
use crate::csrs::signer::{Signer, SignerKind};
use crate::csrs::unconfirmed::Unconfirmed;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::conditions::STARTING;
use addon_signer_core::policy::GatewayCertificate;

impl Supervisor {
    /// Starts the gateway's lineages: the serving lineage, which every hub has, and the lineage of the client
    /// certificate, which starts when an AddOnRoute needs it.
    pub(super) fn start_gateway_lineages(&mut self) {
        let activation = ActivationCheck::Serving {
            trust_publisher: self.trust_publisher.clone(),
            distributed: self.ends.distributed.clone(),
            registry: self.links.registry.clone(),
        };
        let always = watch::Sender::new(true).subscribe();
        self.start_gateway_lineage(GatewayCertificate::Serving, self.serving.clone(), activation, always);
        let (state, needed) = (watch::Sender::new(LineageState::Starting), self.ends.needs_certificate.clone());
        self.start_gateway_lineage(GatewayCertificate::Client, state, ActivationCheck::Backends, needed);
    }

    fn start_gateway_lineage(
        &mut self,
        certificate: GatewayCertificate,
        state: watch::Sender<LineageState>,
        activation: ActivationCheck,
        mut needed: watch::Receiver<bool>,
    ) {
        let HubSettings { config, gateway: rules, inventory } = self.settings.clone();
        let supply = SupplyPlan::of_gateway(certificate, &rules, config.serving_source);
        let plan = move |may_create| LineagePlan {
            authority: GATEWAY_PLAN,
            supply: supply.clone(),
            asked: RequestedSteps::default(),
            remembered: false,
            may_create,
        };
        let planned = watch::Sender::new(plan(*needed.borrow_and_update()));
        let (reserve, reservations) = mpsc::channel(64);
        let lineage = state.subscribe();
        self.trust_publisher.set_gateway(certificate, lineage.clone());
        let task = format!("authorities of {}", certificate.name());
        let pulse = self.links.pulses.start(task.clone());
        let (names, plans) = (LineageNames::gateway(certificate), planned.subscribe());
        let reconciler = LineageReconciler::new(
            self.reconciler_links(),
            ReconcilerLineage { names, plan: plans, activation, state, reservations, pulse },
        );
        let planning = async move {
            while needed.changed().await.is_ok() {
                planned.send_replace(plan(*needed.borrow_and_update()));
            }
            std::future::pending::<()>().await; // a reconciler ends when its plan has no sender
        };
        self.tasks.spawn(async move {
            tokio::select! { () = reconciler.run() => {}, () = planning => {} }
            (task, false)
        });
        let inventory = inventory.filter(|_| certificate == GatewayCertificate::Serving);
        let signer = self.signer(SignerKind::Gateway { certificate, rules, inventory }, lineage, reserve);
        self.ends.signing.serve(&certificate.signer_name(), signer);
    }

    fn reconciler_links(&self) -> ReconcilerLinks {
        ReconcilerLinks {
            hub: self.links.clone(),
            store: AuthorityStore::new(&self.links.client, &self.settings.config.namespace),
            trust_publisher: self.trust_publisher.clone(),
            objects: self.ends.objects.clone(),
        }
    }

    fn signer(
        &self,
        kind: SignerKind,
        lineage: watch::Receiver<LineageState>,
        reserve: mpsc::Sender<Reserve>,
    ) -> Signer {
        Signer {
            kind,
            shared: self.shared.clone(),
            lineage,
            reserve,
            serving: self.serving.subscribe(),
            unconfirmed: Unconfirmed::default(),
        }
    }

    pub(super) fn start(&mut self, name: &str, config: Arc<SignerConfig>, plan: LineagePlan) {
        let (reserve, reservations) = mpsc::channel(64);
        let served = Served {
            lineage: watch::channel(LineageState::Starting).0,
            plan: watch::channel(plan).0,
            config: watch::channel(config.clone()).0,
            reserve,
            permission: Err((STARTING, "The hub has not checked yet whether it may sign.".to_owned())),
            asked: None,
            keeping: CancellationToken::new(),
            paced: None,
        };
        let lineage = ReconcilerLineage {
            names: LineageNames::client(name, config.rules.signer_name.as_str()),
            plan: served.plan.subscribe(),
            activation: ActivationCheck::of_gateways(self.links.in_effect.clone()),
            state: served.lineage.clone(),
            reservations,
            pulse: self.links.pulses.start(format!("authorities of {name}")),
        };
        let reconciler = LineageReconciler::new(self.reconciler_links(), lineage);
        self.trust_publisher.set_signer(name, config, served.lineage.subscribe());
        self.spawn_until(served.keeping.clone(), format!("authorities of {name}"), reconciler.run());
        self.spawn_until(served.keeping.clone(), format!("status of {name}"), self.announce(name, &served));
        self.start_signing(name, &served);
        self.entries.entry(name.to_owned()).or_default().state = SignerState::Served(served);
    }

    fn start_signing(&mut self, name: &str, served: &Served) {
        let kind = SignerKind::Client { name: name.to_owned(), config: served.config.subscribe() };
        let lineage = served.lineage.subscribe();
        let reserve = served.reserve.clone();
        let signer_name = served.config.borrow().rules.signer_name.clone();
        let signer = self.signer(kind, lineage, reserve);
        info!(signer = name, signer_name = signer_name.as_str(), "The hub serves this AddOnSigner");
        self.ends.signing.serve(&signer_name, signer);
    }

    /// Reports every change of the lineage to the supervisor, so that the status follows it.
    fn announce(&self, name: &str, served: &Served) -> impl Future<Output = ()> + Send + 'static {
        let mut lineage = served.lineage.subscribe();
        let changed = self.changed.0.clone();
        let name = name.to_owned();
        async move { while lineage.changed().await.is_ok() && changed.send(name.clone()).await.is_ok() {} }
    }

    /// Runs a task until `stop` is cancelled. A task that ends by itself ends the hub.
    fn spawn_until(&mut self, stop: CancellationToken, name: String, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(until_stopped(stop, name, task));
    }
}

/// Runs a task until `stop` is cancelled; returns its name and whether `stop` was cancelled. A task may also end by
/// itself then, because its channels close together with the AddOnSigner; that counts as stopped.
async fn until_stopped(stop: CancellationToken, name: String, task: impl Future<Output = ()>) -> (String, bool) {
    // Whether the task or the cancellation ended first does not matter: only `stop` counts.
    let _ = stop.run_until_cancelled(task).await; // whether it ended itself or was cancelled is the same here
    (name, stop.is_cancelled())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_while_it_is_told_to_stop_was_stopped() {
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(until_stopped(stop, "told".to_owned(), std::future::ready(())).await.1);
        assert!(!until_stopped(CancellationToken::new(), "untold".to_owned(), std::future::ready(())).await.1);
    }
}
