//! Metrics of the trust bundle's delivery to clusters.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use addon_signer_telemetry::metrics::{SignerLabel, add, count};

/// How far the trust bundle has reached.
#[derive(Debug, Clone)]
pub(crate) struct DistributionMetrics {
    works_written: Counter,
    missing: Family<SignerLabel, Gauge>,
    /// None until the API server has answered.
    protected: Family<[(&'static str, &'static str); 0], Gauge>,
}

impl DistributionMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            works_written: add(
                registry,
                "trust_works_written",
                "ManifestWorks with the trust bundle that the hub created, changed or deleted",
            ),
            missing: add(
                registry,
                "trust_missing",
                "Addons on clusters that have not applied the present trust bundle by their ManifestWork",
            ),
            protected: add(
                registry,
                "trust_bundle_protected",
                "1 while a policy keeps others from setting the trust bundle that agents take from their CSRs",
            ),
        }
    }

    pub(super) fn work_written(&self) {
        self.works_written.inc();
    }

    /// Sets whether only the hub can set the trust bundle on requests.
    pub(crate) fn bundle_protected(&self, is_protected: bool) {
        self.protected.get_or_create(&[]).set(i64::from(is_protected));
    }

    /// Sets how many addons on clusters lack the present trust bundle; `None` if the hub delivers it to none of them.
    pub(crate) fn missing(&self, signer: &str, addons: Option<usize>) {
        let label = SignerLabel::of(signer);
        match addons {
            Some(addons) => _ = self.missing.get_or_create(&label).set(count(addons)),
            None => _ = self.missing.remove(&label),
        }
    }
}
