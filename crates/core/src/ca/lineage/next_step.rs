//! Decides on the one step that the evidence allows now.

use std::time::Duration;

use super::{Lineage, MAX_AUTHORITIES, MOST_AUTHORITIES, Member, State, WaitsFor};
use crate::ca::authority::{AuthorityId, LAST_CALL};
use crate::timestamp::Timestamp;

/// The facts that decide the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence<'e> {
    /// The current time.
    pub now: Timestamp,
    /// The last request of an administrator for a rotation: an opaque text that differs from request to request.
    pub requested: Option<&'e str>,
    /// Whether an issuer outside has a new authority for the lineage.
    pub offered: bool,
    /// The authority that an administrator wants rolled back.
    pub roll_back: Option<&'e AuthorityId>,
    /// The authority whose key may be compromised, as an administrator reports.
    pub taint: Option<&'e AuthorityId>,
    /// The authority that an administrator wants removed at once.
    pub revoke: Option<&'e AuthorityId>,
    /// How long before it expires an authority is replaced.
    pub renew_before: Duration,
    /// How much later that is after a rollback, because the next authority may have the same fault.
    pub deferral: Duration,
    /// Whether no certificate outlasts the newest authority ([`Lineage::last_end`]), as on the gateway's serving
    /// lineage.
    pub caps: bool,
    /// Whether all peers that must trust the Next anchor do. The error says what the rotation is waiting for.
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
    /// The same without evidence that all peers trust Next, because Active is about to expire. It has what the rotation
    /// was waiting for.
    Force(WaitsFor),
    /// Drop anchor and key of the Old authority with this id.
    Finish(AuthorityId),
    /// Drop anchor and key of the Next authority with this id, which has too little time left to wait for.
    GiveUp(AuthorityId),
    /// Roll back the Next or Active authority `id`, so that `signs` signs.
    RollBack {
        /// The authority that is rolled back.
        id: AuthorityId,
        /// The one before it.
        signs: AuthorityId,
    },
    /// Mark the authority `id` as tainted. A Next is replaced with another one.
    Taint {
        /// The authority.
        id: AuthorityId,
    },
    /// Mark the authority `id` as one to revoke, and as tainted: an issuer has no other one that could sign.
    AwaitRevocation {
        /// The authority.
        id: AuthorityId,
    },
    /// Drop anchor and key of the authority `id` at once. An Active is replaced with Next, or else with a new one.
    Revoke {
        /// The authority.
        id: AuthorityId,
    },
    /// Do nothing.
    Rest,
    /// Do nothing yet: a rotation is waiting for this.
    Wait(WaitsFor),
}

impl Step {
    /// Whether the step is taken without the ledger and with a wrong clock, because it removes an authority or prepares
    /// that.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        matches!(self, Self::Revoke { .. } | Self::AwaitRevocation { .. })
    }

    /// Whether the step needs a new authority.
    #[must_use]
    pub fn needs_authority(&self, lineage: &Lineage) -> bool {
        let is = |member: Option<&Member>, id: &AuthorityId| member.is_some_and(|member| member.authority.id() == id);
        match self {
            Self::Begin | Self::Prepare => true,
            Self::Taint { id } => is(lineage.next(), id),
            Self::Revoke { id } => lineage.next().is_none() && is(lineage.active(), id),
            Self::Activate
            | Self::Force(_)
            | Self::Finish(_)
            | Self::GiveUp(_)
            | Self::RollBack { .. }
            | Self::AwaitRevocation { .. }
            | Self::Rest
            | Self::Wait(_) => false,
        }
    }
}

