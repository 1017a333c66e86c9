//! A line of authorities over time: their states Next, Active and Old, and the one step that may be taken now.
//!
//! The line is a value. [`Line::next_step`] names a step from the evidence. The shell persists the resulting line
//! before the step has any effect (invariant I7). An anchor is in the trust bundle before its key signs (I5), and it
//! stays there until its last leaf has expired (I6).

mod recorded;
mod rollback;
mod waits;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rustls_pki_types::CertificateDer;

use crate::ca::authority::{Authority, AuthorityId, LAST_CALL};
use crate::ca::bundle::{Bundle, BundleError};
use crate::ca::chain::Certified;
use crate::timestamp::Timestamp;

pub use recorded::{Older, RecordedAuthority};
pub use rollback::NotRolledBack;
pub use waits::{Stragglers, WaitsFor};

/// The most authorities that a line has at a time, so that its state does not grow with each rotation. A further
/// rotation waits until the oldest authority is dropped, but no longer than the [`LAST_CALL`].
pub const MAX_AUTHORITIES: usize = 4;

/// The most that a line ever has: on the [`LAST_CALL`] a full one gets another.
pub const MOST_AUTHORITIES: usize = MAX_AUTHORITIES + 1;

/// The end of an authority's leaves is reserved further ahead than a leaf needs, by the leaf's life divided by this
/// number, so that one write serves many leaves.
pub const RESERVE_AHEAD: u32 = 8;

/// The state of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Trusted, not signing yet.
    Next,
    /// Trusted and signing.
    Active,
    /// Trusted until its last leaf has expired.
    Old,
}

impl State {
    /// The name in status and store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Next => "Next",
            Self::Active => "Active",
            Self::Old => "Old",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The step of a rotation that a line is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No rotation is under way.
    Settled,
    /// Next is trusted and waits to sign.
    Activate,
    /// Old is trusted until nobody needs it.
    Finish,
}

impl Phase {
    /// All of them, in the order of a rotation.
    pub const ALL: [Self; 3] = [Self::Settled, Self::Activate, Self::Finish];

    /// The name in status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "Settled",
            Self::Activate => "Activate",
            Self::Finish => "Finish",
        }
    }
}

/// The text is not a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a state of an authority: Next, Active or Old")]
pub struct UnknownState(String);

impl FromStr for State {
    type Err = UnknownState;
    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let known = [Self::Next, Self::Active, Self::Old].into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| UnknownState(text.to_owned()))
    }
}

/// One authority of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The authority.
    pub authority: Authority,
    /// The certificates above it, its issuer's first and the root last. Empty if it signed its own.
    pub above: Vec<CertificateDer<'static>>,
    /// Its state.
    pub state: State,
    /// When it entered this state. For a Next of the gateway's line: when its anchor had been published.
    pub since: Timestamp,
    /// All of its issued leaves expire at this time or earlier. It is raised and persisted before a leaf is signed.
    pub leaves_expire: Option<Timestamp>,
    /// For a Next of the gateway's line: by this time, everybody who got a trust bundle without it has received a newer
    /// one. It signs earlier on evidence.
    pub activate_after: Option<Timestamp>,
    /// Whether it became Active without evidence that everybody trusts it, because its predecessor was about to expire.
    pub forced: bool,
    /// Whether its key is there, so that it can sign.
    pub has_key: bool,
}

impl Member {
    fn new(certified: Certified, state: State, since: Timestamp) -> Self {
        let (authority, above) = certified.into_parts();
        Self { authority, above, state, since, leaves_expire: None, activate_after: None, forced: false, has_key: true }
    }

    /// The authority with the certificates above it.
    #[must_use]
    pub fn certified(&self) -> Certified {
        Certified::of(self.authority.clone(), self.above.clone())
    }
}

/// Why the stored authorities are not a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// More than one Active, or more than one Next.
    #[error("the line has {0} authorities in the state {1}; only one is allowed")]
    TooMany(usize, State),
    /// Old or Next authorities without an Active one.
    #[error("the line has no Active authority")]
    NoActive,
    /// Two authorities have the same key.
    #[error("the authority {0} is in the line twice")]
    Duplicate(AuthorityId),
}

/// All authorities of one line, and what administrators have asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    members: Vec<Member>,
    handled_request: Option<String>,
    rolled_back: Option<AuthorityId>,
}

