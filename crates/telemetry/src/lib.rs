//! What several parts of the hub tell people: the audit log, metrics, signs of life.

pub mod audit;
pub mod metrics;
pub mod pulse;
