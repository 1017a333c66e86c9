//! Models a hub with one lineage, two gateways that learn late or two agents that report nothing, an issuer that
//! answers late, the hub's clock, and certificates. [`search`] explores what may happen to them; [`broken`] shows that
//! it finds faults.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ring::rand::SystemRandom;

use super::*;
use crate::keys::private::PrivateKey;
use crate::keys::public::KeyKind;

mod broken;
mod fleet;
mod parts;
mod search;
mod world;

use fleet::{FleetAction, Signer};
use world::World;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const LEAF: Duration = DAY;
const LIFE: Duration = Duration::from_secs(100 * 86_400);
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 86_400);
/// A jump that brings the hub's clock to the last call.
const JUMP: Duration = Duration::from_secs(100 * 86_400 - 43_200);
const GATEWAYS: usize = 2;

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// An administrator asks for a rotation.
    Rotate,
    /// An administrator rolls back the authority that waits, or else the one that signs.
    RollBack,
    /// An administrator taints this authority.
    Taint(Which),
    /// An administrator revokes this authority.
    Revoke(Which),
    /// Another program writes the AddOnSigner without the requested actions.
    Forget,
    /// The hub takes the step that is due; `Crash` says where it ends before it is done.
    Step(Crash),
    /// The hub issues a certificate with the lineage that it holds.
    Issue,
    /// This gateway receives what is published.
    Hear(usize),
    /// Something happens to agents.
    Fleet(FleetAction),
    /// An hour passes.
    Hour,
    /// More than the life of a certificate passes.
    Days,
    /// A part of the life of an authority passes.
    Month,
    /// The issuer answers with a new authority, which lives half as long as one that the hub makes.
    Offer,
    /// The issuer has the first authority again that has left the lineage.
    OfferAgain,
    /// The hub's clock jumps ahead by most of an authority's life, then as far behind, and then it is right again.
    Jump,
    /// An administrator keeps a copy of the Secret.
    BackUp,
    /// An administrator replaces the Secret with the copy.
    Restore,
}

/// An authority that an administrator names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// The one that signs.
    Signs,
    /// The one that waits, or else one that is Old.
    Other,
}

/// Where a hub ends during a step. The next one reads what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    No,
    BeforeTheWrite,
    /// The API server's response is lost, or the hub ends before the step has an effect.
    BeforeTheEffect,
}

const ROTATIONS: [Action; 11] = [
    Action::Rotate,
    Action::RollBack,
    Action::Step(Crash::No),
    Action::Step(Crash::BeforeTheWrite),
    Action::Step(Crash::BeforeTheEffect),
    Action::Issue,
    Action::Hear(0),
    Action::Hear(1),
    Action::Hour,
    Action::Days,
    Action::Month,
];
/// Rotations of the gateway's own authority, which agents trust.
const SERVING: [Action; 7] = [
    Action::Rotate,
    Action::Step(Crash::No),
    Action::Issue,
    Action::Hour,
    Action::Fleet(FleetAction::Observe),
    Action::Fleet(FleetAction::Apply),
    Action::Fleet(FleetAction::Enrol),
];
const ADDONS: [Action; 4] = [
    Action::Step(Crash::BeforeTheEffect),
    Action::Days,
    Action::Fleet(FleetAction::Install),
    Action::Fleet(FleetAction::Except),
];
const SIGNERS: [Action; 3] = [
    Action::Fleet(FleetAction::Signer(Signer::Served)),
    Action::Fleet(FleetAction::Signer(Signer::Unserved)),
    Action::Fleet(FleetAction::Signer(Signer::Deleted)),
];
const TAINTS: [Action; 2] = [Action::Taint(Which::Signs), Action::Taint(Which::Other)];
const REVOCATIONS: [Action; 3] = [Action::Revoke(Which::Signs), Action::Revoke(Which::Other), Action::Forget];
const ISSUER: [Action; 2] = [Action::Offer, Action::OfferAgain];
/// Not together with revocations: a restored Secret has revoked authorities again, until the hub reads the revocations.
const MISHAPS: [Action; 3] = [Action::Jump, Action::BackUp, Action::Restore];

/// Which actions are explored together, and how far.
struct Scope {
    actions: Vec<Action>,
    /// Every order of this many actions is explored.
    depth: usize,
    /// This many random walks.
    walks: usize,
}

impl Scope {
    fn new(actions: &[&[Action]], depth: usize, walks: usize) -> Self {
        Self { actions: actions.concat(), depth, walks }
    }

    fn rotations() -> Self {
        Self::new(&[&ROTATIONS], 8, 25_000)
    }

    fn agents() -> Self {
        Self::new(&[&SERVING, &ADDONS], 7, 25_000)
    }

    fn signers() -> Self {
        Self::new(&[&SERVING, &SIGNERS], 8, 25_000)
    }

    fn distrust() -> Self {
        Self::new(&[&ROTATIONS, &TAINTS, &REVOCATIONS], 6, 25_000)
    }

