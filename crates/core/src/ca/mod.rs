//! The certificate authority: authorities and their states, trust bundles, issuing. Pure functions.

pub mod authority;
pub mod bundle;
pub mod chain;
pub mod exception;
pub mod issuer;
pub mod lineage;
pub mod serial;
mod tbs;
