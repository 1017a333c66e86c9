//! What several parts of the hub report to people: the audit log, metrics, signs of life.

pub mod audit;
pub mod metrics;
pub mod pulse;
