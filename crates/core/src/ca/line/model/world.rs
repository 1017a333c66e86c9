//! The world of the model: what each part of it knows, and what an action changes.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::*;

#[derive(Clone)]
pub(super) struct World {
    made: Made,
    machine: Machine,
    now: Timestamp,
    /// How often the hub's clock is off by [`JUMP`].
    clock: i8,
    /// What the Secret has.
    stored: Line,
    /// What the hub works with: what it has read or written last.
    held: Line,
    /// The copy of the Secret.
    backup: Option<Line>,
    /// Whether the Secret is that copy, and no hub has compared it with the ledger.
    is_restored: bool,
    /// The authorities of Secrets that were restored: a gateway may not know them when they sign again.
    restored: BTreeSet<AuthorityId>,
    /// The anchors in the published bundle.
    published: BTreeSet<AuthorityId>,
    /// The anchors that each gateway trusts.
    trusted: [BTreeSet<AuthorityId>; GATEWAYS],
    /// The last recorded state of each authority; `None` for one that was removed.
    recorded: BTreeMap<AuthorityId, Option<State>>,
    /// The certificates that have not expired: who signed each, and when it ends.
    leaves: BTreeSet<(AuthorityId, Timestamp)>,
    rotations: usize,
    roll_back: Option<AuthorityId>,
    taint: Vec<AuthorityId>,
    revoke: Vec<AuthorityId>,
    /// Whose certificates end, whatever depends on them: revoked ones, and those that a restored Secret lacks.
    ended: BTreeSet<AuthorityId>,
    /// The authorities that were recorded as tainted.
    pub(super) tainted: BTreeSet<AuthorityId>,
    /// Those of them that have stopped signing.
    given_up: BTreeSet<AuthorityId>,
    /// The authorities whose revocation has waited.
    doomed: BTreeSet<AuthorityId>,
    /// The authorities that have left the line.
    left: Vec<Authority>,
    /// Whether authorities come from an issuer, and the one that it has.
    has_issuer: bool,
    offer: Option<Authority>,
    authorities: usize,
}

impl World {
    pub(super) fn new(machine: Machine, has_issuer: bool) -> Self {
        let (made, now) = (Made::default(), Timestamp::from_unix(1_800_000_000));
        let line = Line::default().begin(made.get(0, now, LIFE), now);
        let anchors = anchors(&line);
        let mut world = Self {
            made,
            machine,
            now,
            clock: 0,
            stored: line.clone(),
            held: line,
            backup: None,
            is_restored: false,
            restored: BTreeSet::new(),
            published: anchors.clone(),
            trusted: [anchors.clone(), anchors],
            recorded: BTreeMap::new(),
            leaves: BTreeSet::new(),
            rotations: 0,
            roll_back: None,
            taint: Vec::new(),
            revoke: Vec::new(),
            ended: BTreeSet::new(),
            tainted: BTreeSet::new(),
            given_up: BTreeSet::new(),
            doomed: BTreeSet::new(),
            left: Vec::new(),
            has_issuer,
            offer: None,
            authorities: 1,
        };
        world.record();
        world
    }

