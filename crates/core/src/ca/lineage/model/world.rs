//! The world of the model: what each part of it knows, and what an action changes.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::fleet::Parties;
use super::parts::*;
use super::*;

#[derive(Clone)]
pub(super) struct World {
    machine: Machine,
    clocks: Clocks,
    secret: Secret,
    /// What the hub works with: what it has read or written last.
    held: Lineage,
    /// The anchors in the published bundle.
    published: Anchors,
    parties: Parties,
    /// The last recorded state of each authority; `None` for one that was removed.
    recorded: BTreeMap<AuthorityId, Option<State>>,
    /// The certificates that have not expired: who signed each, and when it ends.
    leaves: BTreeSet<(AuthorityId, Timestamp)>,
    asked: AdminWishes,
    issuer: Issuer,
    pub(super) past: Past,
}

impl World {
    pub(super) fn new(machine: Machine, is_outside: bool, has_agents: bool) -> Self {
        let clocks = Clocks { now: Timestamp::from_unix(1_800_000_000), off: 0 };
        let mut issuer = Issuer::new(is_outside);
        let lineage = Lineage::default().begin(issuer.make(clocks.now, LIFE), clocks.now);
        let anchors = anchors(&lineage);
        let mut world = Self {
            machine,
            clocks,
            secret: Secret::new(lineage.clone()),
            held: lineage,
            parties: if has_agents { Parties::agents(&anchors, clocks.now) } else { Parties::gateways(&anchors) },
            published: anchors,
            recorded: BTreeMap::new(),
            leaves: BTreeSet::new(),
            asked: AdminWishes::default(),
            issuer,
            past: Past::default(),
        };
        world.record();
        world
    }

    /// Identifies it for the search.
    pub(super) fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.secret.hash(&mut hasher);
        hash_line(&self.held, &mut hasher);
        (&self.clocks, &self.published, &self.parties, &self.leaves, &self.asked, &self.past).hash(&mut hasher);
        self.recorded.iter().for_each(|(id, state)| (id, state.map(|state| state as u8)).hash(&mut hasher));
        self.issuer.offer.as_ref().map(Authority::id).hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn act(&mut self, action: Action) -> Result<(), Broken> {
        match action {
            Action::Rotate => self.asked.rotations += 1,
            Action::RollBack => {
                let current = self.secret.lineage.next().or_else(|| self.secret.lineage.active());
                self.asked.roll_back = current.map(|member| member.authority.id().clone());
            }
            Action::Taint(which) => {
                let named = self.named(which).filter(|id| !self.asked.taint.contains(id));
                self.asked.taint.extend(named);
            }
            Action::Revoke(which) => {
                let named = self.named(which).filter(|id| !self.asked.revoke.contains(id));
                self.asked.revoke.extend(named);
            }
            Action::Forget => self.asked.forget(),
            Action::Step(crash) => self.step(crash)?,
            Action::Issue => self.issue()?,
            Action::Hear(gateway) => self.parties.hear(gateway, &self.published),
            Action::Fleet(action) => {
                self.parties.fleet().act(action, &self.secret.lineage, &self.published, self.clocks.now);
            }
            Action::Hour => self.clocks.now = self.clocks.now.plus(HOUR),
            Action::Days => self.clocks.now = self.clocks.now.plus(LEAF * 2),
            Action::Month => self.clocks.now = self.clocks.now.plus(RENEW_BEFORE),
            Action::Offer => self.issuer.offer = Some(self.issuer.make(self.clocks.now, LIFE / 2)),
            Action::OfferAgain => self.offer_again(),
            Action::Jump => self.clocks.jump(),
            Action::BackUp => self.secret.backup = Some(self.secret.lineage.clone()),
            Action::Restore => self.restore(),
        }
        let now = self.clocks.now;
        self.leaves.retain(|(_, end)| *end >= now);
        let signs_no_more = self.secret.lineage.members().iter().filter(|member| member.state != State::Active);
        let ids = signs_no_more.map(|member| member.authority.id());
        self.past.given_up.extend(ids.filter(|id| self.past.tainted.contains(id)).cloned());
        if self.secret.is_restored { Ok(()) } else { self.check() }
    }

