//! Tests of the gateway on loopback, with real TLS, real backends and certificates from our own CA.

mod access;
mod audits;
pub(crate) mod backend;
mod content;
mod faults;
mod frames;
mod grpc;
mod heads;
mod http2;
mod http_backend;
mod identity;
mod last_uses;
mod limits;
mod memory;
mod metrics;
mod neighbours;
mod own_certificates;
mod pool;
mod proxying;
mod refused;
mod resent;
mod revocation;
mod strangers;
mod tls_backend;
mod unread;
mod upgrades;
mod uploads;