/// The facts that decide the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence<'e> {
    /// The current time.
    pub now: Timestamp,
    /// The last request of an administrator for a rotation: an opaque text that differs from request to request.
    pub requested: Option<&'e str>,
    /// Whether an issuer outside has a new authority for the line.
    pub offered: bool,
    /// The authority that an administrator wants rolled back.
    pub roll_back: Option<&'e AuthorityId>,
    /// How long before it expires an authority is replaced.
    pub renew_before: Duration,
    /// How much later that is after a rollback, because the next authority may have the same fault.
    pub deferral: Duration,
    /// Whether everybody who must trust the Next anchor does. The error says what the rotation is waiting for.
    pub next_is_trusted: Result<(), WaitsFor>,
}

/// The one step to take now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make the first authority, which is Active.
    Begin,
    /// Make a new authority, which is Next, and publish its anchor.
    Prepare,
    /// Make Next Active, and Active Old.
    Activate,
    /// The same without evidence that everybody trusts Next, because Active is about to expire: what the rotation was
    /// waiting for.
    Force(WaitsFor),
    /// Drop anchor and key of the Old authority with this id.
    Finish(AuthorityId),
    /// Roll back the Next or Active authority `id`, so that `signs` signs.
    RollBack {
        /// The authority that is given up.
        id: AuthorityId,
        /// The one before it.
        signs: AuthorityId,
    },
    /// Do nothing.
    Rest,
    /// Do nothing yet: a rotation is waiting for this.
    Wait(WaitsFor),
}

impl Line {
    /// Reads a line back from a store.
    ///
    /// # Errors
    /// [`LineError`] if the states contradict each other. Then nothing is signed.
    pub fn restore(
        mut members: Vec<Member>,
        handled_request: Option<String>,
        rolled_back: Option<AuthorityId>,
    ) -> Result<Self, LineError> {
        sort(&mut members);
        let count = |state| members.iter().filter(|member| member.state == state).count();
        for state in [State::Next, State::Active] {
            if count(state) > 1 {
                return Err(LineError::TooMany(count(state), state));
            }
        }
        if !members.is_empty() && count(State::Active) == 0 {
            return Err(LineError::NoActive);
        }
        let mut ids: Vec<&AuthorityId> = members.iter().map(|member| member.authority.id()).collect();
        ids.sort_unstable();
        if let Some([twice, _]) = ids.windows(2).find(|pair| matches!(pair, [a, b] if a == b)) {
            return Err(LineError::Duplicate((*twice).clone()));
        }
        Ok(Self { members, handled_request, rolled_back })
    }

    /// The authorities: Next, Active, then Old.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The last request for a rotation that was started.
    pub fn handled_request(&self) -> Option<&str> {
        self.handled_request.as_deref()
    }

