//! The metrics of the process: each part has its own.

use std::sync::Arc;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::roles::Roles;
use addon_signer_gateway::{CertificateEnds, GatewayStats};
use addon_signer_hub::metrics::HubMetrics;
use addon_signer_telemetry::labels;
use addon_signer_telemetry::metrics::{Description, Metrics, Registry, add};

labels! {
    /// Labels: which program this is, and what it does.
    struct BuildLabels {
        version: &'static str,
        roles: String,
    }
}

/// Every metric of the program, for the reference.
pub fn metrics() -> Vec<Description> {
    ProcessMetrics::register(Roles::Both).all.described().to_vec()
}

/// All metrics, and the handles of those who set them.
#[derive(Clone)]
pub(super) struct ProcessMetrics {
    pub(super) all: Metrics,
    pub(super) hub: HubMetrics,
    pub(super) gateway: Arc<GatewayStats>,
    pub(super) certificate_ends: CertificateEnds,
    pub(super) registry_age: Gauge,
}

impl ProcessMetrics {
    /// Registers those of the process's roles. An alert on a ledger that cannot be written must not fire for a process
    /// that has none.
    pub(super) fn register(roles: Roles) -> Self {
        let (all, (hub, gateway, certificate_ends, registry_age)) = Metrics::new(|registry| {
            let mut unread = Registry::default();
            let build: Family<BuildLabels, Gauge> =
                add(registry, "build_info", "Always 1: the version of the program, and its --roles");
            build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION"), roles: roles.to_string() }).set(1);
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
