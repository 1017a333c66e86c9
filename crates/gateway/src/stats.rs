//! Counters of the gateway, which become metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

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
    /// Connections of these that were closed because there were too many.
    pub over_capacity: Counter,
    /// Connections of these that were ended because their identity had too many.
    pub identity_over_capacity: Counter,
    /// Connections of these that were ended because the addons of their cluster had too many together.
    pub cluster_over_capacity: Counter,
    /// Connections of these that were refused and closed before they asked, because newer ones needed their place.
    pub refusals_unanswered: Counter,
    /// Connections of these that were closed because no configuration was in effect (invariant I11).
    pub not_configured: Counter,
    /// Handshakes that failed: no certificate, an untrusted one, not TLS 1.3.
    pub handshakes_failed: Counter,
    /// Handshakes that took too long.
    pub handshakes_slow: Counter,
    /// Handshakes whose place a newer connection took.
    pub handshakes_displaced: Counter,
    /// Requests.
    pub requests: Counter,
    /// Requests that were answered by a problem.
    pub problems: Counter,
    /// Connections that were ended because the identity lost trust or standing, or its certificate expired or was
    /// revoked (invariant I15).
    pub sessions_ended: Counter,
    /// Connections that were ended because the client was idle or took no data.
    pub idle_ended: Counter,
}

impl GatewayStats {
    /// Registers the counters as metrics.
    pub fn register(self: Arc<Self>, registry: &mut Registry) {
        registry.register_collector(Box::new(GatewayCounters(self)));
    }
}

/// Reads the gateway's counters whenever the metrics are read.
#[derive(Debug)]
struct GatewayCounters(Arc<GatewayStats>);

impl Collector for GatewayCounters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stats = &self.0;
        let counters = [
            ("gateway_connections", "TCP connections accepted", &stats.connections),
            (
                "gateway_connections_over_capacity",
                "Connections closed because there were too many",
                &stats.over_capacity,
            ),
            (
                "gateway_connections_identity_over_capacity",
                "Connections ended because their identity had too many",
                &stats.identity_over_capacity,
            ),
            (
                "gateway_connections_cluster_over_capacity",
                "Connections ended because the addons of their cluster had too many together",
                &stats.cluster_over_capacity,
            ),
            (
                "gateway_refusals_unanswered",
                "Connections refused and closed before they asked, because newer ones needed their place",
                &stats.refusals_unanswered,
            ),
            (
                "gateway_connections_not_configured",
                "Connections closed because no configuration was in effect",
                &stats.not_configured,
            ),
            ("gateway_handshakes_failed", "TLS handshakes that failed", &stats.handshakes_failed),
            ("gateway_handshakes_slow", "TLS handshakes that took too long", &stats.handshakes_slow),
            (
                "gateway_handshakes_displaced",
                "TLS handshakes whose place a newer connection took",
                &stats.handshakes_displaced,
            ),
            ("gateway_requests", "Requests", &stats.requests),
            ("gateway_problems", "Requests answered by a problem", &stats.problems),
            (
                "gateway_sessions_ended",
                "Connections ended because trust or standing was lost, or the certificate expired or was revoked",
                &stats.sessions_ended,
            ),
            ("gateway_idle_ended", "Connections ended because the client was idle or took no data", &stats.idle_ended),
        ];
        for (name, help, counter) in counters {
            let counter = ConstCounter::new(counter.get());
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}
