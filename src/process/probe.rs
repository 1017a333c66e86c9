//! What monitoring asks: `/healthz`, `/readyz` and `/metrics`. Each part of the process has its own metrics.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Roles;
use super::registry_age::RegistryAge;
use super::running::OwnCertificate;
use addon_signer_core::gateway::protected::ProtectedAddresses;
use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::lease::LEASE_NAME;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::registry::Registry;
use addon_signer_core::table;
use addon_signer_gateway::certificates::is_current;
use addon_signer_gateway::listener::serve_plain;
use addon_signer_gateway::{CertificateEnds, GatewayStats};
use addon_signer_hub::lease::{Leadership, Leading};
use addon_signer_hub::metrics::HubMetrics;
use addon_signer_ledger::{Health, Location};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_platform::version::{COMMIT, VERSION};
use addon_signer_telemetry::labels;
use addon_signer_telemetry::metrics::{Description, Metrics, Registry as MetricsRegistry, add};
use addon_signer_telemetry::pulse::{HANGS_AFTER, Pulses};

/// The server of the metrics address.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(super) metrics: ProcessMetrics,
    pub(crate) age: RegistryAge,
    pub(crate) pulses: Pulses,
    /// The certificate for agents and the API server; `None` if this process needs none.
    pub(super) serving: Option<OwnCertificate>,
    /// The certificate for backends.
    pub(super) client_certificate: Option<OwnCertificate>,
    /// The routes of the gateway, if this process serves it.
    pub(crate) routes: Option<watch::Receiver<Arc<RouteTable>>>,
    /// The addresses that no backend may have, if this process serves the gateway.
    pub(super) protected: Option<watch::Receiver<ProtectedAddresses>>,
    pub(crate) clock: Clock,
    /// The state of the signer, if this process signs.
    pub(super) signer: Option<SignerProbe>,
    /// Why the hub does not run yet; `None` if it runs.
    pub(crate) waiting: watch::Receiver<Option<String>>,
    /// Cancelled when the process was told to stop.
    pub(crate) leaving: CancellationToken,
}

/// The state of a signer.
#[derive(Clone)]
pub(super) struct SignerProbe {
    pub(super) leading: Leading,
    pub(super) ledger: watch::Receiver<Health>,
    pub(super) location: Location,
}

/// The response of a process that ends.
const SHUTTING_DOWN: &str = "this process is shutting down\n";

/// The watch of CSRs. A process that does not lead watches only its own CSRs, and only briefly.
const REQUESTS: &str = "certificatesigningrequests";

/// The watches that the process must read for as long as it has them.
const WATCHES: [&str; 6] =
    [REQUESTS, "addonroutes", "addonsigners", "managedclusteraddons", "managedclusters", "namespaces"];
/// The same in each namespace of backends, and in the hub's own.
const WATCHES_OF_BACKENDS: [&str; 2] = ["endpointslices", "services"];

/// Fails if a task hangs, so that Kubernetes restarts the process. A silent API server makes no task hang: calls time
/// out, and watches are requested again.
fn lives(pulses: &Pulses, contacts: &Contacts, signs: bool) -> (StatusCode, Cow<'static, str>) {
    let idle = contacts.idle(&WATCHES, HANGS_AFTER);
    let idle = idle.into_iter().filter(|resource| signs || *resource != REQUESTS).map(str::to_owned);
    let of_backends = contacts.idle_in_namespaces(&WATCHES_OF_BACKENDS, HANGS_AFTER);
    let watches = idle.chain(of_backends).map(|resource| format!("watch of {resource}"));
    let hanging: Vec<String> = pulses.silent(HANGS_AFTER).into_iter().chain(watches).collect();
    if hanging.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    let minutes = HANGS_AFTER.as_secs() / 60;
    let sentence = format!("no sign of life for {minutes} minutes: {}\n", hanging.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, sentence.into())
}

/// A header that every request forwarded by the gateway has, and no other request.
const FORWARDED: &str = "x-addon-signer-cluster";

/// Refuses requests that the gateway has forwarded. A Service in another namespace can lead to this address, and the
/// Service's own address does not show that.
async fn only_direct(request: Request, next: Next) -> Response {
    if request.headers().contains_key(FORWARDED) {
        return (StatusCode::FORBIDDEN, "the gateway forwards nothing to this address\n").into_response();
    }
    next.run(request).await
}

