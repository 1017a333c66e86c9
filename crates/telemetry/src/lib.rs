//! What several parts of the hub report: the audit log, the access log, metrics, signs of life.

pub mod access;
pub mod audit;
pub mod metrics;
pub mod pulse;
