//! A lineage of authorities over time: their states Next, Active and Old, and the one step that may be taken now.
//!
//! The lineage is a value. [`Lineage::next_step`] names a step from the evidence. The shell persists the resulting
//! lineage before the step has any effect (invariant I7). An anchor is in the trust bundle before its key signs (I5),
//! and it stays there until its last leaf has expired (I6).

mod agents;
mod distrust;
mod next_step;
mod recorded;
mod rollback;
mod state;
mod waits;

use crate::ca::authority::{Authority, AuthorityId, LAST_CALL};
use crate::ca::bundle::{Bundle, BundleError};
use crate::ca::chain::Certified;
use crate::timestamp::Timestamp;

pub use agents::{Agents, CLOCKS_DIFFER, Works};
pub use distrust::renewal_window;
pub use next_step::{Evidence, Step};
pub use recorded::{Older, RecordedAuthority};
pub use rollback::NotRolledBack;
pub use state::{LineageError, Phase, State, UnknownState};
pub use waits::{NO_WORKS, Stragglers, WaitsFor};

/// The most authorities that a lineage has at a time, so that its state does not grow with each rotation. A further
/// rotation waits until the oldest authority is dropped, but no longer than the [`LAST_CALL`].
pub const MAX_AUTHORITIES: usize = 4;

/// The most that a lineage ever has: on the [`LAST_CALL`], or if its Active is tainted, a full one gets another.
pub const MOST_AUTHORITIES: usize = MAX_AUTHORITIES + 1;

/// The most authorities that a lineage remembers after they have left it, so that its state does not grow.
pub const MOST_GONE: usize = 8;

/// The end of an authority's leaves is reserved further ahead than a leaf needs, by the leaf's life divided by this
/// number, so that one write serves many leaves.
pub const RESERVE_AHEAD: u32 = 8;

/// One authority of a lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The authority.
    pub authority: Authority,
    /// The authority with the certificates above it.
    pub certified: Certified,
    /// Its state.
    pub state: State,
    /// When it entered this state. For a Next of the gateway's lineage: when its anchor had been published.
    pub since: Timestamp,
    /// All of its issued leaves expire at this time or earlier. It is raised and persisted before a leaf is signed.
    pub leaves_expire: Option<Timestamp>,
    /// For a Next of the gateway's lineage: by this time, every agent that got a trust bundle without it has received a
    /// newer one. It signs earlier on evidence.
    pub activate_after: Option<Timestamp>,
    /// Whether it became Active without evidence that all peers trust it, because its predecessor was about to expire
    /// or was revoked.
    pub forced: bool,
    /// Whether its key is there, so that it can sign.
    pub has_key: bool,
    /// Whether its key may be compromised, as an administrator has reported.
    pub tainted: bool,
    /// The administrator who asked to revoke it, if that waits for another authority that can sign.
    pub to_revoke: Option<String>,
}

impl Member {
    fn new(certified: Certified, state: State, since: Timestamp) -> Self {
        Self {
            authority: certified.authority().clone(),
            certified,
            state,
            since,
            leaves_expire: None,
            activate_after: None,
            forced: false,
            has_key: true,
            tainted: false,
            to_revoke: None,
        }
    }
}

/// All authorities of one lineage, and what administrators have asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineage {
    members: Vec<Member>,
    handled_request: Option<String>,
    rolled_back: Option<AuthorityId>,
    gone: Vec<AuthorityId>,
}

