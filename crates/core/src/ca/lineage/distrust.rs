//! Ends the trust in one authority: a tainted one stops signing once another can, a revoked one is removed at once.

use super::{Lineage, MOST_AUTHORITIES, Member, State, Step};
use crate::ca::authority::AuthorityId;
use crate::ca::chain::Certified;
use crate::timestamp::Timestamp;

/// How many certificates per second all agents together request that are told to renew. The slowest hub that was
/// measured signs ten times as many (`docs/figures.md`), so that other CSRs do not wait for these.
const RENEWALS_PER_SECOND: usize = 20;

/// The shortest time within which agents are told to renew, in seconds.
const LEAST_RENEWAL: usize = 60;

/// Within how many seconds this many addons on clusters are to renew.
#[must_use]
pub fn renewal_window(addons: usize) -> u32 {
    u32::try_from(addons.div_ceil(RENEWALS_PER_SECOND).max(LEAST_RENEWAL)).unwrap_or(u32::MAX)
}

impl Lineage {
    /// The Old authorities that are tainted, once another one signs: agents with certificates of them should renew.
    pub fn distrusted(&self) -> impl Iterator<Item = &AuthorityId> {
        let is_over = !self.is_tainted();
        let old = self.members.iter().filter(move |it| is_over && it.tainted && it.state == State::Old);
        old.map(|member| member.authority.id())
    }

    /// Whether the key of the authority that signs may be compromised.
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        self.active().is_some_and(|active| active.tainted)
    }

    /// The authority that may be tainted: it is in the lineage, and is not tainted already.
    pub(super) fn untainted(&self, id: Option<&AuthorityId>) -> Option<&Member> {
        self.members.iter().find(|member| Some(member.authority.id()) == id && !member.tainted)
    }

    /// Which authority to revoke first, of these and of those that the lineage is to revoke: one that needs no
    /// successor, if there is one, because the other may wait for an issuer. `None` if the lineage has none of them.
    #[must_use]
    pub fn first_to_revoke<'i>(
        &'i self,
        asked: impl Iterator<Item = &'i AuthorityId> + Clone,
    ) -> Option<&'i AuthorityId> {
        let remembered =
            self.members.iter().filter(|member| member.to_revoke.is_some()).map(|member| member.authority.id());
        let mut present = asked.filter(|id| self.member(id).is_some()).chain(remembered);
        let needs_successor = |id: &AuthorityId| Step::Revoke { id: id.clone() }.needs_authority(self);
        present.clone().find(|id| !needs_successor(id)).or_else(|| present.next())
    }

    /// The lineage after the key of `id` was reported as compromised. That authority never becomes Active again. A Next
    /// is replaced with `new`, which the lineage then needs: see [`super::Step::needs_authority`].
    #[must_use]
    pub fn taint(mut self, id: &AuthorityId, new: Option<impl Into<Certified>>, now: Timestamp) -> Self {
        let Some(member) = self.members.iter_mut().find(|member| member.authority.id() == id) else { return self };
        member.tainted = true;
        if member.state != State::Next {
            return self;
        }
        self.drop_next(now);
        // A full lineage whose Next has certificates in use comes from a backup. It makes another one once an authority
        // has left it.
        if let Some(new) = new.filter(|_| self.members.len() < MOST_AUTHORITIES) {
            self.members.push(Member::new(new.into(), State::Next, now));
            self.rolled_back = None;
        }
        super::sort(&mut self.members);
        self
    }

    /// The lineage that revokes `id` when another authority can sign. It remembers that `by` has asked for it.
    #[must_use]
    pub fn await_revocation(mut self, id: &AuthorityId, by: &str) -> Self {
        if let Some(member) = self.members.iter_mut().find(|member| member.authority.id() == id) {
            (member.tainted, member.to_revoke) = (true, Some(by.to_owned()));
        }
        self
    }

    /// The lineage without `id`, even if certificates depend on that. If `id` was Active, Next signs, or else `new`,
    /// which the lineage then needs: see [`super::Step::needs_authority`]. By `known_at`, all agents have got the
    /// anchor of the one that signs.
    #[must_use]
    pub fn revoke(
        mut self,
        id: &AuthorityId,
        new: Option<impl Into<Certified>>,
        known_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let is_active = self.active().is_some_and(|active| active.authority.id() == id);
        if is_active && self.next().is_none() {
            let Some(new) = new else { return self };
            self.members.push(Member::new(new.into(), State::Next, now));
            self.rolled_back = None;
        }
        self.remove(|member| member.authority.id() == id);
        if is_active && let Some(next) = self.members.iter_mut().find(|member| member.state == State::Next) {
            (next.state, next.since, next.forced) = (State::Active, now, true);
            next.activate_after = next.activate_after.or(known_at);
        }
        super::sort(&mut self.members);
        self
    }
}
