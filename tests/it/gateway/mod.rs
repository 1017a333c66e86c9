//! Tests of the gateway on loopback, with real TLS, real backends and certificates from our own CA.

mod audits;
pub(crate) mod backend;
mod content;
mod identity;
mod last_uses;
mod limits;
mod memory;
mod neighbours;
mod proxying;
mod refused;
mod revocation;
mod serving;
mod strangers;
mod unread;
mod uploads;
