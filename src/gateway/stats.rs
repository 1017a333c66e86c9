//! Counters, for metrics: the gateway adds, others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What has happened since the gateway started.
#[derive(Debug, Default)]
pub struct GatewayStats {
    /// TCP connections accepted.
    pub connections: Counter,
    /// Of these, closed because there were too many.
    pub over_capacity: Counter,
    /// Of these, closed because no configuration was in effect (invariant I11).
    pub not_configured: Counter,
    /// Handshakes that failed: no certificate, an untrusted one, not TLS 1.3.
    pub handshakes_failed: Counter,
    /// Handshakes that took too long.
    pub handshakes_slow: Counter,
    /// Requests.
    pub requests: Counter,
    /// Requests that were answered by a problem.
    pub problems: Counter,
    /// Connections that were ended because the identity lost trust, standing or life (invariant I15).
    pub sessions_ended: Counter,
    /// Connections that were ended because the client was idle or took no data.
    pub idle_ended: Counter,
}
