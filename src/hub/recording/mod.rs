//! What the hub does, on its way into the ledger: steps of authorities, configurations, standings, uses; and signed
//! checkpoints.

pub(super) mod checkpoints;
pub(super) mod chronicle;
mod notes;

pub(super) use notes::{Notes, keep_seen};
