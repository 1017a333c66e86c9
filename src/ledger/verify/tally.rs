//! Whether two unordered lists say the same, without keeping either: sums of keyed hashes. Nobody who writes a ledger knows the
//! key of the check that is still to come.

use std::hash::{BuildHasher, RandomState};

use crate::ledger::view::State;

/// What the entries say of later fates, and what the index says of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    entries: u64,
    index: u64,
}

/// What a row of the index says of the fate of its certificate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fate<'r> {
    pub(super) uid: &'r str,
    pub(super) serial: &'r str,
    pub(super) state: State,
    /// The entry of the signature; 0 for none.
    pub(super) signed: u64,
    /// The entry that ended it; 0 for none.
    pub(super) ended: u64,
    /// The entry after which its request may have another; 0 for none.
    pub(super) released: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.entries = self.entries.wrapping_add(other.entries);
        self.index = self.index.wrapping_add(other.index);
    }

    pub(super) fn agrees(&self) -> bool {
        self.entries == self.index
    }

    /// An entry `signed`, `abandoned` or `unpublished`.
    pub(super) fn entry(&mut self, key: &RandomState, kind: &str, seq: u64, uid: &str, serial: &str) {
        self.entries = self.entries.wrapping_add(key.hash_one((kind, seq, uid, serial)));
    }

    /// A row; `false` if it contradicts itself.
    pub(super) fn row(&mut self, key: &RandomState, fate: Fate<'_>) -> bool {
        let Fate { uid, serial, state, signed, ended, released } = fate;
        if signed != 0 {
            self.index = self.index.wrapping_add(key.hash_one(("signed", signed, uid, serial)));
        }
        if ended != 0 {
            self.index = self.index.wrapping_add(key.hash_one((state.name(), ended, uid, serial)));
        }
        match state {
            State::Intent => signed == 0 && ended == 0 && released == 0,
            State::Signed | State::Published => signed != 0 && ended == 0 && released == 0,
            State::Unpublished => ended != 0 && released == 0,
            State::Abandoned => ended != 0 && released == ended,
        }
    }
}