    fn named(&self, which: Which) -> Option<AuthorityId> {
        let old = || self.secret.lineage.members().iter().find(|member| member.state == State::Old);
        let member = match which {
            Which::Signs => self.secret.lineage.active(),
            Which::Other => self.secret.lineage.next().or_else(old),
        };
        member.map(|member| member.authority.id().clone())
    }

    /// A lineage remembers only a number of them.
    fn offer_again(&mut self) {
        let first = self.past.left.first().filter(|_| self.past.left.len() <= MOST_GONE);
        self.issuer.offer = first.filter(|first| !(self.machine.refuses)(&self.secret.lineage, first.id())).cloned();
    }

    fn restore(&mut self) {
        let Some(backup) = self.secret.backup.clone() else { return };
        self.secret.restored.extend(anchors(&backup));
        self.past.left.retain(|it| backup.member(it.id()).is_none());
        (self.secret.lineage, self.secret.is_restored) = (backup, true);
    }

    fn step(&mut self, crash: Crash) -> Result<(), Broken> {
        self.compare()?;
        self.record();
        let now = self.clocks.hub();
        let next_is_trusted = self.parties.evidence(self.machine, &self.secret.lineage, now);
        let requested = (self.asked.rotations > 0).then(|| self.asked.rotations.to_string());
        // An authority that ends too soon is not used.
        let offer = self.issuer.offer.take().filter(|it| it.not_after() > now.plus(RENEW_BEFORE + LEAF));
        let evidence = Evidence {
            now,
            requested: requested.as_deref(),
            offered: offer.is_some(),
            roll_back: self.asked.roll_back.as_ref(),
            taint: self.asked.taint.iter().find(|id| self.secret.lineage.untainted(Some(*id)).is_some()),
            revoke: self.secret.lineage.first_to_revoke(self.asked.revoke.iter()),
            renew_before: RENEW_BEFORE,
            deferral: RENEW_BEFORE / 4,
            caps: true,
            next_is_trusted,
        };
        let mut step =
            (self.machine.decide)(&self.secret.lineage, &evidence, !self.issuer.is_outside || offer.is_some());
        if matches!(step, Step::Rest | Step::Wait(_)) {
            self.rests(&evidence, !self.issuer.is_outside || offer.is_some())?;
        }
        if !step.is_urgent() && !(self.machine.confirms)(now, self.clocks.now) {
            step = Step::Wait(WaitsFor::Clock { minutes: 0 });
        }
        let needs = step.needs_authority(&self.secret.lineage);
        let (new, offer) = match offer {
            Some(offer) if needs => (Some(offer), None),
            None if needs && !self.issuer.is_outside => (Some(self.issuer.make(now, LIFE)), None),
            offer => (None, offer),
        };
        if crash == Crash::BeforeTheWrite {
            self.issuer.offer = new.filter(|_| self.issuer.is_outside).or(offer);
            return Ok(());
        }
        self.issuer.offer = offer;
        self.write(&step, new, requested.as_deref(), now);
        // A hub that starts holds what is stored. Publishing is the first thing that it does with it.
        if crash == Crash::No {
            self.record();
            self.published = anchors(&self.secret.lineage);
            self.secret.lineage = self.parties.note_publication(self.secret.lineage.clone(), now);
            self.held = self.secret.lineage.clone();
        }
        Ok(())
    }

    /// Whether the lineage may do nothing, with another authority or without.
    fn rests(&self, evidence: &Evidence<'_>, has_authority: bool) -> Result<(), Broken> {
        if has_authority && self.past.doomed.iter().any(|id| self.secret.lineage.member(id).is_some()) {
            return Err(Broken::Forgotten);
        }
        let (Some(next), Some(active)) = (self.secret.lineage.next(), self.secret.lineage.active()) else {
            return Ok(());
        };
        let end = next.authority.not_after();
        let is_capped = end < active.authority.not_after() && evidence.now.plus(RENEW_BEFORE) >= end;
        if is_capped { Err(Broken::Capped) } else { Ok(()) }
    }

