//! The way back from a rotation, before its last step: the authority that came is given up, and the one before it signs
//! again, as it is still trusted everywhere.

use super::{Line, Member, State};
use crate::ca::authority::AuthorityId;
use crate::timestamp::Timestamp;

/// Why an authority cannot be rolled back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoWayBack {
    /// It is neither Next nor Active.
    #[error("{0} neither signs nor waits to sign")]
    NotCurrent(AuthorityId),
    /// It is Active, and another one is Next.
    #[error("{0} waits to sign; it has to go first")]
    NextComesFirst(AuthorityId),
    /// It is Active, and no other authority of the line can sign.
    #[error("{0} has no predecessor that could sign: it is gone with its key, or about to expire")]
    NoPredecessor(AuthorityId),
}

impl Line {
    /// The authority that an administrator has rolled back since the last rotation began. While there is one, age alone
    /// begins a rotation later ([`super::Evidence::renew_before`] is halved), because its successor may have the same
    /// fault.
    #[must_use]
    pub fn rolled_back(&self) -> Option<&AuthorityId> {
        self.rolled_back.as_ref()
    }

    /// The authority that signs after `id` is rolled back.
    ///
    /// # Errors
    /// [`NoWayBack`] if it cannot be. A predecessor that ends before `usable_until` cannot sign.
    pub fn way_back(&self, id: &AuthorityId, usable_until: Timestamp) -> Result<&Member, NoWayBack> {
        let is_it = |member: &&Member| member.authority.id() == id;
        let active = self.active().ok_or_else(|| NoWayBack::NotCurrent(id.clone()))?;
        match self.next() {
            Some(next) if is_it(&next) => return Ok(active),
            Some(next) if is_it(&active) => return Err(NoWayBack::NextComesFirst(next.authority.id().clone())),
            _ if !is_it(&active) => return Err(NoWayBack::NotCurrent(id.clone())),
            _ => {}
        }
        let lives = |member: &&Member| member.state == State::Old && member.authority.not_after() >= usable_until;
        let predecessor = self.members.iter().filter(lives).max_by_key(|member| member.since);
        predecessor.ok_or_else(|| NoWayBack::NoPredecessor(id.clone()))
    }

    /// The line after `id` was rolled back at `now`: without it, if it was Next; otherwise it is Old, because its
    /// certificates are still in use, and its predecessor is Active. Unchanged if there is no [`Self::way_back`].
    #[must_use]
    pub fn roll_back(mut self, id: &AuthorityId, now: Timestamp) -> Self {
        let Ok(signs) = self.way_back(id, now).map(|member| member.authority.id().clone()) else { return self };
        self.members.retain(|member| member.state != State::Next);
        for member in &mut self.members {
            let state = if *member.authority.id() == signs { State::Active } else { State::Old };
            if state != member.state {
                (member.state, member.since, member.forced) = (state, now, false);
            }
        }
        super::sort(&mut self.members);
        self.rolled_back = Some(id.clone());
        self
    }
}
