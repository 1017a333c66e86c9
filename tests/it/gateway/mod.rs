//! The gateway on loopback: real TLS, real upstreams, certificates from our own CA.

mod audits;
mod identity;
mod limits;
mod proxying;
mod revocation;
mod serving;
mod sightings;
pub(crate) mod upstream;
pub(crate) mod world;
