//! gateway
pub mod authz;
