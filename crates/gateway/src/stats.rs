//! The gateway's metrics.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rustls::sign::CertifiedKey;

use crate::certificates::validity;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_telemetry::metrics::{SignerLabel, add, add_seconds};

/// What has happened since the gateway started.
#[derive(Debug)]
pub struct GatewayStats {
    /// TCP connections accepted.
    pub connections: Counter,
    /// Of these, connections that were closed because there were too many.
    pub over_capacity: Counter,
    /// Of these, connections that were closed because their identity had too many.
    pub identity_over_capacity: Counter,
    /// Of these, connections that were closed because the addons of their cluster together had too many.
    pub cluster_over_capacity: Counter,
    /// Of these, connections that were refused and closed before their first request, because newer ones needed the
    /// slot.
    pub refusals_unanswered: Counter,
    /// Of these, connections that were closed because no configuration was in effect (invariant I11).
    pub not_configured: Counter,
    /// Handshakes that failed: no certificate, an untrusted one, not TLS 1.3.
    pub handshakes_failed: Counter,
    /// Handshakes that took too long.
    pub handshakes_slow: Counter,
    /// Handshakes whose slot a newer connection took.
    pub handshakes_displaced: Counter,
    /// Calls.
    pub requests: Counter,
    /// Calls that were answered with a problem response.
    pub problems: Counter,
    /// Connections that were closed because the identity lost trust or standing, or its certificate expired or was
    /// revoked (invariant I15).
    pub sessions_ended: Counter,
    /// Connections that were closed because the client was idle or took no data.
    pub idle_ended: Counter,
    /// For each forwarded call: the time until the response began or the backend failed, without the backend's share.
    own_time: Histogram,
    /// For each forwarded call: the time from the request to the backend until its response began or it failed.
    backend_time: Histogram,
}

impl GatewayStats {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let mut counter = |name: &str, help: &str| add(registry, &format!("gateway_{name}"), help);
        Self {
            connections: counter("connections", "TCP connections accepted"),
            over_capacity: counter("connections_over_capacity", "Connections closed because there were too many"),
            identity_over_capacity: counter(
                "connections_identity_over_capacity",
                "Connections closed because their identity had too many",
            ),
            cluster_over_capacity: counter(
                "connections_cluster_over_capacity",
                "Connections closed because the addons of their cluster had too many together",
            ),
            refusals_unanswered: counter(
                "refusals_unanswered",
                "Connections refused and closed before their first request, because newer ones needed the slot",
            ),
            not_configured: counter(
                "connections_not_configured",
                "Connections closed because no configuration was in effect",
            ),
            handshakes_failed: counter("handshakes_failed", "TLS handshakes that failed"),
            handshakes_slow: counter("handshakes_slow", "TLS handshakes that took too long"),
            handshakes_displaced: counter("handshakes_displaced", "TLS handshakes whose slot a newer connection took"),
            requests: counter("requests", "Calls"),
            problems: counter("problems", "Calls answered with a problem response"),
            sessions_ended: counter(
                "sessions_ended",
                "Connections closed because trust or standing was lost, or the certificate expired or was revoked",
            ),
            idle_ended: counter("idle_ended", "Connections closed because the client was idle or took no data"),
            own_time: add_seconds(
                registry,
                "gateway_own",
                "Time until a response began, without the backend's",
                1e-4,
                16,
            ),
            backend_time: add_seconds(
                registry,
                "gateway_backend",
                "Time of backends until their responses began",
                1e-3,
                20,
            ),
        }
    }

    /// Notes how long a forwarded call took until its response began or failed, and how much of that was the backend's
    /// time.
    pub(super) fn forwarded(&self, whole: Duration, backend: Duration) {
        self.backend_time.observe(backend.as_secs_f64());
        self.own_time.observe(whole.saturating_sub(backend).as_secs_f64());
    }
}

/// When each certificate of the process itself expires. A signer with an inventory has one too.
#[derive(Debug, Clone)]
pub struct CertificateEnds(Family<SignerLabel, Gauge>);

impl CertificateEnds {
    /// Registers the metric.
    pub fn register(registry: &mut Registry) -> Self {
        Self(add(
            registry,
            "gateway_certificate_end_timestamp_seconds",
            "When each certificate of the gateway expires, in Unix time; 0 while it has none",
        ))
    }

    /// Notes the certificate that the process has now.
    pub fn holds(&self, certificate: GatewayCertificate, pair: Option<&CertifiedKey>) {
        let end = validity(pair).map_or(0, |validity| validity.end().unix());
        self.0.get_or_create(&SignerLabel::of(certificate.name())).set(end);
    }
}

/// Metrics that nobody reads.
impl Default for GatewayStats {
    fn default() -> Self {
        Self::register(&mut Registry::default())
    }
}