table! {
    /// The paths at the address of the metrics.
    pub PATHS of &str;
    /// 503 names the tasks and watches that have given no sign of life for 10 minutes, so that Kubernetes restarts the
    /// process; otherwise 200, even while the API server is silent.
    HEALTHZ = "/healthz";
    /// 200 once clusters and addons have been read and, for the roles that the process has: the hub leads (a signer
    /// without a gateway is ready while it waits, too); AddOnRoutes, and the pods and Services of the hub's namespace,
    /// have been read, and the gateway has a certificate that has not expired; a gateway apart has written its Lease.
    /// Otherwise 503 and what is missing, also before the API server has answered for the first time. With 200 it says
    /// if the ledger is unavailable, the API server is silent, or a gateway apart cannot write its Lease.
    READYZ = "/readyz";
    /// The metrics.
    METRICS = "/metrics";
}

impl Probe {
    /// Serves until `stop` is cancelled.
    pub(crate) async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let living = self.clone();
        let ready = self.clone();
        let router = Router::new()
            .route(HEALTHZ, get(move || async move { living.lives() }))
            .route(READYZ, get(move || async move { ready.ready() }))
            .route(METRICS, get(move || async move { self.text() }))
            .layer(from_fn(only_direct));
        serve_plain(listener, router, stop).await;
    }

    fn lives(&self) -> (StatusCode, Cow<'static, str>) {
        let leads = |signer: &SignerProbe| {
            matches!(signer.leading.leadership(), Leadership::Leader { .. } | Leadership::Unsure { .. })
        };
        lives(&self.pulses, &self.age.contacts, self.signer.as_ref().is_some_and(leads))
    }

    fn ready(&self) -> (StatusCode, Cow<'static, str>) {
        if self.leaving.is_cancelled() {
            return (StatusCode::SERVICE_UNAVAILABLE, SHUTTING_DOWN.into());
        }
        if let Some(reason) = &*self.waiting.borrow() {
            return (StatusCode::SERVICE_UNAVAILABLE, format!("the hub is not running yet: {reason}\n").into());
        }
        if let Some(refusal) = self.not_leading() {
            return (StatusCode::SERVICE_UNAVAILABLE, refusal.into());
        }
        if !self.age.registry.read(Registry::is_ready) {
            return (StatusCode::SERVICE_UNAVAILABLE, "clusters and addons have not been read yet\n".into());
        }
        if self.routes.as_ref().is_some_and(|routes| !routes.borrow().is_complete()) {
            return (StatusCode::SERVICE_UNAVAILABLE, "AddOnRoutes and Services have not been read yet\n".into());
        }
        // Without them the gateway uses no backend.
        if self.protected.as_ref().is_some_and(|protected| !protected.borrow().are_listed()) {
            let sentence = "the pods and Services of this namespace have not been read yet\n";
            return (StatusCode::SERVICE_UNAVAILABLE, sentence.into());
        }
        let age = self.age.age();
        if self.age.bounds.outdated.is_some_and(|bound| age > bound) {
            let sentence = format!("{}: the gateway refuses everybody\n", self.age.sentence());
            return (StatusCode::SERVICE_UNAVAILABLE, sentence.into());
        }
        let has_certificate = self.has_certificate();
        if !has_certificate && self.routes.is_some() {
            return (StatusCode::SERVICE_UNAVAILABLE, "the gateway has no valid certificate\n".into());
        }
        if age > self.age.bounds.stale {
            // Still ready: most of the gateway's data is still true, and another hub would know no more.
            let missed = "revocations since then are not known here";
            let what = if self.age.lacks_lease() { "it will refuse everybody" } else { missed };
            let sentence = format!("ok; {}: {what}\n", self.age.sentence());
            return (StatusCode::OK, sentence.into());
        }
        if !has_certificate {
            // Still ready: the signer that leads may be of another version, which ends only once this one is ready.
            return (StatusCode::OK, "ok; the inventory has no valid certificate yet\n".into());
        }
        (StatusCode::OK, self.signer.as_ref().map_or("ok\n".into(), SignerProbe::says))
    }

    /// Whether the gateway, or else the inventory, of this process has a valid certificate.
    fn has_certificate(&self) -> bool {
        let serves = |serving: &OwnCertificate| is_current(serving.borrow().as_deref(), self.clock.now());
        self.serving.as_ref().is_none_or(serves)
    }

    /// Why a process that signs is not ready: another one leads, or it ends. A signer without a gateway is ready while
    /// it waits, so that a rollout continues: no client sends requests to it.
    fn not_leading(&self) -> Option<String> {
        let SignerProbe { leading, .. } = self.signer.as_ref()?;
        match leading.leadership() {
            // Ready if unsure: an API server that does not answer must not make the gateway unavailable.
            Leadership::Leader { .. } | Leadership::Unsure { .. } => None,
            Leadership::Waiting(_) if self.routes.is_none() => None,
            Leadership::Waiting(why) => Some(format!("waiting for the Lease {LEASE_NAME}, {why}\n")),
            Leadership::Lost(_) | Leadership::Released => Some(SHUTTING_DOWN.to_owned()),
        }
    }

    fn text(&self) -> impl IntoResponse + use<> {
        let content_type = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
        for (certificate, held) in
            [(GatewayCertificate::Serving, &self.serving), (GatewayCertificate::Client, &self.client_certificate)]
        {
            if let Some(held) = held {
                self.metrics.certificate_ends.holds(certificate, held.borrow().as_deref());
            }
        }
        if let Some(SignerProbe { ledger, location, .. }) = &self.signer {
            self.metrics.hub.ledger.observe(&ledger.borrow(), location);
        }
        self.metrics.registry_age.set(i64::try_from(self.age.age().as_secs()).unwrap_or(i64::MAX));
        match self.metrics.all.render() {
            Ok(text) => (StatusCode::OK, content_type, text),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, content_type, String::new()),
        }
    }
}

