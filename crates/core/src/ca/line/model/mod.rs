//! Models a hub with one line, two gateways that learn late, and the agents' certificates. [`search`] explores what may
//! happen to them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ring::rand::SystemRandom;

use super::*;
use crate::keys::private::PrivateKey;
use crate::keys::public::KeyKind;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const LEAF: Duration = DAY;
const LIFE: Duration = Duration::from_secs(100 * 86_400);
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 86_400);
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
    /// The hub takes the step that is due; `Crash` says where it ends before it is done.
    Step(Crash),
    /// The hub issues a certificate with the line that it holds.
    Issue,
    /// This gateway hears what is published.
    Hear(usize),
    /// An hour passes.
    Hour,
    /// More than the life of a certificate passes.
    Days,
    /// A part of the life of an authority passes.
    Month,
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
    /// The API server's answer is lost, or the hub ends before the step has an effect.
    BeforeTheEffect,
}

/// The first ones make a rotation.
const ROTATIONS: usize = 11;
const ACTIONS: [Action; 15] = [
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
    Action::Taint(Which::Signs),
    Action::Taint(Which::Other),
    Action::Revoke(Which::Signs),
    Action::Revoke(Which::Other),
];

/// The machine: what decides on a step, and what takes it.
#[derive(Clone, Copy)]
struct Machine {
    decide: fn(&Line, &Evidence<'_>) -> Step,
    take: fn(Line, &Step, Authority, Option<&str>, Timestamp) -> Line,
    reserve: fn(&Line, Timestamp) -> Option<Line>,
}

const MACHINE: Machine = Machine { decide: Line::next_step, take, reserve: Line::reserve };

fn take(line: Line, step: &Step, new: Authority, requested: Option<&str>, now: Timestamp) -> Line {
    match step {
        Step::Begin => line.begin(new, now),
        Step::Prepare => line.prepare(new, requested, now),
        Step::Activate => line.activate(now),
        Step::Force(_) => line.force(now),
        Step::Finish(id) => line.finish(id),
        Step::RollBack { id, signs } => line.roll_back(id, signs, now),
        Step::Taint { id } => {
            let new = step.needs_authority(&line).then_some(new);
            line.taint(id, new, now)
        }
        Step::Revoke { id } => {
            let new = step.needs_authority(&line).then_some(new);
            line.revoke(id, new, None, now)
        }
        Step::Rest | Step::Wait(_) => line,
    }
}

/// Authorities by their number and the time at which they were made: making one anew each time would take too long.
#[derive(Clone, Default)]
struct Made(Rc<RefCell<BTreeMap<(usize, i64), Authority>>>);

impl Made {
    fn get(&self, number: usize, now: Timestamp) -> Authority {
        let make = || {
            let rng = SystemRandom::new();
            let (key, _) = PrivateKey::generate(KeyKind::Ed25519, &rng).unwrap();
            Authority::self_signed("model", &key, now, LIFE, &rng).unwrap()
        };
        self.0.borrow_mut().entry((number, now.unix())).or_insert_with(make).clone()
    }
}

#[derive(Clone)]
struct World {
    made: Made,
    machine: Machine,
    now: Timestamp,
    /// What the Secret has.
    stored: Line,
    /// What the hub works with: what it has read or written last.
    held: Line,
    /// The anchors in the published bundle.
    published: BTreeSet<AuthorityId>,
    /// The anchors that each gateway trusts.
    trusted: [BTreeSet<AuthorityId>; GATEWAYS],
    /// The certificates in use: who signed each, and when it ends.
    leaves: BTreeSet<(AuthorityId, Timestamp)>,
    rotations: usize,
    roll_back: Option<AuthorityId>,
    taint: Option<AuthorityId>,
    revoke: Option<AuthorityId>,
    /// The authorities that were revoked: their certificates end, whatever depends on them.
    revoked: BTreeSet<AuthorityId>,
    /// The tainted authorities that have stopped signing.
    given_up: BTreeSet<AuthorityId>,
    authorities: usize,
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Broken {
    /// A gateway does not trust the key that has just signed (I5).
    Untrusted(usize),
    /// The anchor of a certificate in use is gone (I6).
    Dropped,
    /// A certificate ends later than what is stored of its authority says, or than the authority (I4, I6, I7).
    Unreserved,
    /// There are more authorities than a line may have.
    TooMany,
    /// A revoked authority is in the line again, or a tainted one signs again.
    Back,
    /// A tainted authority waits to sign.
    Kept,
}

impl World {
    fn new(machine: Machine) -> Self {
        let (made, now) = (Made::default(), Timestamp::from_unix(1_800_000_000));
        let line = Line::default().begin(made.get(0, now), now);
        let anchors = anchors(&line);
        Self {
            made,
            machine,
            now,
            stored: line.clone(),
            held: line,
            published: anchors.clone(),
            trusted: [anchors.clone(), anchors],
            leaves: BTreeSet::new(),
            rotations: 0,
            roll_back: None,
            taint: None,
            revoke: None,
            revoked: BTreeSet::new(),
            given_up: BTreeSet::new(),
            authorities: 1,
        }
    }