    /// Identifies it for the search.
    pub(super) fn key(&self) -> u64 {
        let line = |line: &Line, hasher: &mut DefaultHasher| {
            for it in &line.members {
                let times = (it.since.unix(), it.leaves_expire.map(Timestamp::unix));
                (it.authority.id(), it.state as u8, times, it.forced, it.tainted, &it.to_revoke).hash(hasher);
            }
            (&line.handled_request, &line.rolled_back, &line.gone).hash(hasher);
        };
        let mut hasher = DefaultHasher::new();
        [Some(&self.stored), Some(&self.held), self.backup.as_ref()].into_iter().flatten().for_each(|it| {
            line(it, &mut hasher);
        });
        self.leaves.iter().for_each(|(id, end)| (id, end.unix()).hash(&mut hasher));
        self.recorded.iter().for_each(|(id, state)| (id, state.map(|state| state as u8)).hash(&mut hasher));
        (self.now.unix(), self.clock, &self.published, &self.trusted).hash(&mut hasher);
        (self.rotations, &self.roll_back, &self.taint, &self.revoke).hash(&mut hasher);
        (self.offer.as_ref().map(Authority::id), self.left.first().map(Authority::id)).hash(&mut hasher);
        (&self.ended, &self.tainted, &self.given_up, &self.doomed, &self.restored, self.is_restored).hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn act(&mut self, action: Action) -> Result<(), Broken> {
        match action {
            Action::Rotate => self.rotations += 1,
            Action::RollBack => {
                let current = self.stored.next().or_else(|| self.stored.active());
                self.roll_back = current.map(|member| member.authority.id().clone());
            }
            Action::Taint(which) => {
                let named = self.named(which).filter(|id| !self.taint.contains(id));
                self.taint.extend(named);
            }
            Action::Revoke(which) => {
                let named = self.named(which).filter(|id| !self.revoke.contains(id));
                self.revoke.extend(named);
            }
            Action::Forget => {
                self.roll_back = None;
                self.taint.clear();
                self.revoke.clear();
            }
            Action::Step(crash) => self.step(crash)?,
            Action::Issue => self.issue()?,
            Action::Hear(gateway) => self.trusted[gateway].clone_from(&self.published),
            Action::Hour => self.now = self.now.plus(HOUR),
            Action::Days => self.now = self.now.plus(LEAF * 2),
            Action::Month => self.now = self.now.plus(RENEW_BEFORE),
            Action::Offer => self.offer = Some(self.make(self.now, LIFE / 2)),
            Action::OfferAgain => self.offer_again(),
            Action::Jump => self.clock = if self.clock == 1 { -1 } else { self.clock + 1 },
            Action::BackUp => self.backup = Some(self.stored.clone()),
            Action::Restore => self.restore(),
        }
        let now = self.now;
        self.leaves.retain(|(_, end)| *end >= now);
        let signs_no_more = self.stored.members().iter().filter(|member| member.state != State::Active);
        let ids = signs_no_more.map(|member| member.authority.id());
        self.given_up.extend(ids.filter(|id| self.tainted.contains(id)).cloned());
        if self.is_restored { Ok(()) } else { self.check() }
    }

    fn named(&self, which: Which) -> Option<AuthorityId> {
        let old = || self.stored.members().iter().find(|member| member.state == State::Old);
        let member = match which {
            Which::Signs => self.stored.active(),
            Which::Other => self.stored.next().or_else(old),
        };
        member.map(|member| member.authority.id().clone())
    }

    fn hub_now(&self) -> Timestamp {
        match self.clock {
            0 => self.now,
            1 => self.now.plus(JUMP),
            _ => self.now.minus(JUMP),
        }
    }

    fn make(&mut self, now: Timestamp, life: Duration) -> Authority {
        self.authorities += 1;
        self.made.get(self.authorities, now, life)
    }

    /// A line remembers so many only.
    fn offer_again(&mut self) {
        let first = self.left.first().filter(|_| self.left.len() <= MOST_GONE);
        self.offer = first.filter(|first| !(self.machine.refuses)(&self.stored, first.id())).cloned();
    }

    fn restore(&mut self) {
        let Some(backup) = self.backup.clone() else { return };
        self.restored.extend(anchors(&backup));
        self.left.retain(|it| backup.member(it.id()).is_none());
        (self.stored, self.is_restored) = (backup, true);
    }

    fn step(&mut self, crash: Crash) -> Result<(), Broken> {
        self.compare()?;
        self.record();
        let now = self.hub_now();
        let next = self.stored.next().map(|next| next.authority.id().clone());
        let untrusting = |next: &AuthorityId| self.trusted.iter().any(|trusted| !trusted.contains(next));
        let next_is_trusted = if next.as_ref().is_some_and(untrusting) { Err(WaitsFor::GatewaysRead) } else { Ok(()) };
        let requested = (self.rotations > 0).then(|| self.rotations.to_string());
        // What ends too soon is not used.
        let offer = self.offer.take().filter(|it| it.not_after() > now.plus(RENEW_BEFORE + LEAF));
        let evidence = Evidence {
            now,
            requested: requested.as_deref(),
            offered: offer.is_some(),
            roll_back: self.roll_back.as_ref(),
            taint: self.taint.iter().find(|id| self.stored.untainted(Some(*id)).is_some()),
            revoke: self.stored.first_to_revoke(self.revoke.iter()),
            renew_before: RENEW_BEFORE,
            deferral: RENEW_BEFORE / 4,
            caps: true,
            next_is_trusted,
        };
        let mut step = (self.machine.decide)(&self.stored, &evidence, !self.has_issuer || offer.is_some());
        if matches!(step, Step::Rest | Step::Wait(_)) {
            self.rests(&evidence, !self.has_issuer || offer.is_some())?;
        }
        if !step.is_urgent() && !(self.machine.confirms)(now, self.now) {
            step = Step::Wait(WaitsFor::Clock { minutes: 0 });
        }
        let needs = step.needs_authority(&self.stored);
        let (new, offer) = match offer {
            Some(offer) if needs => (Some(offer), None),
            None if needs && !self.has_issuer => (Some(self.make(now, LIFE)), None),
            offer => (None, offer),
        };
        if crash == Crash::BeforeTheWrite {
            self.offer = new.filter(|_| self.has_issuer).or(offer);
            return Ok(());
        }
        self.offer = offer;
        self.write(&step, new, requested.as_deref(), now);
        // A hub that starts holds what is stored. Publishing is the first thing that it does with it.
        if crash == Crash::No {
            self.record();
            self.held = self.stored.clone();
            self.published = anchors(&self.stored);
        }
        Ok(())
    }

    /// Whether the line may do nothing, with another authority or without.
    fn rests(&self, evidence: &Evidence<'_>, has_authority: bool) -> Result<(), Broken> {
        if has_authority && self.doomed.iter().any(|id| self.stored.member(id).is_some()) {
            return Err(Broken::Forgotten);
        }
        let (Some(next), Some(active)) = (self.stored.next(), self.stored.active()) else { return Ok(()) };
        let end = next.authority.not_after();
        let is_capped = end < active.authority.not_after() && evidence.now.plus(RENEW_BEFORE) >= end;
        if is_capped { Err(Broken::Capped) } else { Ok(()) }
    }

    fn write(&mut self, step: &Step, new: Option<Authority>, requested: Option<&str>, now: Timestamp) {
        let revoked = match step {
            Step::Revoke { id } => Some(id),
            _ => None,
        };
        self.ended.extend(revoked.cloned());
        if let Step::AwaitRevocation { id } = step {
            self.doomed.insert(id.clone());
        }
        let before = self.stored.clone();
        self.stored = (self.machine.take)(before.clone(), step, new, requested, now);
        let has_left = |id: &AuthorityId| Some(id) == revoked || self.stored.member(id).is_none();
        let left = before.members().iter().map(|member| &member.authority).filter(|it| has_left(it.id()));
        self.left.extend(left.cloned());
    }

    /// Compares the Secret with the ledger, and repairs what can be repaired.
    fn compare(&mut self) -> Result<(), Broken> {
        let older = (self.machine.compare)(self, self.hub_now(), self.now);
        match older {
            Some(_) if self.restored.is_empty() => return Err(Broken::Accused),
            Some(Older { line, missing, .. }) => {
                self.stored = line;
                self.ended.extend(missing);
            }
            None => {}
        }
        self.is_restored = false;
        Ok(())
    }

    /// Where the line is older than the ledger, if certificates are in use that end at `now` or later.
    pub(super) fn older(&self, now: Timestamp) -> Option<Older> {
        let known = |(id, state): (&AuthorityId, &Option<State>)| {
            let ends = self.leaves.iter().filter(|(by, end)| by == id && *end >= now).map(|(_, end)| *end);
            let tainted = self.tainted.contains(id);
            (id.clone(), RecordedAuthority { state: *state, leaves_expire: ends.max(), tainted })
        };
        self.stored.older_than(&self.recorded.iter().map(known).collect())
    }

    fn record(&mut self) {
        self.recorded.values_mut().for_each(|state| *state = None);
        let states = self.stored.members().iter().map(|member| (member.authority.id().clone(), Some(member.state)));
        self.recorded.extend(states);
        let tainted = self.stored.members().iter().filter(|member| member.tainted);
        self.tainted.extend(tainted.map(|member| member.authority.id().clone()));
    }

    /// A hub that holds an older line than the stored one cannot write a reservation.
    fn issue(&mut self) -> Result<(), Broken> {
        let Some(active) = self.held.active() else { return Ok(()) };
        let (id, ends) = (active.authority.id().clone(), active.authority.not_after());
        let now = self.hub_now();
        if ends <= now || self.held.is_tainted() {
            return Ok(());
        }
        let end = now.plus(LEAF).min(ends);
        let may_be_unknown = active.forced || self.restored.contains(&id);
        if let Some(line) = (self.machine.reserve)(&self.held, end) {
            if self.held != self.stored {
                return Ok(());
            }
            (self.held, self.stored) = (line.clone(), line);
        }
        self.leaves.insert((id.clone(), end));
        let is_trusted = self.trusted.iter().all(|trusted| trusted.contains(&id));
        if is_trusted || may_be_unknown { Ok(()) } else { Err(Broken::Untrusted) }
    }

    fn check(&self) -> Result<(), Broken> {
        if self.stored.members().len() > MOST_AUTHORITIES {
            return Err(Broken::TooMany);
        }
        for member in self.stored.members() {
            let id = member.authority.id();
            let has_left = self.left.iter().any(|left| left.id() == id);
            // One from a backup signs nothing: the ledger knows that it is tainted.
            let may_sign = member.state == State::Active && !(member.tainted && self.restored.contains(id));
            if has_left || (may_sign && self.given_up.contains(id)) {
                return Err(Broken::Back);
            }
            if member.tainted && member.state == State::Next {
                return Err(Broken::Kept);
            }
        }
        for (id, end) in self.leaves.iter().filter(|(id, _)| !self.ended.contains(id)) {
            let member = self.stored.member(id).ok_or(Broken::Dropped)?;
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
