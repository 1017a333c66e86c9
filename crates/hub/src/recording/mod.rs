//! Records in the ledger what the hub does and observes: steps of authorities, configurations, standings, revocations
//! and uses. Publishes signed checkpoints of the ledger.

pub mod checkpoints;
pub(super) mod chronicle;
pub(crate) mod metrics;
mod notes;
mod unrenewed;

pub(super) use notes::{Notes, answered, record_usage};
pub(super) use unrenewed::keep_unrenewed;
