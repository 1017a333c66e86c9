//! A line of authorities over time: Next, Active, Old, and the one step that may be taken now.
//!
//! The line is a value. [`Line::next_step`] looks at evidence and names a step; the shell persists the line that
//! results before the step has any effect (invariant I7). An anchor is in the bundle before its key signs (I5) and
//! until the last leaf that needs it has expired (I6).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::ca::authority::Authority;
use crate::ca::bundle::{Bundle, BundleError};
use crate::timestamp::Timestamp;

/// The most authorities of one line at a time, so that state does not grow with the number of rotations. A further
/// rotation waits until the oldest is gone.
pub const MAX_AUTHORITIES: usize = 4;

/// What an authority is doing.
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

/// A text that is not a state.
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
    /// What it is doing.
    pub state: State,
    /// Since when.
    pub since: Timestamp,
    /// No leaf of it that was given away lives longer than this. Raised, and persisted, before a leaf is signed.
    pub leaves_expire: Option<Timestamp>,
    /// A Next does not sign before this: when everybody who was given the bundle without it has been given another.
    pub activate_after: Option<Timestamp>,
}

impl Member {
    fn new(authority: Authority, state: State, since: Timestamp) -> Self {
        Self { authority, state, since, leaves_expire: None, activate_after: None }
    }
}

/// Why a line cannot be what a store says it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Two authorities that sign, or two that wait.
    #[error("the line has {0} authorities in the state {1}; it may have one")]
    TooMany(usize, State),
    /// Old or Next authorities without one that signs.
    #[error("the line has no Active authority")]
    NoActive,
    /// The same key twice.
    #[error("the authority {0} is in the line twice")]
    Duplicate(String),
}

/// All authorities of one line, and the last rotation that was asked for and begun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    members: Vec<Member>,
    handled_request: Option<String>,
}

/// What the shell has seen, from which the next step follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence<'e> {
    /// Now.
    pub now: Timestamp,
    /// The rotation that an administrator asked for last: an opaque text that differs from request to request.
    pub requested: Option<&'e str>,
    /// How long before its end an authority is replaced.
    pub renew_before: Duration,
    /// Whether everybody who must trust the Next anchor does, or what is waited for.
    pub next_is_trusted: Result<(), String>,
}

/// The one thing to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// There is no authority: make the first, Active.
    Begin,
    /// Make a new authority, Next; its anchor is published with it.
    Prepare,
    /// Next becomes Active, Active becomes Old.
    Activate,
    /// The Old authority with this id is dropped, anchor and key.
    Finish(String),
    /// Nothing to do.
    Rest,
    /// A rotation is under way and waits for this.
    Wait(String),
}

impl Line {
    /// Reads a line back from a store.
    ///
    /// # Errors
    /// [`LineError`] when the states contradict each other: then nothing is signed.
    pub fn restore(mut members: Vec<Member>, handled_request: Option<String>) -> Result<Self, LineError> {
        members.sort_by(|a, b| (a.state, a.since, a.authority.id()).cmp(&(b.state, b.since, b.authority.id())));
        let count = |state| members.iter().filter(|member| member.state == state).count();
        for state in [State::Next, State::Active] {
            if count(state) > 1 {
                return Err(LineError::TooMany(count(state), state));
            }
        }
        if !members.is_empty() && count(State::Active) == 0 {
            return Err(LineError::NoActive);
        }
        let mut ids: Vec<&str> = members.iter().map(|member| member.authority.id()).collect();
        ids.sort_unstable();
        if let Some([twice, _]) = ids.windows(2).find(|pair| matches!(pair, [a, b] if a == b)) {
            return Err(LineError::Duplicate((*twice).to_owned()));
        }
        Ok(Self { members, handled_request })
    }

    /// The authorities: Next, Active, then Old.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The last request for a rotation that was begun.
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

    /// Every anchor of the line: what relying parties trust.
    ///
    /// # Errors
    /// [`BundleError::Empty`] for a line that has not begun.
    pub fn bundle(&self) -> Result<Bundle, BundleError> {
        Bundle::new(self.members.iter().map(|member| member.authority.clone()).collect())
    }

    /// The step that evidence allows now; finishing comes before beginning.
    pub fn next_step(&self, evidence: &Evidence<'_>) -> Step {
        let Some(active) = self.active() else { return Step::Begin };
        if let Some(old) = self.members.iter().find(|member| is_spent(member, evidence.now)) {
            return Step::Finish(old.authority.id().to_owned());
        }
        if self.next().is_some() {
            return match &evidence.next_is_trusted {
                Ok(()) => Step::Activate,
                Err(waiting) => Step::Wait(waiting.clone()),
            };
        }
        let asked = evidence.requested.is_some() && evidence.requested != self.handled_request();
        let aged = evidence.now.plus(evidence.renew_before) >= active.authority.not_after();
        match (asked || aged, self.members.len() < MAX_AUTHORITIES) {
            (false, _) => self.wait_for_old(),
            (true, true) => Step::Prepare,
            (true, false) => {
                Step::Wait(format!("{MAX_AUTHORITIES} authorities are trusted already; the oldest must end first"))
            }
        }
    }

    fn wait_for_old(&self) -> Step {
        match self.members.iter().rfind(|member| member.state == State::Old) {
            Some(Member { authority, leaves_expire: Some(end), .. }) => {
                Step::Wait(format!("the last certificate of {} to expire at {end}", authority.id()))
            }
            _ => Step::Rest,
        }
    }

    /// The line with its first authority. For a line that has one already: unchanged.
    #[must_use]
    pub fn begin(mut self, authority: Authority, now: Timestamp) -> Self {
        if self.members.is_empty() {
            self.members.push(Member::new(authority, State::Active, now));
        }
        self
    }

    /// The line with a new Next, and the request for it marked as handled.
    #[must_use]
    pub fn prepare(mut self, authority: Authority, requested: Option<&str>, now: Timestamp) -> Self {
        if self.next().is_none() {
            self.members.insert(0, Member::new(authority, State::Next, now));
        }
        if requested.is_some() {
            self.handled_request = requested.map(str::to_owned);
        }
        self
    }

    /// The line whose Next does not sign before `at`. What is set once stays.
    #[must_use]
    pub fn hold_next_until(mut self, at: Timestamp) -> Self {
        if let Some(next) = self.members.iter_mut().find(|member| member.state == State::Next) {
            next.activate_after.get_or_insert(at);
        }
        self
    }

    /// The line after Next has become Active and Active Old.
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

    /// The line without an Old authority.
    #[must_use]
    pub fn finish(mut self, id: &str) -> Self {
        self.members.retain(|member| member.state != State::Old || member.authority.id() != id);
        self
    }

    /// The line in which the Active authority may give away leaves that live until `end`, or `None` when it already
    /// may.
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

/// Old, and nobody depends on it any more: its last leaf has expired, or it never had one, or it has expired itself.
fn is_spent(member: &Member, now: Timestamp) -> bool {
    let leaves_gone = member.leaves_expire.is_none_or(|end| end < now);
    member.state == State::Old && (leaves_gone || member.authority.not_after() < now)
}

#[cfg(test)]
mod tests;
