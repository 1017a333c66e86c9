//! Starts what the gateway and each AddOnSigner need: the reconciler of the line, the signer, and the task that reports
//! changes of the line.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::Supervisor;
use super::entry::{Served, State};
use crate::HubSettings;
use crate::authorities::GATEWAY_PLAN;
use crate::authorities::activation::ActivationCheck;
use crate::authorities::asked::Asked;
use crate::authorities::reconciler::{LinePlan, LineReconciler, ReconcilerLine, ReconcilerLinks, Reserve};
use crate::authorities::state::LineState;
use crate::authorities::store::{AuthorityStore, LineNames};
use crate::authorities::supply::SupplyPlan;
use crate::requests::signer::{Signer, SignerKind};
use crate::requests::unconfirmed::Unconfirmed;
use crate::supervisor::task::until_stopped;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::conditions::STARTING;
use addon_signer_core::policy::GatewayCertificate;

impl Supervisor {
    /// Starts the gateway's lines: the serving line, which every hub has, and the line of the client certificate, which
    /// begins when an AddOnRoute needs it.
    pub(super) fn start_gateway_lines(&mut self) {
        let activation = ActivationCheck::Serving {
            trust_publisher: self.trust_publisher.clone(),
            distributed: self.ends.distributed.clone(),
            registry: self.links.registry.clone(),
        };
        let always = watch::Sender::new(true).subscribe();
        self.start_gateway_line(GatewayCertificate::Serving, self.serving.clone(), activation, always);
        let (state, needed) = (watch::Sender::new(LineState::Starting), self.ends.needs_certificate.clone());
        self.start_gateway_line(GatewayCertificate::Client, state, ActivationCheck::Backends, needed);
    }

    fn start_gateway_line(
        &mut self,
        certificate: GatewayCertificate,
        state: watch::Sender<LineState>,
        activation: ActivationCheck,
        mut needed: watch::Receiver<bool>,
    ) {
        let HubSettings { config, gateway: rules, inventory } = self.settings.clone();
        let supply = SupplyPlan::of_gateway(certificate, &rules, config.serving_source);
        let plan = move |has_slot| LinePlan {
            authority: GATEWAY_PLAN,
            supply: supply.clone(),
            asked: Asked::default(),
            remembered: false,
            has_slot,
        };
        let planned = watch::Sender::new(plan(*needed.borrow_and_update()));
        let (reserve, reservations) = mpsc::channel(64);
        let line = state.subscribe();
        self.trust_publisher.set_gateway(certificate, line.clone());
        let task = format!("authorities of {}", certificate.name());
        let pulse = self.links.pulses.start(task.clone());
        let (names, plans) = (LineNames::gateway(certificate), planned.subscribe());
        let reconciler = LineReconciler::new(
            self.reconciler_links(),
            ReconcilerLine { names, plan: plans, activation, state, reservations, pulse },
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
        let signer = self.signer(SignerKind::Gateway { certificate, rules, inventory }, line, reserve);
        self.ends.signing.serve(&certificate.signer_name(), signer);
    }

    fn reconciler_links(&self) -> ReconcilerLinks {
        ReconcilerLinks {
            store: AuthorityStore::new(&self.links.client, &self.settings.config.namespace),
            clock: self.links.clock.clone(),
            audit: self.links.audit.clone(),
            leading: self.links.leading.clone(),
            trust_publisher: self.trust_publisher.clone(),
            metrics: self.links.metrics.clone(),
            objects: self.ends.objects.clone(),
            ledger: self.links.ledger.clone(),
        }
    }

    fn signer(&self, kind: SignerKind, line: watch::Receiver<LineState>, reserve: mpsc::Sender<Reserve>) -> Signer {
        Signer {
            kind,
            shared: self.shared.clone(),
            line,
            reserve,
            serving: self.serving.subscribe(),
            unconfirmed: Unconfirmed::default(),
        }
    }

    pub(super) fn start(&mut self, name: &str, config: Arc<SignerConfig>, plan: LinePlan) {
        let (reserve, reservations) = mpsc::channel(64);
        let served = Served {
            line: watch::channel(LineState::Starting).0,
            plan: watch::channel(plan).0,
            config: watch::channel(config.clone()).0,
            reserve,
            permission: Err((STARTING, "The hub has not checked yet whether it may sign.".to_owned())),
            asked: None,
            keeping: CancellationToken::new(),
            paced: None,
        };
        let line = ReconcilerLine {
            names: LineNames::client(name, config.rules.signer_name.as_str()),
            plan: served.plan.subscribe(),
            activation: ActivationCheck::of_gateways(self.links.in_effect.clone()),
            state: served.line.clone(),
            reservations,
            pulse: self.links.pulses.start(format!("authorities of {name}")),
        };
        let reconciler = LineReconciler::new(self.reconciler_links(), line);
        self.trust_publisher.set_signer(name, config, served.line.subscribe());
        self.spawn_until(served.keeping.clone(), format!("authorities of {name}"), reconciler.run());
        self.spawn_until(served.keeping.clone(), format!("status of {name}"), self.announce(name, &served));
        self.start_signing(name, &served);
        self.entries.entry(name.to_owned()).or_default().state = State::Served(served);
    }

    fn start_signing(&mut self, name: &str, served: &Served) {
        let kind = SignerKind::Client { name: name.to_owned(), config: served.config.subscribe() };
        let line = served.line.subscribe();
        let reserve = served.reserve.clone();
        let signer_name = served.config.borrow().rules.signer_name.clone();
        let signer = self.signer(kind, line, reserve);
        info!(signer = name, signer_name = signer_name.as_str(), "The hub serves this AddOnSigner");
        self.ends.signing.serve(&signer_name, signer);
    }

    /// Tells the supervisor about every change of the line, so that the status follows it.
    fn announce(&self, name: &str, served: &Served) -> impl Future<Output = ()> + Send + 'static {
        let mut line = served.line.subscribe();
        let changed = self.changed.0.clone();
        let name = name.to_owned();
        async move { while line.changed().await.is_ok() && changed.send(name.clone()).await.is_ok() {} }
    }

    /// Runs a task until `stop` is cancelled. A task that ends by itself ends the hub.
    fn spawn_until(&mut self, stop: CancellationToken, name: String, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(until_stopped(stop, name, task));
    }
}
