//! The gateway's decisions: the identity of a certificate, the route of a path, the headers that cross.
//! These functions read bytes of strangers, so `fuzz/` tests each of them.

pub mod access;
pub mod authz;
pub mod headers;
pub mod path;
