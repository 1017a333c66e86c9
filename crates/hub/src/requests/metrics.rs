//! Metrics of requests.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use addon_signer_telemetry::metrics::{SignerLabel, add, add_seconds, at_zero, count};

/// Labels: which signer, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    signer: String,
    reason: String,
}

/// What became of requests.
#[derive(Debug, Clone)]
pub(crate) struct RequestMetrics {
    issued: Family<SignerLabel, Counter>,
    refused: Family<RefusalLabels, Counter>,
    rate_limited: Family<SignerLabel, Counter>,
    held: Family<SignerLabel, Counter>,
    foreign_certificates: Family<SignerLabel, Gauge>,
    seconds: Histogram,
}

impl RequestMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            issued: add(registry, "certificates_issued", "Certificates published on requests"),
            refused: add(registry, "requests_refused", "Requests denied or failed, by reason"),
            rate_limited: add(
                registry,
                "requests_rate_limited",
                "Requests that had to wait because their addon or cluster had too many certificates",
            ),
            held: add(
                registry,
                "requests_held",
                "Requests that wait because the ledger holds something other than their certificate",
            ),
            foreign_certificates: add(
                registry,
                "foreign_certificates",
                "Requests whose certificates none of the signer's authorities signed",
            ),
            seconds: add_seconds(
                registry,
                "request",
                "Time from when the hub first saw a request until its certificate was published",
                0.01,
                20, // an approval by people may take hours
            ),
        }
    }

    pub(crate) fn serve(&self, signer: &str) {
        for counter in [&self.issued, &self.rate_limited, &self.held] {
            at_zero(counter, signer);
        }
    }

    pub(super) fn issued(&self, signer: &str) {
        self.issued.get_or_create(&SignerLabel::of(signer)).inc();
    }

    pub(super) fn published_after(&self, time: Duration) {
        self.seconds.observe(time.as_secs_f64());
    }

    pub(super) fn refused(&self, signer: &str, reason: &str) {
        let labels = RefusalLabels { signer: signer.to_owned(), reason: reason.to_owned() };
        self.refused.get_or_create(&labels).inc();
    }

    pub(super) fn rate_limited(&self, signer: &str) {
        self.rate_limited.get_or_create(&SignerLabel::of(signer)).inc();
    }

    pub(super) fn held(&self, signer: &str) {
        self.held.get_or_create(&SignerLabel::of(signer)).inc();
    }

    /// Sets how many requests of a signer have a certificate that another program signed; `None` if nothing is known.
    pub(crate) fn foreign_certificates(&self, signer: &str, requests: Option<usize>) {
        let label = SignerLabel::of(signer);
        match requests {
            Some(requests) => _ = self.foreign_certificates.get_or_create(&label).set(count(requests)),
            None => _ = self.foreign_certificates.remove(&label),
        }
    }
}
