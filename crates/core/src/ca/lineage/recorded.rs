//! Compares a lineage with what the ledger knows about it. The lineage is older if its Secret was restored from a
//! backup.

use std::collections::BTreeMap;

use super::{Lineage, State};
use crate::ca::authority::AuthorityId;
use crate::timestamp::Timestamp;

/// What the ledger knows about one authority of a lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedAuthority {
    /// Its state; `None` after it was removed.
    pub state: Option<State>,
    /// When the last of its unexpired certificates expires.
    pub leaves_expire: Option<Timestamp>,
    /// Whether it was tainted or revoked.
    pub tainted: bool,
}

/// What the ledger knows about a lineage that the lineage itself does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Older {
    /// The lineage with everything that can be restored: it keeps each anchor until the last certificate has expired,
    /// and tainted authorities stay tainted.
    pub lineage: Lineage,
    /// Authorities of the lineage that have gone further, have signed for longer, or were tainted.
    pub behind: Vec<AuthorityId>,
    /// Authorities missing from the lineage. Their keys are lost, and their certificates are not accepted.
    pub missing: Vec<AuthorityId>,
}

impl Lineage {
    /// Where the lineage is older than what the ledger knows. `None` if nowhere. A lineage may be ahead of the ledger:
    /// its steps are persisted before they are recorded.
    #[must_use]
    pub fn older_than(&self, recorded: &BTreeMap<AuthorityId, RecordedAuthority>) -> Option<Older> {
        let mut lineage = self.clone();
        let mut behind = Vec::new();
        for member in &mut lineage.members {
            let Some(known) = recorded.get(member.authority.id()) else { continue };
            // A rollback makes an Old one Active again.
            let is_back = member.state == State::Active && self.rolled_back.is_some();
            let has_gone_further = known.state.is_none_or(|state| state > member.state && !is_back);
            // No certificate lasts longer than its authority, whatever the ledger's store says.
            let known_end = known.leaves_expire.map(|end| end.min(member.authority.not_after()));
            let has_signed_longer = known_end > member.leaves_expire;
            if has_signed_longer {
                member.leaves_expire = known_end;
            }
            let is_forgiven = known.tainted && !member.tainted;
            member.tainted |= known.tainted;
            if has_gone_further || has_signed_longer || is_forgiven {
                behind.push(member.authority.id().clone());
            }
        }
        // An authority that has left the lineage may not be recorded as removed yet. The same goes for an Old one
        // without certificates in use that left too long ago to be remembered.
        let is_gone = |id: &AuthorityId, known: &RecordedAuthority| {
            self.gone.contains(id) || (known.state != Some(State::Next) && known.leaves_expire.is_none())
        };
        let missing = recorded
            .iter()
            .filter(|(id, known)| known.state.is_some() && self.member(id).is_none() && !is_gone(id, known));
        let missing: Vec<_> = missing.map(|(id, _)| id.clone()).collect();
        let is_older = !behind.is_empty() || !missing.is_empty();
        is_older.then_some(Older { lineage, behind, missing })
    }
}