impl Lineage {
    /// Reads a lineage back from a store.
    ///
    /// # Errors
    /// [`LineageError`] if the states contradict each other. Then nothing is signed.
    pub fn restore(
        mut members: Vec<Member>,
        handled_request: Option<String>,
        rolled_back: Option<AuthorityId>,
    ) -> Result<Self, LineageError> {
        sort(&mut members);
        let count = |state| members.iter().filter(|member| member.state == state).count();
        for state in [State::Next, State::Active] {
            if count(state) > 1 {
                return Err(LineageError::TooMany(count(state), state));
            }
        }
        if !members.is_empty() && count(State::Active) == 0 {
            return Err(LineageError::NoActive);
        }
        let mut ids: Vec<&AuthorityId> = members.iter().map(|member| member.authority.id()).collect();
        ids.sort_unstable();
        if let Some([twice, _]) = ids.windows(2).find(|pair| matches!(pair, [a, b] if a == b)) {
            return Err(LineageError::Duplicate((*twice).clone()));
        }
        Ok(Self { members, handled_request, rolled_back, gone: Vec::new() })
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

    /// The trust bundle of the lineage: the anchors of all its authorities.
    ///
    /// # Errors
    /// [`BundleError::Empty`] for a lineage that has not begun.
    pub fn bundle(&self) -> Result<Bundle, BundleError> {
        Bundle::new(self.members.iter().map(|member| member.authority.clone()).collect())
    }

    /// What peers other than the lineage's own relying parties trust: the anchors of all its authorities. Only those of
    /// the gateway's serving lineage differ from [`Self::bundle`], if they are trusted by their roots.
    ///
    /// # Errors
    /// [`BundleError::Empty`] for a lineage that has not begun.
    pub fn anchors(&self) -> Result<Bundle, BundleError> {
        Bundle::new(self.members.iter().map(|member| member.certified.anchor().clone()).collect())
    }

    /// The authority with this id.
    #[must_use]
    pub fn member(&self, id: &AuthorityId) -> Option<&Member> {
        self.members.iter().find(|member| member.authority.id() == id)
    }

    /// The authorities that have left the lineage, the last ones last, at most [`MOST_GONE`]: replaced, rolled back or
    /// revoked. An issuer that still has one does not bring it back.
    #[must_use]
    pub fn gone(&self) -> &[AuthorityId] {
        &self.gone
    }

    /// The lineage that remembers these authorities as [`Self::gone`].
    #[must_use]
    pub fn with_gone(self, gone: Vec<AuthorityId>) -> Self {
        Self { gone, ..self }
    }

    /// Takes these authorities out of the lineage.
    fn remove(&mut self, goes: impl Fn(&Member) -> bool) {
        let left = self.members.extract_if(.., |member| goes(member)).map(|member| member.authority.id().clone());
        self.gone.extend(left);
        self.gone.drain(..self.gone.len().saturating_sub(MOST_GONE));
    }

    /// Takes Next out of the lineage. One that has certificates in use, because it comes from a backup, becomes Old.
    fn drop_next(&mut self, now: Timestamp) {
        self.remove(|member| member.state == State::Next && member.leaves_expire.is_none_or(|end| end < now));
        if let Some(next) = self.members.iter_mut().find(|member| member.state == State::Next) {
            (next.state, next.since) = (State::Old, now);
        }
    }

    /// The latest end of a certificate that comes with the lineage's anchors: a day before the [`LAST_CALL`] of the
    /// newest authority. So by the time the next authority must sign, every agent has its anchor.
    #[must_use]
    pub fn last_end(&self) -> Option<Timestamp> {
        let newest = self.next().or_else(|| self.active())?;
        Some(newest.authority.not_after().minus(LAST_CALL * 2))
    }

    /// The lineage with its first authority. A lineage that already has one is unchanged.
    #[must_use]
    pub fn begin(mut self, authority: impl Into<Certified>, now: Timestamp) -> Self {
        if self.members.is_empty() {
            self.members.push(Member::new(authority.into(), State::Active, now));
        }
        self
    }

    /// The lineage with a new Next, and the request for it marked as handled.
    #[must_use]
    pub fn prepare(mut self, authority: impl Into<Certified>, requested: Option<&str>, now: Timestamp) -> Self {
        if self.next().is_none() {
            self.members.insert(0, Member::new(authority.into(), State::Next, now));
            self.rolled_back = None;
        }
        self.with_handled(requested)
    }

    /// The lineage that has handled this request, if there is one. A first authority handles a request that is older
    /// than the lineage, such as that of an AddOnSigner which is recreated from a file.
    #[must_use]
    pub fn with_handled(mut self, requested: Option<&str>) -> Self {
        if requested.is_some() {
            self.handled_request = requested.map(str::to_owned);
        }
        self
    }

    /// The lineage whose Next does not sign before `at` without evidence, because its anchor has been published at
    /// `now`. A time that is already set is kept.
    #[must_use]
    pub fn hold_next_until(mut self, at: Timestamp, now: Timestamp) -> Self {
        if let Some(next) = self.members.iter_mut().find(|member| member.state == State::Next)
            && next.activate_after.is_none()
        {
            (next.activate_after, next.since) = (Some(at), now);
        }
        self
    }

    /// The lineage after its Next became Active and its Active became Old.
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

    /// The lineage after [`Self::activate`] without evidence.
    #[must_use]
    pub fn force(self, now: Timestamp) -> Self {
        let mut lineage = self.activate(now);
        if let Some(active) = lineage.members.iter_mut().find(|member| member.state == State::Active) {
            active.forced = true;
        }
        lineage
    }

    /// The Active authority, if it was activated without evidence and is not yet known to be trusted by all peers.
    pub fn forced(&self, now: Timestamp) -> Option<&Member> {
        let is_open = |active: &&Member| active.forced && active.activate_after.is_none_or(|at| at >= now);
        self.active().filter(is_open)
    }

    /// The lineage without an Old authority.
    #[must_use]
    pub fn finish(mut self, id: &AuthorityId) -> Self {
        self.remove(|member| member.state == State::Old && member.authority.id() == id);
        self
    }

    /// The lineage without Next.
    #[must_use]
    pub fn give_up(mut self, now: Timestamp) -> Self {
        self.drop_next(now);
        sort(&mut self.members);
        self
    }

    /// The lineage whose Active authority may sign leaves that expire at `end`. `None` if it already may.
    pub fn reserve(&self, end: Timestamp) -> Option<Self> {
        let covered = self.active().is_none_or(|active| active.leaves_expire.is_some_and(|until| until >= end));
        if covered {
            return None;
        }
        let mut lineage = self.clone();
        if let Some(active) = lineage.members.iter_mut().find(|member| member.state == State::Active) {
            active.leaves_expire = Some(end);
        }
        Some(lineage)
    }
}

/// Next, Active, then Old, and the oldest first.
fn sort(members: &mut [Member]) {
    members.sort_by(|a, b| (a.state, a.since, a.authority.id()).cmp(&(b.state, b.since, b.authority.id())));
}

#[cfg(test)]
mod distrust_tests;
#[cfg(test)]
mod model;
#[cfg(test)]
mod rollback_tests;
#[cfg(test)]
mod tests;
