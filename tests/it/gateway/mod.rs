//! Tests of the gateway on loopback, with real TLS, real upstreams and certificates from our own CA.

mod audits;
mod content;
mod identity;
mod limits;
mod memory;
mod neighbours;
mod proxying;
mod refused;
mod revocation;
mod serving;
mod sightings;
mod strangers;
mod unread;
mod uploads;
pub(crate) mod upstream;
