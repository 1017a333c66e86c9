//! The gateway's decisions: the identity of a certificate, the route of a path, the headers that cross. These functions
//! read untrusted bytes, so `fuzz/` tests each of them.
//!
//! Also, how much one client may take away from the others: [`handshakes`] and [`permits`].

pub mod access;
pub mod attachment;
pub mod authz;
pub mod backend;
pub mod handshakes;
pub mod headers;
pub mod host;
pub mod path;
pub mod permits;
pub mod protected;
pub mod replicas;
pub mod route;
pub mod routing;

/// The beginning of the `type` of every problem of the gateway (RFC 9457); the name of the problem follows.
pub const PROBLEM_TYPES: &str = "https://addon-signer.io/problems/";
/// The name of the gateway's problem that makes an agent get another certificate.
pub const PROBLEM_REVOKED: &str = "revoked";
