//! What the gateway decides: whose identity a certificate is, which route a path takes, which headers cross.
//! Strangers' bytes meet these functions, so `fuzz/` feeds each of them.

pub mod access;
pub mod authz;
pub mod headers;
pub mod path;