    /// The hub makes no authority itself.
    fn issuer() -> Self {
        Self::new(&[&ROTATIONS, &TAINTS, &REVOCATIONS, &ISSUER], 6, 25_000)
    }

    fn mishaps() -> Self {
        Self::new(&[&ROTATIONS, &TAINTS, &MISHAPS], 6, 25_000)
    }

    fn first(&self, machine: Machine) -> World {
        let has = |action| self.actions.contains(&action);
        World::new(machine, has(Action::Offer), has(Action::Fleet(FleetAction::Observe)))
    }
}

/// A set of authorities, or of what is trusted.
type Anchors = BTreeSet<AuthorityId>;

/// The machine: what decides on a step, what takes it, and what guards it.
#[derive(Clone, Copy)]
struct Machine {
    /// The next step, if there is an authority for it or not.
    decide: fn(&Lineage, &Evidence<'_>, bool) -> Step,
    take: fn(Lineage, &Step, Option<Authority>, Option<&str>, Timestamp) -> Lineage,
    reserve: fn(&Lineage, Timestamp) -> Option<Lineage>,
    /// Whether the lineage refuses an authority that the issuer has.
    refuses: fn(&Lineage, &AuthorityId) -> bool,
    /// Whether the hub's clock may be right by the API server's.
    confirms: fn(Timestamp, Timestamp) -> bool,
    /// Whether the agents are known to have the anchor of Next.
    trusted: Trusted,
    /// Where the lineage is older than the ledger, which knows these certificates to be in use by the two clocks.
    compare: fn(&World, Timestamp, Timestamp) -> Option<Older>,
}

type Trusted = fn(Agents<'_>, &Lineage, Timestamp) -> Result<(), WaitsFor>;

const MACHINE: Machine = Machine {
    decide,
    take,
    reserve: Lineage::reserve,
    refuses: |lineage, id| lineage.gone().contains(id),
    confirms: |hub, server| hub <= server,
    trusted: |agents, lineage, now| agents.have_next(lineage, now),
    compare: |world, hub, server| world.older(hub.min(server)),
};

fn decide(lineage: &Lineage, evidence: &Evidence<'_>, has_authority: bool) -> Step {
    if has_authority {
        lineage.next_step(evidence)
    } else {
        lineage.next_step_without_authority(evidence, "its issuer")
    }
}

fn take(lineage: Lineage, step: &Step, new: Option<Authority>, requested: Option<&str>, now: Timestamp) -> Lineage {
    match (step, new) {
        (Step::Begin, Some(new)) => lineage.begin(new, now),
        (Step::Prepare, Some(new)) => lineage.prepare(new, requested, now),
        (Step::Begin | Step::Prepare, None) => panic!("there is an authority for {step:?}"),
        (Step::Activate, _) => lineage.activate(now),
        (Step::Force(_), _) => lineage.force(now),
        (Step::Finish(id), _) => lineage.finish(id),
        (Step::RollBack { id, signs }, _) => lineage.roll_back(id, signs, now),
        (Step::Taint { id }, new) => lineage.taint(id, new, now),
        (Step::AwaitRevocation { id }, _) => lineage.await_revocation(id, "ann"),
        (Step::GiveUp(_), _) => lineage.give_up(now),
        (Step::Revoke { id }, new) => lineage.revoke(id, new, None, now),
        (Step::Rest | Step::Wait(_), _) => lineage,
    }
}

/// Authorities by their number, the time at which they were made, and their life: making one anew each time would take
/// too long.
#[derive(Clone, Default)]
struct Made(Rc<RefCell<BTreeMap<MadeKey, Authority>>>);

type MadeKey = (usize, i64, Duration);

impl Made {
    fn get(&self, number: usize, now: Timestamp, life: Duration) -> Authority {
        let make = || {
            let rng = SystemRandom::new();
            let (key, _) = PrivateKey::generate(KeyKind::Ed25519, &rng).unwrap();
            Authority::self_signed("model", &key, now, life, &rng).unwrap()
        };
        self.0.borrow_mut().entry((number, now.unix(), life)).or_insert_with(make).clone()
    }
}

/// An invariant that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    /// A gateway or an agent does not trust the key that has just signed (I5).
    Untrusted,
    /// The anchor of a certificate in use was removed (I6).
    Dropped,
    /// A certificate ends later than the stored end of its authority's certificates, or than the authority (I4, I6,
    /// I7).
    Unreserved,
    /// There are more authorities than a lineage may have.
    TooMany,
    /// An authority that has left the lineage is in it again, or a tainted one signs again.
    Back,
    /// A tainted authority waits to sign.
    Kept,
    /// Nothing is done about an authority that is to be revoked, although another one can sign.
    Forgotten,
    /// A Next that must be replaced soon still waits, and no certificate may outlast it.
    Capped,
    /// The hub reports that a Secret is older although it was not restored.
    Accused,
}
