//! The certificate authority, pure: keys, authorities and their states, bundles, issuing.

pub mod authority;
pub mod bundle;
pub mod issuer;
pub mod line;
pub mod serial;
mod tbs;
