//! What the hub does, on its way into the ledger: steps of authorities, configurations, standings, uses; and signed
//! heads.

pub(super) mod chronicle;
pub(super) mod heads;
mod notes;

pub(super) use notes::{Notes, keep_seen};
