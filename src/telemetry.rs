//! Logs and metrics. Metric names begin with `addon_signer_`; labels are bounded by the number of signers and of reasons.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// Label: which signer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SignerLabel {
    signer: String,
}

/// Labels: which signer, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    signer: String,
    reason: String,
}

/// The hub's counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    issued: Family<SignerLabel, Counter>,
    refused: Family<RefusalLabels, Counter>,
    rate_limited: Family<SignerLabel, Counter>,
}

impl Metrics {
    /// All counters at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("addon_signer");
        let (issued, refused, rate_limited) = (Family::default(), Family::default(), Family::default());
        registry.register("certificates_issued", "Certificates published on requests", issued.clone());
        registry.register("requests_refused", "Requests denied or failed, by reason", refused.clone());
        registry.register(
            "requests_rate_limited",
            "Requests that had to wait for their identity",
            rate_limited.clone(),
        );
        Self { registry: Arc::new(registry), issued, refused, rate_limited }
    }

    pub(crate) fn issued(&self, signer: &str) {
        self.issued.get_or_create(&SignerLabel { signer: signer.to_owned() }).inc();
    }

    pub(crate) fn refused(&self, signer: &str, reason: &str) {
        let labels = RefusalLabels { signer: signer.to_owned(), reason: reason.to_owned() };
        self.refused.get_or_create(&labels).inc();
    }

    pub(crate) fn rate_limited(&self, signer: &str) {
        self.rate_limited.get_or_create(&SignerLabel { signer: signer.to_owned() }).inc();
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// When the text cannot be formatted.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
