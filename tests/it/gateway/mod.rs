//! The gateway on loopback: real TLS, real upstreams, certificates from our own CA.

mod identity;
mod limits;
mod proxying;
mod serving;
pub(crate) mod upstream;
pub(crate) mod world;
