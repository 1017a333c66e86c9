//! The gateway's metrics. No label names a cluster or an agent: a fleet has thousands of them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::certificates::validity;
use crate::listener::HandshakeFailure;
use crate::traffic::TrafficStats;
use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::trust::Trust;
use addon_signer_telemetry::metrics::{Registry, SignerLabel, add};
use addon_signer_telemetry::{labels, metrics};

/// How often labels of removed addons and routes are dropped. A request that began before a route was removed may bring
/// its label back.
const SWEEP: Duration = Duration::from_secs(60);

labels! {
    /// Label: why a handshake failed.
    #[derive(Copy)]
    struct CauseLabel {
        cause: &'static str,
    }
}

labels! {
    /// Label: the name of a problem, of which this program has some thirty.
    #[derive(Copy)]
    struct ProblemLabel {
        problem: &'static str,
    }
}

metrics! {
    /// What has happened since the gateway started.
    #[derive(Debug)]
    pub struct GatewayStats {
        /// Requests, bytes and sessions of each addon.
        pub(super) traffic: TrafficStats,
        /// TLS handshakes that failed. cause: the client sent no_certificate, or one that has expired, is of an
        /// unknown_authority, or is a bad_certificate for another reason; it speaks something else (not_tls) or an
        /// older version of TLS; it refused, for instance because it does not trust the gateway (alert), or left
        /// (closed); or other.
        handshakes_failed: Family<CauseLabel, Counter> = add("gateway_handshakes_failed"),
        /// Of each forwarded request: the time until its response began, or the backend failed, that was not the
        /// backend's.
        own_time: Histogram = add_seconds("gateway_own", 1e-4, 16),
        /// Of each forwarded request: the time from the gateway's request to the backend until its response began, or
        /// the backend failed, with the upload of the body.
        backend_time: Histogram = add_seconds("gateway_backend", 1e-3, 20),
        /// Requests that the gateway answered with a problem, by its name; each is there from its first.
        problems: Family<ProblemLabel, Counter> = add("gateway_problems"),
        /// Requests under way.
        pub requests: Gauge = add("gateway_requests_in_flight"),
        /// TCP connections that were accepted.
        pub connections: Counter = add("gateway_connections"),
        /// Connections closed after their handshake, because there were already --gateway-connections.
        pub over_capacity: Counter = add("gateway_connections_over_capacity"),
        /// Connections ended because their addon already had --gateway-identity-connections from its cluster.
        pub identity_over_capacity: Counter = add("gateway_connections_identity_over_capacity"),
        /// Connections ended because the addons of their cluster together had four times
        /// --gateway-identity-connections.
        pub cluster_over_capacity: Counter = add("gateway_connections_cluster_over_capacity"),
        /// Connections refused and closed before their first request, because newer ones needed the permit.
        pub refusals_unanswered: Counter = add("gateway_refusals_unanswered"),
        /// Connections closed because no configuration was in effect.
        // Invariant I11.
        pub not_configured: Counter = add("gateway_connections_not_configured"),
        /// TLS handshakes that took too long.
        pub handshakes_slow: Counter = add("gateway_handshakes_slow"),
        /// TLS handshakes that got no permit or lost it to a newer connection, because there were too many.
        pub handshakes_displaced: Counter = add("gateway_handshakes_displaced"),
        /// Connections ended because trust or eligibility was lost, or the certificate expired or was revoked.
        // Invariant I15.
        pub sessions_ended: Counter = add("gateway_sessions_ended"),
        /// HTTP/2 connections ended because they had 2 heads of several frames, or 8 large ones (limits.md).
        pub large_heads_ended: Counter = add("gateway_large_heads_ended"),
        /// HTTP/2 connections ended because pieces of bodies that no backend took kept more than 128
        /// buffers (limits.md).
        pub unread_bodies_ended: Counter = add("gateway_unread_bodies_ended"),
        /// Connections ended because the client was idle, or read an answer at less than 256 bytes a second.
        pub idle_ended: Counter = add("gateway_idle_ended"),
    }
}

impl GatewayStats {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let stats = Self::add_all(registry);
        for failure in HandshakeFailure::ALL {
            drop(stats.handshakes_failed.get_or_create(&CauseLabel { cause: failure.as_str() }));
        }
        stats
    }

    /// Notes that a handshake failed.
    pub(super) fn handshake_failed(&self, failure: HandshakeFailure) {
        self.handshakes_failed.get_or_create(&CauseLabel { cause: failure.as_str() }).inc();
    }

    /// Notes that a request was answered with this problem.
    pub(super) fn problem(&self, problem: &'static str) {
        self.problems.get_or_create(&ProblemLabel { problem }).inc();
    }

    /// Runs forever: drops the labels of addons and AddOnRoutes that were removed.
    pub(super) async fn keep(
        &self,
        mut trust: watch::Receiver<Arc<Trust>>,
        mut routes: watch::Receiver<Arc<RouteTable>>,
    ) -> Infallible {
        loop {
            let (trusted, table) = (Arc::clone(&trust.borrow_and_update()), Arc::clone(&routes.borrow_and_update()));
            self.traffic.sweep(&trusted, &table);
            tokio::select! {
                Ok(()) = trust.changed() => {}
                Ok(()) = routes.changed() => {}
                () = tokio::time::sleep(SWEEP) => {}
            }
        }
    }

    /// Notes how long a forwarded request took until its response began or failed, and how much of that was the
    /// backend's time.
    pub(super) fn forwarded(&self, own: Duration, backend: Duration) {
        self.backend_time.observe(backend.as_secs_f64());
        self.own_time.observe(own.as_secs_f64());
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
            "When each certificate of the gateway, or of the inventory, expires, in Unix time; 0 while it has none. \
             signer is gateway-serving, or gateway-client for the one that backends are shown, which exists once an \
             AddOnRoute needs it",
        ))
    }

    /// Notes the certificate that the process has now.
    pub fn holds(&self, certificate: GatewayCertificate, pair: Option<&CertifiedKey>) {
        let end = validity(pair).map_or(0, |validity| validity.end().unix());
        self.0.get_or_create(&SignerLabel::of(certificate.name())).set(end);
    }
}

/// Metrics that are exported nowhere.
impl Default for GatewayStats {
    fn default() -> Self {
        Self::register(&mut Registry::default())
    }
}
