//! Metrics of what the ledger knows.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use addon_signer_telemetry::metrics::{SignerLabel, add, count};

/// What a restored backup has left different from the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The checkpoint that was published last.
    Checkpoint,
    /// Requests with certificates that the ledger lacks.
    Requests,
    /// Authorities in a Secret.
    Authorities,
}

impl Difference {
    const ALL: [Self; 3] = [Self::Checkpoint, Self::Requests, Self::Authorities];

    fn label(self) -> DifferenceLabel {
        let from = match self {
            Self::Checkpoint => "checkpoint",
            Self::Requests => "requests",
            Self::Authorities => "authorities",
        };
        DifferenceLabel { from }
    }
}

/// Label: what the ledger differs from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DifferenceLabel {
    from: &'static str,
}

/// Labels: an authority of a signer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IssuerLabels {
    signer: String,
    authority: String,
}

/// What the ledger knows.
#[derive(Debug, Clone)]
pub(crate) struct RecordingMetrics {
    differs: Family<DifferenceLabel, Counter>,
    unrenewed: Family<SignerLabel, Gauge>,
    valid: Family<IssuerLabels, Gauge>,
}

impl RecordingMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let differs: Family<DifferenceLabel, Counter> =
            add(registry, "ledger_differs", "Differences from the ledger found when a hub begins to lead");
        for difference in Difference::ALL {
            drop(differs.get_or_create(&difference.label()));
        }
        let unrenewed = add(
            registry,
            "certificates_unrenewed",
            "Certificates that expire within a day, have less than a sixth of their life left and no successor",
        );
        let valid =
            add(registry, "certificates_valid", "Certificates that have not expired, by the authority that signed");
        Self { differs, unrenewed, valid }
    }

    /// Counts what a restored backup has left different.
    pub(crate) fn differs(&self, difference: Difference, times: usize) {
        self.differs.get_or_create(&difference.label()).inc_by(u64::try_from(times).unwrap_or(u64::MAX));
    }

    /// Sets how many certificates of each signer should have been renewed. A signer that is not in `signers` loses its
    /// metric.
    pub(super) fn unrenewed<'s>(&self, signers: impl Iterator<Item = (&'s str, usize)>) {
        self.unrenewed.clear();
        for (signer, certificates) in signers {
            self.unrenewed.get_or_create(&SignerLabel::of(signer)).set(count(certificates));
        }
    }

    /// Sets how many certificates of each authority, by signer and id, are valid. Others lose their metric.
    pub(super) fn valid(&self, authorities: impl Iterator<Item = (String, String, u64)>) {
        self.valid.clear();
        for (signer, authority, certificates) in authorities {
            let labels = IssuerLabels { signer, authority };
            self.valid.get_or_create(&labels).set(i64::try_from(certificates).unwrap_or(i64::MAX));
        }
    }
}
