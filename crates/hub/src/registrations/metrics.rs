//! Metrics of registrations.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use addon_signer_telemetry::metrics::{SignerLabel, add, count};

/// What the hub writes into ManagedClusterAddOns.
#[derive(Debug, Clone)]
pub struct RegistrationMetrics {
    written: Counter,
    left: Family<SignerLabel, Gauge>,
}

impl RegistrationMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            written: add(registry, "registrations_written", "Changes of status.registrations of ManagedClusterAddOns"),
            left: add(
                registry,
                "registrations_left",
                "ManagedClusterAddOns whose registrations the hub leaves to another program",
            ),
        }
    }

    pub(super) fn written(&self) {
        self.written.inc();
    }

    /// Sets how many addons of each signer are left to another program. A signer that is not in `signers` loses its
    /// metric.
    pub(super) fn left<'s>(&self, signers: impl Iterator<Item = (&'s str, usize)>) {
        self.left.clear();
        for (signer, addons) in signers {
            self.left.get_or_create(&SignerLabel::of(signer)).set(count(addons));
        }
    }
}