impl SignerProbe {
    fn says(&self) -> Cow<'static, str> {
        if let Leadership::Waiting(why) = self.leading.leadership() {
            return format!("ok; waiting for the Lease {LEASE_NAME}, {why}\n").into();
        }
        match &*self.ledger.borrow() {
            Health::Up { .. } => "ok\n".into(),
            Health::Starting => "ok; the ledger is being opened\n".into(),
            // Still ready: the gateway works without the ledger, and Kubernetes would make it unavailable.
            Health::Down(error) => format!("ok; nothing is signed now: {error}\n").into(),
        }
    }
}

labels! {
    /// Labels: the version, the commit (empty if this is no release) and the roles of the program.
    struct BuildLabels {
        version: &'static str,
        commit: &'static str,
        roles: String,
    }
}

/// Every metric of the program, for the reference.
pub fn metrics() -> Vec<Description> {
    ProcessMetrics::register(Roles::Both).all.described().to_vec()
}

/// All metrics, and the handles for the parts that set them.
#[derive(Clone)]
pub(super) struct ProcessMetrics {
    pub(super) all: Metrics,
    pub(super) hub: HubMetrics,
    pub(super) gateway: Arc<GatewayStats>,
    pub(super) certificate_ends: CertificateEnds,
    pub(super) registry_age: Gauge,
}

impl ProcessMetrics {
    /// Registers the metrics of the process's roles only: an alert on a ledger that cannot be written must not fire for
    /// a process without a ledger.
    pub(super) fn register(roles: Roles) -> Self {
        let (all, (hub, gateway, certificate_ends, registry_age)) = Metrics::new(|registry| {
            let mut unread = MetricsRegistry::default();
            let build: Family<BuildLabels, Gauge> =
                add(registry, "build_info", "Always 1: which build the program is, and its --roles");
            build.get_or_create(&BuildLabels { version: VERSION, commit: COMMIT, roles: roles.to_string() }).set(1);
            let hub = HubMetrics::register(if roles.has_signer() { registry } else { &mut unread });
            let gateway = GatewayStats::register(if roles.has_gateway() { registry } else { &mut unread });
            let help = "Seconds since the API server was last heard from on the watches of clusters and addons; up \
                         to 60 when idle. With --roles gateway also on that of AddOnSigners, or since the gateway \
                         last wrote its Lease, whichever is longest ago";
            let ends = CertificateEnds::register(registry);
            (hub, Arc::new(gateway), ends, add(registry, "registry_age_seconds", help))
        });
        Self { all, hub, gateway, certificate_ends, registry_age }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_hangs_fails_the_liveness_probe_and_is_named() {
        let pulses = Pulses::default();
        let contacts = Contacts::default();
        let _hangs = pulses.start("authorities of telemetry");
        assert_eq!(lives(&pulses, &contacts, true).0, StatusCode::OK);
        tokio::time::advance(HANGS_AFTER + Duration::from_secs(1)).await;
        let (status, text) = lives(&pulses, &contacts, true);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "no sign of life for 10 minutes: authorities of telemetry\n");
    }

    #[test]
    fn only_a_leader_must_keep_reading_requests() {
        let (pulses, contacts) = (Pulses::default(), Contacts::default());
        contacts.answered(REQUESTS, Instant::now().checked_sub(HANGS_AFTER + Duration::from_secs(60)).unwrap());
        assert_eq!(lives(&pulses, &contacts, false).0, StatusCode::OK);
        let (status, text) = lives(&pulses, &contacts, true);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "no sign of life for 10 minutes: watch of certificatesigningrequests\n");
    }
}