    fn write(&mut self, step: &Step, new: Option<Authority>, requested: Option<&str>, now: Timestamp) {
        let revoked = match step {
            Step::Revoke { id } => Some(id),
            _ => None,
        };
        self.past.ended.extend(revoked.cloned());
        if let Step::AwaitRevocation { id } = step {
            self.past.doomed.insert(id.clone());
        }
        let before = self.secret.lineage.clone();
        self.secret.lineage = (self.machine.take)(before.clone(), step, new, requested, now);
        let has_left = |id: &AuthorityId| Some(id) == revoked || self.secret.lineage.member(id).is_none();
        let left = before.members().iter().map(|member| &member.authority).filter(|it| has_left(it.id()));
        self.past.left.extend(left.cloned());
    }

    /// Compares the Secret with the ledger, and repairs what can be repaired.
    fn compare(&mut self) -> Result<(), Broken> {
        let older = (self.machine.compare)(self, self.clocks.hub(), self.clocks.now);
        match older {
            Some(_) if self.secret.restored.is_empty() => return Err(Broken::Accused),
            Some(Older { lineage, missing, .. }) => {
                self.secret.lineage = lineage;
                self.past.ended.extend(missing);
            }
            None => {}
        }
        self.secret.is_restored = false;
        Ok(())
    }

    /// Where the lineage is older than the ledger, if certificates are in use that end at `now` or later.
    pub(super) fn older(&self, now: Timestamp) -> Option<Older> {
        let known = |(id, state): (&AuthorityId, &Option<State>)| {
            let ends = self.leaves.iter().filter(|(by, end)| by == id && *end >= now).map(|(_, end)| *end);
            let tainted = self.past.tainted.contains(id);
            (id.clone(), RecordedAuthority { state: *state, leaves_expire: ends.max(), tainted })
        };
        self.secret.lineage.older_than(&self.recorded.iter().map(known).collect())
    }

    fn record(&mut self) {
        self.recorded.values_mut().for_each(|state| *state = None);
        let states =
            self.secret.lineage.members().iter().map(|member| (member.authority.id().clone(), Some(member.state)));
        self.recorded.extend(states);
        let tainted = self.secret.lineage.members().iter().filter(|member| member.tainted);
        self.past.tainted.extend(tainted.map(|member| member.authority.id().clone()));
    }

    /// A hub that holds an older lineage than the stored one cannot write a reservation.
    fn issue(&mut self) -> Result<(), Broken> {
        let Some(active) = self.held.active() else { return Ok(()) };
        let (id, ends) = (active.authority.id().clone(), active.authority.not_after());
        let now = self.clocks.hub();
        if ends <= now || self.held.is_tainted() {
            return Ok(());
        }
        let end = now.plus(LEAF).min(ends);
        let may_be_unknown = active.forced || self.secret.restored.contains(&id);
        if let Some(lineage) = (self.machine.reserve)(&self.held, end) {
            if self.held != self.secret.lineage {
                return Ok(());
            }
            (self.held, self.secret.lineage) = (lineage.clone(), lineage);
        }
        self.leaves.insert((id.clone(), end));
        let is_trusted = self.parties.trust(&id, self.clocks.now);
        if is_trusted || may_be_unknown { Ok(()) } else { Err(Broken::Untrusted) }
    }

    fn check(&self) -> Result<(), Broken> {
        if self.secret.lineage.members().len() > MOST_AUTHORITIES {
            return Err(Broken::TooMany);
        }
        for member in self.secret.lineage.members() {
            let id = member.authority.id();
            let has_left = self.past.left.iter().any(|left| left.id() == id);
            // One from a backup signs nothing: the ledger knows that it is tainted.
            let may_sign = member.state == State::Active && !(member.tainted && self.secret.restored.contains(id));
            if has_left || (may_sign && self.past.given_up.contains(id)) {
                return Err(Broken::Back);
            }
            if member.tainted && member.state == State::Next {
                return Err(Broken::Kept);
            }
        }
        for (id, end) in self.leaves.iter().filter(|(id, _)| !self.past.ended.contains(id)) {
            let member = self.secret.lineage.member(id).ok_or(Broken::Dropped)?;
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

fn anchors(lineage: &Lineage) -> Anchors {
    lineage.members().iter().map(|member| member.authority.id().clone()).collect()
}
