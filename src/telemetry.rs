//! Metrics. Metric names begin with `addon_signer_`; labels are bounded by the number of signers and of reasons.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

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
    held: Family<SignerLabel, Counter>,
    authorities_forced: Family<SignerLabel, Counter>,
    ledger_up: Gauge,
    ledger_entries: Gauge,
    registrations_written: Counter,
    registrations_left: Family<SignerLabel, Gauge>,
}

impl Metrics {
    /// Metrics with all counters at zero. `register` adds the metrics of other parts of the process.
    pub fn new(register: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::with_prefix("addon_signer");
        let issued = Family::default();
        let refused = Family::default();
        let rate_limited = Family::default();
        let held = Family::default();
        registry.register("certificates_issued", "Certificates published on requests", issued.clone());
        registry.register("requests_refused", "Requests denied or failed, by reason", refused.clone());
        registry.register(
            "requests_rate_limited",
            "Requests that had to wait because their addon or cluster had too many certificates",
            rate_limited.clone(),
        );
        registry.register(
            "requests_held",
            "Requests that wait because the ledger holds something else than their certificate",
            held.clone(),
        );
        let authorities_forced = Family::default();
        registry.register(
            "authorities_forced",
            "Authorities that sign without evidence that everybody trusts them, because the one before them ended",
            authorities_forced.clone(),
        );
        let ledger_up = Gauge::default();
        let ledger_entries = Gauge::default();
        registry.register(
            "ledger_up",
            "1 while decisions can be recorded; 0 while nothing is signed",
            ledger_up.clone(),
        );
        registry.register("ledger_entries", "Number of the ledger's last entry", ledger_entries.clone());
        let registrations_written = Counter::default();
        let registrations_left = Family::default();
        registry.register(
            "registrations_written",
            "Changes of status.registrations of ManagedClusterAddOns",
            registrations_written.clone(),
        );
        registry.register(
            "registrations_left",
            "ManagedClusterAddOns whose registrations the hub leaves to another program",
            registrations_left.clone(),
        );
        register(&mut registry);
        Self {
            registry: Arc::new(registry),
            issued,
            refused,
            rate_limited,
            held,
            authorities_forced,
            ledger_up,
            ledger_entries,
            registrations_written,
            registrations_left,
        }
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

    pub(crate) fn held(&self, signer: &str) {
        self.held.get_or_create(&SignerLabel { signer: signer.to_owned() }).inc();
    }

    pub(crate) fn authority_forced(&self, signer: &str) {
        self.authorities_forced.get_or_create(&SignerLabel { signer: signer.to_owned() }).inc();
    }

    pub(crate) fn registrations_written(&self) {
        self.registrations_written.inc();
    }

    /// Sets how many addons of each signer are left to another program. A signer that is not in `signers` loses its
    /// metric.
    pub(crate) fn registrations_left<'s>(&self, signers: impl Iterator<Item = (&'s str, usize)>) {
        self.registrations_left.clear();
        for (signer, addons) in signers {
            let label = SignerLabel { signer: signer.to_owned() };
            self.registrations_left.get_or_create(&label).set(i64::try_from(addons).unwrap_or(i64::MAX));
        }
    }

    /// Sets the state of the ledger: the number of its last entry, or `None` while it cannot be written to.
    pub(crate) fn ledger(&self, last: Option<u64>) {
        self.ledger_up.set(i64::from(last.is_some()));
        if let Some(last) = last {
            self.ledger_entries.set(i64::try_from(last).unwrap_or(i64::MAX));
        }
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