    /// The authority that signs.
    pub fn active(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.state == State::Active)
    }

    /// The authority that will sign next.
    pub fn next(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.state == State::Next)
    }

    /// The step of a rotation that it is at.
    pub fn phase(&self) -> Phase {
        match (self.next(), self.members.iter().any(|member| member.state == State::Old)) {
            (Some(_), _) => Phase::Activate,
            (None, true) => Phase::Finish,
            (None, false) => Phase::Settled,
        }
    }

    /// The trust bundle of the line: the anchors of all its authorities.
    ///
    /// # Errors
    /// [`BundleError::Empty`] for a line that has not begun.
    pub fn bundle(&self) -> Result<Bundle, BundleError> {
        Bundle::new(self.members.iter().map(|member| member.authority.clone()).collect())
    }

    /// The step that the evidence allows now. An Old authority is dropped before a new one is made.
    pub fn next_step(&self, evidence: &Evidence<'_>) -> Step {
        let Some(active) = self.active() else { return Step::Begin };
        if let Some(old) = self.members.iter().find(|member| is_spent(member, evidence.now)) {
            return Step::Finish(old.authority.id().clone());
        }
        if let (Some(id), Some(Ok(signs))) = (evidence.roll_back, self.previous(evidence)) {
            return Step::RollBack { id: id.clone(), signs };
        }
        let last_call = LAST_CALL.min(evidence.renew_before / 2);
        let ending = evidence.now.plus(last_call) >= active.authority.not_after();
        if self.next().is_some() {
            return match &evidence.next_is_trusted {
                Ok(()) => Step::Activate,
                Err(waiting) if ending => Step::Force(waiting.clone()),
                Err(waiting) => Step::Wait(waiting.clone()),
            };
        }
        let asked = evidence.requested.is_some() && evidence.requested != self.handled_request();
        let deferral = if self.rolled_back.is_some() { evidence.deferral } else { Duration::ZERO };
        let due = evidence.now.plus(evidence.renew_before.saturating_sub(deferral));
        let aged = due >= active.authority.not_after();
        match (asked || aged || evidence.offered, ending || self.members.len() < MAX_AUTHORITIES) {
            (false, _) => self.wait_for_old(),
            (true, true) => Step::Prepare,
            (true, false) => Step::Wait(WaitsFor::OldestAuthority),
        }
    }

    fn wait_for_old(&self) -> Step {
        match self.members.iter().rfind(|member| member.state == State::Old) {
            Some(Member { authority, leaves_expire: Some(end), .. }) => {
                Step::Wait(WaitsFor::OldCertificates { authority: authority.id().clone(), at: *end })
            }
            _ => Step::Rest,
        }
    }

    /// The line with its first authority. A line that already has one is unchanged.
    #[must_use]
    pub fn begin(mut self, authority: impl Into<Certified>, now: Timestamp) -> Self {
        if self.members.is_empty() {
            self.members.push(Member::new(authority.into(), State::Active, now));
        }
        self
    }

    /// The line with a new Next, and the request for it marked as handled.
    #[must_use]
    pub fn prepare(mut self, authority: impl Into<Certified>, requested: Option<&str>, now: Timestamp) -> Self {
        if self.next().is_none() {
            self.members.insert(0, Member::new(authority.into(), State::Next, now));
            self.rolled_back = None;
        }
        if requested.is_some() {
            self.handled_request = requested.map(str::to_owned);
        }
        self
    }

    /// The line whose Next does not sign before `at` without evidence, because its anchor has been published at `now`.
    /// A time that is already set is kept.
    #[must_use]
    pub fn hold_next_until(mut self, at: Timestamp, now: Timestamp) -> Self {
        if let Some(next) = self.members.iter_mut().find(|member| member.state == State::Next)
            && next.activate_after.is_none()
        {
            (next.activate_after, next.since) = (Some(at), now);
        }
        self
    }

    /// The line after its Next became Active and its Active became Old.
    #[must_use]
    pub fn activate(mut self, now: Timestamp) -> Self {
        if self.next().is_none() {
            return self;
        }
        for member in &mut self.members {
            let state = match member.state {
                State::Next => State::Active,
                State::Active | State::Old => State::Old,
            };
            if state != member.state {
                member.state = state;
                member.since = now;
            }
        }
        self
    }

    /// The line after [`Self::activate`] without evidence.
    #[must_use]
    pub fn force(self, now: Timestamp) -> Self {
        let mut line = self.activate(now);
        if let Some(active) = line.members.iter_mut().find(|member| member.state == State::Active) {
            active.forced = true;
        }
        line
    }

    /// The Active authority, if it was activated without evidence and is not yet known to be trusted by everybody.
    pub fn forced(&self, now: Timestamp) -> Option<&Member> {
        let is_open = |active: &&Member| active.forced && active.activate_after.is_none_or(|at| at >= now);
        self.active().filter(is_open)
    }

    /// The line without an Old authority.
    #[must_use]
    pub fn finish(mut self, id: &AuthorityId) -> Self {
        self.members.retain(|member| member.state != State::Old || member.authority.id() != id);
        self
    }

    /// The line whose Active authority may sign leaves that expire at `end`. `None` if it already may.
    pub fn reserve(&self, end: Timestamp) -> Option<Self> {
        let covered = self.active().is_none_or(|active| active.leaves_expire.is_some_and(|until| until >= end));
        if covered {
            return None;
        }
        let mut line = self.clone();
        if let Some(active) = line.members.iter_mut().find(|member| member.state == State::Active) {
            active.leaves_expire = Some(end);
        }
        Some(line)
    }
}

/// Next, Active, then Old, and the oldest first.
fn sort(members: &mut [Member]) {
    members.sort_by(|a, b| (a.state, a.since, a.authority.id()).cmp(&(b.state, b.since, b.authority.id())));
}

/// Whether the authority is Old and no longer needed: all its leaves have expired, or it has expired itself.
fn is_spent(member: &Member, now: Timestamp) -> bool {
    let leaves_gone = member.leaves_expire.is_none_or(|end| end < now);
    member.state == State::Old && (leaves_gone || member.authority.not_after() < now)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
