//! The gateway's metrics. No label names a cluster or an agent: a fleet has thousands of them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::certificates::validity;
use crate::listener::HandshakeFailure;
use crate::traffic::{OpenSession, RouteTraffic, TrafficStats};
use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::trust::Trust;
use addon_signer_telemetry::metrics::{SignerLabel, add, add_seconds};

/// How often the labels of what is gone are looked for. A request that began before a route was removed may name the
/// route again afterwards.
const SWEEP: Duration = Duration::from_secs(60);

/// Label: why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

/// Label: the name of a problem, of which this program has some thirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProblemLabel {
    problem: &'static str,
}

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
    /// permit.
    pub refusals_unanswered: Counter,
    /// Of these, connections that were closed because no configuration was in effect (invariant I11).
    pub not_configured: Counter,
    /// Handshakes that failed, by cause.
    handshakes_failed: Family<CauseLabel, Counter>,
    /// Handshakes that took too long.
    pub handshakes_slow: Counter,
    /// Handshakes whose permit a newer connection took.
    pub handshakes_displaced: Counter,
    /// Calls under way.
    pub requests: Gauge,
    /// Requests that were answered with a problem response, by its name.
    problems: Family<ProblemLabel, Counter>,
    /// Connections that were closed because the identity lost trust or eligibility, or its certificate expired or was
    /// revoked (invariant I15).
    pub sessions_ended: Counter,
    /// Connections that were closed because the client was idle or took no data.
    pub idle_ended: Counter,
    /// Connections that were ended because of too many large heads of HTTP/2.
    pub large_heads_ended: Counter,
    /// Calls, bytes and sessions of each addon.
    traffic: TrafficStats,
    /// For each forwarded request: the time until the response began or the backend failed, without the backend's
    /// share.
    own_time: Histogram,
    /// For each forwarded request: the time from the request to the backend until its response began or it failed.
    backend_time: Histogram,
}

impl GatewayStats {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let traffic = TrafficStats::register(registry);
        let handshakes_failed: Family<CauseLabel, Counter> =
            add(registry, "gateway_handshakes_failed", "TLS handshakes that failed, by cause");
        for failure in HandshakeFailure::ALL {
            drop(handshakes_failed.get_or_create(&CauseLabel { cause: failure.as_str() }));
        }
        let [own_time, backend_time] = times(registry);
        let problems = add(registry, "gateway_problems", "Calls answered with a problem response, by its name");
        let requests = add(registry, "gateway_requests_in_flight", "Calls under way");
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
                "Connections refused and closed before their first request, because newer ones needed the permit",
            ),
            not_configured: counter(
                "connections_not_configured",
                "Connections closed because no configuration was in effect",
            ),
            handshakes_slow: counter("handshakes_slow", "TLS handshakes that took too long"),
            handshakes_displaced: counter(
                "handshakes_displaced",
                "TLS handshakes whose permit a newer connection took",
            ),
            sessions_ended: counter(
                "sessions_ended",
                "Connections closed because trust or eligibility was lost, or the certificate expired or was revoked",
            ),
            large_heads_ended: counter(
                "large_heads_ended",
                "Connections ended because of too many large heads of HTTP/2",
            ),
            idle_ended: counter("idle_ended", "Connections closed because the client was idle or took no data"),
            handshakes_failed,
            requests,
            problems,
            traffic,
            own_time,
            backend_time,
        }
    }

    /// Notes that a handshake failed.
    pub(super) fn handshake_failed(&self, failure: HandshakeFailure) {
        self.handshakes_failed.get_or_create(&CauseLabel { cause: failure.as_str() }).inc();
    }

    /// Notes that a request was answered with this problem.
    pub(super) fn problem(&self, problem: &'static str) {
        self.problems.get_or_create(&ProblemLabel { problem }).inc();
    }

    /// Counts a connection of an addon as open.
    pub(super) fn session(&self, addon: &str) -> OpenSession {
        self.traffic.session(addon)
    }

    /// The counters of an addon's requests on a route.
    pub(super) fn traffic(&self, addon: &str, route: &str) -> Arc<RouteTraffic> {
        self.traffic.of(addon, route)
    }

    /// Runs forever: drops the labels of addons and AddOnRoutes that are gone.
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

/// The gateway's own time for requests, and the backends'.
fn times(registry: &mut Registry) -> [Histogram; 2] {
    let own = add_seconds(registry, "gateway_own", "Time until a response began, without the backend's", 1e-4, 16);
    let help = "Time of backends until their responses began";
    [own, add_seconds(registry, "gateway_backend", help, 1e-3, 20)]
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
