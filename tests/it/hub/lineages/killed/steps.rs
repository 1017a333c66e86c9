//! The steps of a rotation at which a signer is killed: what each persists, how a lineage comes there, and what the
//! lineage was in the end, whether somebody was killed or not.

use k8s_openapi::api::core::v1::Secret;
use test_kit::gate::Written;

use super::super::kit::{members, revoke, roll_back, taint};
use super::history::View;
use super::world::{KilledWorld, Source};

/// A step of a lineage, and the state of the authority that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Prepare,
    Activate,
    Finish,
    RollBackNext,
    RollBackActive,
    TaintNext,
    TaintActive,
    RevokeNext,
    RevokeActive,
    RevokeOld,
}

/// What a step persists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Object {
    Secret,
    /// The ConfigMap with the published anchors.
    Anchors,
    /// The status of the AddOnSigner, which gateways read.
    Status,
}

impl Object {
    /// The authorities that a write brings to this object of the signer telemetry; `None` for any other write.
    pub(super) fn read(self, written: &Written) -> Option<View> {
        let Written { path, body } = written;
        match self {
            Self::Secret if path.ends_with("/secrets/telemetry-client-authorities") => {
                let secret: Secret = serde_json::from_value(body.clone()).unwrap();
                Some(View::of(&members(&secret.data?)))
            }
            Self::Anchors if path.ends_with("/configmaps/telemetry-client-ca") => {
                Some(View::of_anchors(body["data"]["ca.crt"].as_str()?))
            }
            Self::Status if path.ends_with("/addonsigners/telemetry/status") => {
                let status = body.as_array()?.iter().find(|operation| operation["path"] == "/status")?;
                Some(View::of(status["value"]["authorities"].as_array()?))
            }
            _ => None,
        }
    }
}

impl Step {
    pub(super) const ALL: [Self; 10] = [
        Self::Prepare,
        Self::Activate,
        Self::Finish,
        Self::RollBackNext,
        Self::RollBackActive,
        Self::TaintNext,
        Self::TaintActive,
        Self::RevokeNext,
        Self::RevokeActive,
        Self::RevokeOld,
    ];

    /// What the step writes, in this order.
    pub(super) fn objects(self) -> &'static [Object] {
        match self {
            Self::Activate | Self::RollBackActive | Self::TaintActive => &[Object::Secret, Object::Status],
            _ => &[Object::Secret, Object::Anchors, Object::Status],
        }
    }

    /// Whether no agent may renew meanwhile: an authority is to go that has signed nothing, or agents are to be shut
    /// out.
    pub(super) fn pauses(self) -> bool {
        matches!(self, Self::Finish | Self::RevokeActive)
    }

    /// Brings a lineage of one authority, a, to the state in which [`Self::ask`] leads to the step.
    pub(super) async fn arrange(self, world: &mut KilledWorld) {
        match self {
            Self::Prepare | Self::Activate | Self::TaintActive => {}
            Self::RollBackNext | Self::TaintNext | Self::RevokeNext => {
                world.hold().await;
                world.rotate().await;
                world.lineage.wait(&["Next", "Active"]).await;
            }
            Self::Finish => {
                world.rotate().await;
                world.lineage.wait(&["Active", "Old"]).await;
            }
            Self::RollBackActive | Self::RevokeOld => {
                world.rotate().await;
                let ids = world.lineage.wait(&["Active", "Old"]).await;
                world.agents.wait_hold(&world.lineage, &ids[0]).await;
            }
            Self::RevokeActive => {
                world.agents.give_up();
                if world.source() == Source::Company {
                    let active = world.lineage.wait(&["Active"]).await.remove(0);
                    revoke(&world.admin, &active).await;
                    world.wait_view("it to be tainted", |view| view.is_tainted(&active)).await;
                }
            }
        }
        world.settled().await;
    }

    /// Asks for the step, or for what leads to it.
    pub(super) async fn ask(self, world: &mut KilledWorld, before: &View) {
        let id_of = |state| before.id_of(state).unwrap();
        match self {
            Self::Prepare | Self::Activate | Self::Finish => world.rotate().await,
            Self::RollBackNext => roll_back(&world.admin, id_of("Next")).await,
            Self::RollBackActive => roll_back(&world.admin, id_of("Active")).await,
            Self::TaintNext => taint(&world.admin, id_of("Next")).await,
            Self::TaintActive => taint(&world.admin, id_of("Active")).await,
            Self::RevokeNext => revoke(&world.admin, id_of("Next")).await,
            Self::RevokeOld => revoke(&world.admin, id_of("Old")).await,
            Self::RevokeActive if world.source() == Source::Company => world.rotate().await,
            Self::RevokeActive => revoke(&world.admin, id_of("Active")).await,
        }
    }

    /// Whether an object that was `before` is now as the step makes it.
    pub(super) fn is_taken(self, before: &View, now: &View) -> bool {
        let has_gone = |state| !now.ids().contains(before.id_of(state).unwrap());
        match self {
            Self::Prepare => !now.ids().is_subset(&before.ids()),
            Self::Activate | Self::RollBackActive => now.id_of("Active") != before.id_of("Active"),
            Self::RollBackNext | Self::TaintNext | Self::RevokeNext => has_gone("Next"),
            Self::Finish | Self::RevokeActive => has_gone("Active"),
            Self::TaintActive => now.is_tainted(before.id_of("Active").unwrap()),
            Self::RevokeOld => has_gone("Old"),
        }
    }

    /// Does what the lineage needs after the step.
    pub(super) async fn complete(self, world: &mut KilledWorld) {
        if (self, world.source()) == (Self::TaintActive, Source::Company) {
            world.wait_view("it to be tainted", |view| view.is_tainted(view.id_of("Active").unwrap())).await;
            world.rotate().await;
        }
    }

    /// What the lineage was, from one authority at rest until all has been done that was asked for.
    pub(super) fn history(self, source: Source) -> &'static [&'static str] {
        match (self, source) {
            (Self::Prepare | Self::Activate, _) => &["Active a", "Next b; Active a", "Active b; Old a"],
            (Self::Finish, _) => &[
                "Active a",
                "Next b; Active a",
                "Active b; Old a",
                "Next c; Active b; Old a",
                "Active c; Old a; Old b",
                "Active c; Old a",
            ],
            (Self::RollBackNext | Self::RevokeNext, _) | (Self::TaintNext, Source::Company) => {
                &["Active a", "Next b; Active a", "Active a"]
            }
            (Self::TaintNext, Source::Made) => &["Active a", "Next b; Active a", "Next c; Active a"],
            (Self::RollBackActive, _) => &["Active a", "Next b; Active a", "Active b; Old a", "Active a; Old b"],
            (Self::TaintActive, _) => {
                &["Active a", "Active a, tainted", "Next b; Active a, tainted", "Active b; Old a, tainted"]
            }
            (Self::RevokeActive, Source::Made) => &["Active a", "Active b"],
            (Self::RevokeActive, Source::Company) => &["Active a", "Active a, tainted", "Active b"],
            (Self::RevokeOld, _) => &["Active a", "Next b; Active a", "Active b; Old a", "Active b"],
        }
    }
}
