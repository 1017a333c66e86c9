//! Starts what the gateway and each AddOnSigner need: the keeper of the line, the signer, and the task that reports
//! changes of the line.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{NOT_ASKED, Served, Supervisor};
use crate::authorities::SERVING_PLAN;
use crate::authorities::gate::Gate;
use crate::authorities::keeper::{Keeper, KeeperLine, KeeperLinks, LinePlan, Reserve};
use crate::authorities::state::LineState;
use crate::authorities::store::LineNames;
use crate::requests::signer::{Kind, Signer};
use crate::requests::unconfirmed::Unconfirmed;
use crate::supervisor::task::until_stopped;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::identity::SignerName;

impl Supervisor {
    /// Starts the keeper and the signer of the gateway's serving line, which every hub has.
    pub(super) fn start_serving(&mut self) {
        let plan = LinePlan { authority: SERVING_PLAN, requested: None, remembered: false, has_place: true };
        let (reserve, reservations) = mpsc::channel(64);
        let (plan_sender, plan) = watch::channel(plan);
        self.board.set_serving(self.serving.subscribe());
        let gate = Gate::Serving {
            board: self.board.clone(),
            distributed: self.distributed.clone(),
            registry: self.links.registry.clone(),
        };
        let pulse = self.links.pulses.start("authorities of the gateway");
        let (names, state) = (LineNames::serving(), self.serving.clone());
        let keeper = Keeper::new(self.keeper_links(), KeeperLine { names, plan, gate, state, reservations, pulse });
        self.tasks.spawn(async move {
            keeper.run().await;
            drop(plan_sender); // kept until now, because a keeper ends when its plan has no sender
            ("authorities of the gateway".to_owned(), false)
        });
        let kind = Kind::Serving(self.settings.serving.clone());
        let signer = self.signer(kind, self.serving.subscribe(), reserve);
        self.signing.serve(&SignerName::gateway_serving(), signer);
    }

    fn keeper_links(&self) -> KeeperLinks {
        KeeperLinks {
            store: self.store.clone(),
            clock: self.links.clock.clone(),
            audit: self.links.audit.clone(),
            leading: self.links.leading.clone(),
            board: self.board.clone(),
            metrics: self.links.metrics.clone(),
            objects: self.versions.clone(),
            ledger: self.links.ledger.clone(),
        }
    }

    fn signer(&self, kind: Kind, line: watch::Receiver<LineState>, reserve: mpsc::Sender<Reserve>) -> Signer {
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
            permission: Err((NOT_ASKED, "The hub has not asked yet whether it may sign.".to_owned())),
            asked: None,
            keeping: CancellationToken::new(),
        };
        let line = KeeperLine {
            names: LineNames::client(name, config.rules.signer_name.as_str()),
            plan: served.plan.subscribe(),
            gate: Gate::of_gateway(name, self.links.applied.clone()),
            state: served.line.clone(),
            reservations,
            pulse: self.links.pulses.start(format!("authorities of {name}")),
        };
        let keeper = Keeper::new(self.keeper_links(), line);
        self.board.set_signer(name, config, served.line.subscribe());
        self.spawn_until(served.keeping.clone(), format!("authorities of {name}"), keeper.run());
        self.spawn_until(served.keeping.clone(), format!("status of {name}"), self.announce(name, &served));
        self.served.insert(name.to_owned(), served);
        self.start_signing(name);
    }

    fn start_signing(&mut self, name: &str) {
        let Some(served) = self.served.get(name) else { return };
        let kind = Kind::Client { name: name.to_owned(), config: served.config.subscribe() };
        let line = served.line.subscribe();
        let reserve = served.reserve.clone();
        let signer_name = served.config.borrow().rules.signer_name.clone();
        let signer = self.signer(kind, line, reserve);
        info!(signer = name, signer_name = signer_name.as_str(), "The hub serves this AddOnSigner");
        self.signing.serve(&signer_name, signer);
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
