//! Rolls back a rotation that has not ended: Next is dropped, or Active becomes Old and the previous authority, which
//! all peers still trust, signs again.

use super::{Evidence, Lineage, MAX_AUTHORITIES, Member, State};
use crate::ca::authority::AuthorityId;
use crate::timestamp::Timestamp;

/// Why an authority that waits to sign or signs is not rolled back. The text is a sentence without a period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRolledBack {
    /// It signs, and another one waits to sign.
    #[error("{0} waits to sign: roll that back first")]
    NextComesFirst(AuthorityId),
    /// It signs, and there is no older authority that could.
    #[error("there is no older authority that could sign: it is gone with its key")]
    NoPrevious,
    /// The previous authority has too little time left for another rotation, which would begin at once.
    #[error("the previous authority {0} expires too soon: another rotation would begin at once")]
    ExpiresSoon(AuthorityId),
    /// The previous authority cannot sign.
    #[error("the key of the previous authority {0} cannot be used")]
    NoKey(AuthorityId),
    /// The key of the previous authority may be compromised.
    #[error("the previous authority {0} is tainted")]
    Tainted(AuthorityId),
    /// The lineage could then have more authorities than gateways accept.
    #[error("the lineage has too many authorities: one of them has to go first")]
    Full,
}

impl Lineage {
    /// The authority that was rolled back since the last rotation began. While there is one, age begins the next
    /// rotation later ([`Evidence::deferral`]).
    #[must_use]
    pub fn rolled_back(&self) -> Option<&AuthorityId> {
        self.rolled_back.as_ref()
    }

    /// The authority that signs after the one that the evidence asks to roll back. `None` if it asks for nothing, or
    /// for an authority that neither waits to sign nor signs: then it was rolled back, or is of an earlier rotation.
    #[must_use]
    pub fn previous(&self, evidence: &Evidence<'_>) -> Option<Result<AuthorityId, NotRolledBack>> {
        let id = evidence.roll_back?;
        let active = self.active()?;
        let previous = match self.next() {
            Some(next) if next.authority.id() == id => active,
            Some(next) if active.authority.id() == id => {
                return Some(Err(NotRolledBack::NextComesFirst(next.authority.id().clone())));
            }
            None if active.authority.id() == id => match self.older_than_active(active) {
                Some(_) if self.members.len() > MAX_AUTHORITIES => return Some(Err(NotRolledBack::Full)),
                Some(previous) => previous,
                None => return Some(Err(NotRolledBack::NoPrevious)),
            },
            _ => return None,
        };
        let previous_id = previous.authority.id().clone();
        if previous.tainted {
            return Some(Err(NotRolledBack::Tainted(previous_id)));
        }
        let due = evidence.now.plus(evidence.renew_before.saturating_sub(evidence.deferral));
        Some(match (due < previous.authority.not_after(), previous.has_key) {
            (false, _) => Err(NotRolledBack::ExpiresSoon(previous_id)),
            (true, false) => Err(NotRolledBack::NoKey(previous_id)),
            (true, true) => Ok(previous_id),
        })
    }

    /// The Old authority that signed last before Active. One that is newer than Active was rolled back itself.
    fn older_than_active(&self, active: &Member) -> Option<&Member> {
        let is_older = |member: &&Member| {
            member.state == State::Old && member.authority.not_before() <= active.authority.not_before()
        };
        self.members.iter().filter(is_older).max_by_key(|member| member.since)
    }

    /// The lineage after `id` was rolled back at `now`, so that `signs` signs. A Next without certificates in use is
    /// dropped; everything else that does not sign is Old.
    #[must_use]
    pub fn roll_back(mut self, id: &AuthorityId, signs: &AuthorityId, now: Timestamp) -> Self {
        self.drop_next(now);
        for member in &mut self.members {
            let state = if member.authority.id() == signs { State::Active } else { State::Old };
            if state != member.state {
                (member.state, member.since, member.forced) = (state, now, false);
            }
        }
        super::sort(&mut self.members);
        self.rolled_back = Some(id.clone());
        self
    }
}
