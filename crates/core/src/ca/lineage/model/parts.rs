//! The parts of the model's world: clocks, the Secret, the requested actions, the issuer, and what has happened.

use std::hash::{Hash, Hasher};

use super::*;

/// The time, and how often the hub's clock is off by [`JUMP`].
#[derive(Clone, Copy, Hash)]
pub(super) struct Clocks {
    pub(super) now: Timestamp,
    pub(super) off: i8,
}

impl Clocks {
    /// The time by the hub's clock.
    pub(super) fn hub(self) -> Timestamp {
        match self.off {
            0 => self.now,
            1 => self.now.plus(JUMP),
            _ => self.now.minus(JUMP),
        }
    }

    pub(super) fn jump(&mut self) {
        self.off = if self.off == 1 { -1 } else { self.off + 1 };
    }
}

/// The Secret of the lineage.
#[derive(Clone)]
pub(super) struct Secret {
    pub(super) lineage: Lineage,
    /// A copy of it.
    pub(super) backup: Option<Lineage>,
    /// Whether it is that copy, and no hub has compared it with the ledger.
    pub(super) is_restored: bool,
    /// The authorities of Secrets that were restored: a gateway may not know them when they sign again.
    pub(super) restored: Anchors,
}

impl Secret {
    pub(super) fn new(lineage: Lineage) -> Self {
        Self { lineage, backup: None, is_restored: false, restored: BTreeSet::new() }
    }
}

impl Hash for Secret {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { lineage, backup, is_restored, restored } = self;
        hash_line(lineage, hasher);
        backup.iter().for_each(|backup| hash_line(backup, hasher));
        (is_restored, restored).hash(hasher);
    }
}

pub(super) fn hash_line(lineage: &Lineage, hasher: &mut impl Hasher) {
    for it in &lineage.members {
        let times = (it.since, it.leaves_expire, it.activate_after);
        (it.authority.id(), it.state as u8, times, it.forced, it.tainted, &it.to_revoke).hash(hasher);
    }
    (&lineage.handled_request, &lineage.rolled_back, &lineage.gone).hash(hasher);
}

/// What administrators have asked for.
#[derive(Clone, Default, Hash)]
pub(super) struct AdminWishes {
    pub(super) rotations: usize,
    pub(super) roll_back: Option<AuthorityId>,
    pub(super) taint: Vec<AuthorityId>,
    pub(super) revoke: Vec<AuthorityId>,
}

impl AdminWishes {
    /// Another program writes the AddOnSigner and keeps only the rotations.
    pub(super) fn forget(&mut self) {
        *self = Self { rotations: self.rotations, ..Self::default() };
    }
}

/// Where new authorities come from.
#[derive(Clone, Default)]
pub(super) struct Issuer {
    made: Made,
    count: usize,
    /// Whether it is outside of the hub, and the authority that it has.
    pub(super) is_outside: bool,
    pub(super) offer: Option<Authority>,
}

impl Issuer {
    pub(super) fn new(is_outside: bool) -> Self {
        Self { is_outside, ..Self::default() }
    }

    pub(super) fn make(&mut self, now: Timestamp, life: Duration) -> Authority {
        self.count += 1;
        self.made.get(self.count, now, life)
    }
}

/// What has happened to authorities.
#[derive(Clone, Default)]
pub(super) struct Past {
    /// Authorities whose certificates end, even if something depends on them: revoked ones, and those that a restored
    /// Secret lacks.
    pub(super) ended: Anchors,
    /// The authorities that were recorded as tainted.
    pub(super) tainted: Anchors,
    /// Those of them that have stopped signing.
    pub(super) given_up: Anchors,
    /// The authorities whose revocation has waited.
    pub(super) doomed: Anchors,
    /// The authorities that have left the lineage.
    pub(super) left: Vec<Authority>,
}

impl Hash for Past {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { ended, tainted, given_up, doomed, left } = self;
        (ended, tainted, given_up, doomed, left.first().map(Authority::id)).hash(hasher);
    }
}