    /// Identifies it for the search.
    fn key(&self) -> String {
        let line = |line: &Line| {
            let member = |it: &Member| {
                (it.authority.id().to_string(), it.state, it.since, it.leaves_expire, (it.forced, it.tainted))
            };
            (
                line.members.iter().map(member).collect::<Vec<_>>(),
                line.handled_request.clone(),
                line.rolled_back.clone(),
            )
        };
        let lines = (line(&self.stored), line(&self.held));
        let heard = (&self.published, &self.trusted, &self.leaves);
        let asked = (self.rotations, &self.roll_back, &self.taint, &self.revoke);
        format!("{:?}", (self.now, lines, heard, asked, &self.revoked, &self.given_up))
    }

    fn act(&mut self, action: Action) -> Result<(), Broken> {
        match action {
            Action::Rotate => self.rotations += 1,
            Action::RollBack => {
                let current = self.stored.next().or_else(|| self.stored.active());
                self.roll_back = current.map(|member| member.authority.id().clone());
            }
            Action::Taint(which) => self.taint = self.named(which),
            Action::Revoke(which) => self.revoke = self.named(which),
            Action::Step(crash) => self.step(crash),
            Action::Issue => self.issue()?,
            Action::Hear(gateway) => self.trusted[gateway].clone_from(&self.published),
            Action::Hour => self.now = self.now.plus(HOUR),
            Action::Days => self.now = self.now.plus(LEAF * 2),
            Action::Month => self.now = self.now.plus(RENEW_BEFORE),
        }
        let now = self.now;
        self.leaves.retain(|(id, end)| *end >= now && !self.revoked.contains(id));
        let given_up = self.stored.members().iter().filter(|member| member.tainted && member.state != State::Active);
        self.given_up.extend(given_up.map(|member| member.authority.id().clone()));
        self.check()
    }

    fn named(&self, which: Which) -> Option<AuthorityId> {
        let old = || self.stored.members().iter().find(|member| member.state == State::Old);
        let member = match which {
            Which::Signs => self.stored.active(),
            Which::Other => self.stored.next().or_else(old),
        };
        member.map(|member| member.authority.id().clone())
    }

    fn step(&mut self, crash: Crash) {
        let next = self.stored.next().map(|next| next.authority.id().clone());
        let untrusting = |next: &AuthorityId| self.trusted.iter().any(|trusted| !trusted.contains(next));
        let next_is_trusted = if next.as_ref().is_some_and(untrusting) { Err(WaitsFor::GatewaysRead) } else { Ok(()) };
        let requested = (self.rotations > 0).then(|| self.rotations.to_string());
        let evidence = Evidence {
            now: self.now,
            requested: requested.as_deref(),
            offered: false,
            roll_back: self.roll_back.as_ref(),
            taint: self.taint.as_ref(),
            revoke: self.revoke.as_ref(),
            renew_before: RENEW_BEFORE,
            deferral: RENEW_BEFORE / 4,
            next_is_trusted,
        };
        let step = (self.machine.decide)(&self.stored, &evidence);
        if crash != Crash::BeforeTheWrite {
            let new = self.made.get(self.authorities, self.now);
            self.authorities += usize::from(step.needs_authority(&self.stored));
            if let Step::Revoke { id } = &step {
                self.revoked.insert(id.clone());
            }
            self.stored = (self.machine.take)(self.stored.clone(), &step, new, requested.as_deref(), self.now);
        }
        // A hub that starts holds what is stored. Publishing is the first thing that it does with it.
        if crash == Crash::No {
            self.held = self.stored.clone();
            self.published = anchors(&self.stored);
        }
    }

    /// A hub that holds an older line than the stored one cannot write a reservation.
    fn issue(&mut self) -> Result<(), Broken> {
        let Some(active) = self.held.active() else { return Ok(()) };
        let (id, ends) = (active.authority.id().clone(), active.authority.not_after());
        if ends <= self.now || self.held.is_tainted() {
            return Ok(());
        }
        let end = self.now.plus(LEAF).min(ends);
        let forced = active.forced;
        if let Some(line) = (self.machine.reserve)(&self.held, end) {
            if self.held != self.stored {
                return Ok(());
            }
            (self.held, self.stored) = (line.clone(), line);
        }
        self.leaves.insert((id.clone(), end));
        match self.trusted.iter().position(|trusted| !trusted.contains(&id)) {
            Some(gateway) if !forced => Err(Broken::Untrusted(gateway)),
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), Broken> {
        if self.stored.members().len() > MOST_AUTHORITIES {
            return Err(Broken::TooMany);
        }
        for member in self.stored.members() {
            let id = member.authority.id();
            if self.revoked.contains(id) || (member.state == State::Active && self.given_up.contains(id)) {
                return Err(Broken::Back);
            }
            if member.tainted && member.state == State::Next {
                return Err(Broken::Kept);
            }
        }
        for (id, end) in &self.leaves {
            let member = self.stored.members().iter().find(|member| member.authority.id() == id);
            let member = member.ok_or(Broken::Dropped)?;
            if !self.published.contains(id) {
                return Err(Broken::Dropped);
            }
            if member.leaves_expire.is_none_or(|reserved| reserved < *end) || member.authority.not_after() < *end {
                return Err(Broken::Unreserved);
            }
        }
        Ok(())
    }
}

fn anchors(line: &Line) -> BTreeSet<AuthorityId> {
    line.members().iter().map(|member| member.authority.id().clone()).collect()
}

mod search;