impl Lineage {
    /// The step that the evidence allows now. An Old authority is dropped before a new one is made.
    pub fn next_step(&self, evidence: &Evidence<'_>) -> Step {
        let Some(active) = self.active() else { return Step::Begin };
        // A revocation comes before all other steps, each of which would leave the key trusted for longer.
        if let Some(id) = evidence.revoke.filter(|id| self.member(id).is_some()) {
            return Step::Revoke { id: id.clone() };
        }
        if let Some(old) = self.members.iter().find(|member| is_spent(member, evidence.now)) {
            return Step::Finish(old.authority.id().clone());
        }
        if let Some(member) = self.untainted(evidence.taint) {
            return Step::Taint { id: member.authority.id().clone() };
        }
        // This Next comes from a backup, and is tainted according to the ledger.
        if let Some(next) = self.next().filter(|next| next.tainted) {
            return Step::Taint { id: next.authority.id().clone() };
        }
        if let (Some(id), Some(Ok(signs))) = (evidence.roll_back, self.previous(evidence)) {
            return Step::RollBack { id: id.clone(), signs };
        }
        // Half of a short `renew_before` is left for evidence; otherwise Next would be forced at once.
        let last_call = LAST_CALL.min(evidence.renew_before / 2);
        let ending = evidence.now.plus(last_call) >= active.authority.not_after();
        if let Some(next) = self.next() {
            return match &evidence.next_is_trusted {
                Ok(()) => Step::Activate,
                Err(waiting) if ending => Step::Force(waiting.clone()),
                Err(_) if is_too_late(next, active, evidence) => Step::GiveUp(next.authority.id().clone()),
                Err(waiting) => Step::Wait(waiting.clone()),
            };
        }
        let asked = evidence.requested.is_some() && evidence.requested != self.handled_request();
        let deferral = if self.rolled_back.is_some() { evidence.deferral } else { Duration::ZERO };
        let due = evidence.now.plus(evidence.renew_before.saturating_sub(deferral));
        let aged = due >= active.authority.not_after();
        let most = if ending || active.tainted { MOST_AUTHORITIES } else { MAX_AUTHORITIES };
        match (asked || aged || evidence.offered || active.tainted, self.members.len() < most) {
            (false, _) => self.wait_for_old(),
            (true, true) => Step::Prepare,
            (true, false) => Step::Wait(WaitsFor::OldestAuthority),
        }
    }

    /// The same, while an outside issuer has no new authority; `issuer` is what it must do. A tainted Next is dropped
    /// anyway. An authority to revoke is tainted, and remembered until another one can sign.
    pub fn next_step_without_authority(&self, evidence: &Evidence<'_>, issuer: &str) -> Step {
        let step = self.next_step(evidence);
        if !step.needs_authority(self) || matches!(step, Step::Begin | Step::Taint { .. }) {
            return step;
        }
        let Step::Revoke { id } = step else { return Step::Wait(WaitsFor::Issuer(issuer.to_owned())) };
        if self.member(&id).is_some_and(|member| member.to_revoke.is_none()) {
            return Step::AwaitRevocation { id };
        }
        match self.next_step_without_authority(&Evidence { revoke: None, ..evidence.clone() }, issuer) {
            Step::Rest | Step::Wait(_) => {
                Step::Wait(WaitsFor::Issuer(format!("{issuer}; until then {id}, which is to be revoked, is trusted")))
            }
            other => other,
        }
    }

    fn wait_for_old(&self) -> Step {
        let old = self.members.iter().filter(|member| member.state == State::Old);
        match old.min_by_key(|member| member.leaves_expire) {
            Some(Member { authority, leaves_expire: Some(end), .. }) => {
                Step::Wait(WaitsFor::OldCertificates { authority: authority.id().clone(), at: *end })
            }
            _ => Step::Rest,
        }
    }
}

/// Whether Next ends before Active, and must be replaced before all peers trust it: no certificate may end later than
/// Next allows ([`Lineage::last_end`]).
fn is_too_late(next: &Member, active: &Member, evidence: &Evidence<'_>) -> bool {
    let end = next.authority.not_after();
    evidence.caps && end < active.authority.not_after() && evidence.now.plus(evidence.renew_before) >= end
}

/// Whether the authority is Old and no longer needed: all its leaves have expired, or it has expired itself.
fn is_spent(member: &Member, now: Timestamp) -> bool {
    let leaves_gone = member.leaves_expire.is_none_or(|end| end < now);
    member.state == State::Old && (leaves_gone || member.authority.not_after() < now)
}
