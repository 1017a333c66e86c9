//! The metrics of the hub's parts.

use prometheus_client::registry::Registry;

use crate::authorities::metrics::AuthorityMetrics;
use crate::distribution::metrics::DistributionMetrics;
use crate::recording::metrics::RecordingMetrics;
use crate::registrations::metrics::RegistrationMetrics;
use crate::requests::metrics::RequestMetrics;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_ledger::LedgerMetrics;

/// The metrics of all parts of the hub.
#[derive(Debug, Clone)]
pub struct HubMetrics {
    pub(crate) requests: RequestMetrics,
    pub(crate) authorities: AuthorityMetrics,
    pub(crate) registrations: RegistrationMetrics,
    pub(crate) distribution: DistributionMetrics,
    pub(crate) recording: RecordingMetrics,
    /// Those of the ledger's writer, which the hub runs.
    pub ledger: LedgerMetrics,
}

/// Metrics that nobody reads.
impl Default for HubMetrics {
    fn default() -> Self {
        Self::register(&mut Registry::default())
    }
}

impl HubMetrics {
    /// Registers the metrics. The counters of the gateway's own signer start at zero.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: RequestMetrics::register(registry),
            authorities: AuthorityMetrics::register(registry),
            registrations: RegistrationMetrics::register(registry),
            distribution: DistributionMetrics::register(registry),
            recording: RecordingMetrics::register(registry),
            ledger: LedgerMetrics::register(registry),
        };
        GatewayCertificate::ALL.iter().for_each(|certificate| metrics.serve(certificate.name()));
        metrics
    }

    /// Starts the counters of a signer at zero, unless they exist.
    pub(crate) fn serve(&self, signer: &str) {
        self.requests.serve(signer);
        self.authorities.serve(signer);
    }

    /// Drops the gauges of a signer that is no longer served.
    pub(crate) fn stop(&self, signer: &str) {
        self.requests.foreign_certificates(signer, None);
        self.distribution.missing(signer, None);
    }
}
