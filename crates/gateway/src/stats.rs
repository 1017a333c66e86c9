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
use crate::traffic::{OpenSession, RouteTraffic, TrafficStats};
use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::trust::Trust;
use addon_signer_telemetry::labels;
use addon_signer_telemetry::metrics::{Registry, SignerLabel, add, add_seconds};

/// How often labels of removed addons and routes are dropped. A request that began before a route was removed may bring
/// its label back.
const SWEEP: Duration = Duration::from_secs(60);

const HANDSHAKES_FAILED: &str = "TLS handshakes that failed. cause: the client sent no_certificate, or one that has \
                                 expired, is of an unknown_authority, or is a bad_certificate for another reason; it \
                                 speaks something else (not_tls) or an older version of TLS; it refused, for instance \
                                 because it does not trust the gateway (alert), or left (closed); or other";
const OF_CLUSTER: &str =
    "Connections ended because the addons of their cluster together had four times --gateway-identity-connections";
const LARGE_HEADS: &str =
    "HTTP/2 connections ended because they had 2 heads of several frames, or 8 of more than 4 KiB (limits.md)";
const OWN: &str = "Of each forwarded request: the time until its response began, or the backend failed, that was \
                     not the backend's";

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
    /// Requests under way.
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
    /// Requests, bytes and sessions of each addon.
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
            add(registry, "gateway_handshakes_failed", HANDSHAKES_FAILED);
        for failure in HandshakeFailure::ALL {
            drop(handshakes_failed.get_or_create(&CauseLabel { cause: failure.as_str() }));
        }
        let [own_time, backend_time] = times(registry);
        let problems = add(
            registry,
            "gateway_problems",
            "Requests that the gateway answered with a problem, by its name; each is there from its first",
        );
        let requests = add(registry, "gateway_requests_in_flight", "Requests under way");
        let mut counter = |name: &str, help: &str| add(registry, &format!("gateway_{name}"), help);
        Self {
            connections: counter("connections", "TCP connections that were accepted"),
            over_capacity: counter(
                "connections_over_capacity",
                "Connections closed after their handshake, because there were already --gateway-connections",
            ),
            identity_over_capacity: counter(
                "connections_identity_over_capacity",
                "Connections ended because their addon already had --gateway-identity-connections from its cluster",
            ),
            cluster_over_capacity: counter("connections_cluster_over_capacity", OF_CLUSTER),
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
                "TLS handshakes that got no permit or lost it to a newer connection, because there were too many",
            ),
            sessions_ended: counter(
                "sessions_ended",
                "Connections ended because trust or eligibility was lost, or the certificate expired or was revoked",
            ),
            large_heads_ended: counter("large_heads_ended", LARGE_HEADS),
            idle_ended: counter(
                "idle_ended",
                "Connections ended because the client was idle, or read an answer at less than 256 bytes a second",
            ),
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

/// The gateway's own time for requests, and the backends'.
fn times(registry: &mut Registry) -> [Histogram; 2] {
    let own = add_seconds(registry, "gateway_own", OWN, 1e-4, 16);
    let help = "Of each forwarded request: the time from the gateway's request to the backend until its response \
                 began, or the backend failed, with the upload of the body";
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
