//! Metrics. Metric names begin with `addon_signer_`; labels are bounded by the number of signers and of reasons.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

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

/// Label: what the ledger differs from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DifferenceLabel {
    from: &'static str,
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
    ledger_differs: Family<DifferenceLabel, Counter>,
    ledger_available: Gauge,
    registry_age: Gauge,
    registrations_written: Counter,
    registrations_left: Family<SignerLabel, Gauge>,
    foreign_certificates: Family<SignerLabel, Gauge>,
    trust: TrustMetrics,
}

/// How far the trust bundle has reached.
#[derive(Debug, Clone)]
struct TrustMetrics {
    works_written: Counter,
    missing: Family<SignerLabel, Gauge>,
}

impl TrustMetrics {
    fn new(registry: &mut Registry) -> Self {
        let works_written = add(
            registry,
            "trust_works_written",
            "ManifestWorks with the trust bundle that the hub made, changed or deleted",
        );
        let missing = add(
            registry,
            "trust_missing",
            "Addons on clusters that have not applied the present trust bundle by their ManifestWork",
        );
        Self { works_written, missing }
    }
}

/// Registers a metric at zero.
fn add<M: Metric + Default + Clone>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// Metrics with all counters at zero. `register` adds the metrics of other parts of the process.
    pub fn new(register: impl FnOnce(&mut Registry)) -> Self {
        let mut all = Registry::with_prefix("addon_signer");
        let registry = &mut all;
        let issued = add(registry, "certificates_issued", "Certificates published on requests");
        let refused = add(registry, "requests_refused", "Requests denied or failed, by reason");
        let rate_limited = add(
            registry,
            "requests_rate_limited",
            "Requests that had to wait because their addon or cluster had too many certificates",
        );
        let held = add(
            registry,
            "requests_held",
            "Requests that wait because the ledger holds something else than their certificate",
        );
        let authorities_forced = add(
            registry,
            "authorities_forced",
            "Authorities that sign without evidence that everybody trusts them, because the one before them ended",
        );
        let ledger_up = add(registry, "ledger_up", "1 while decisions can be recorded; 0 while nothing is signed");
        let ledger_entries = add(registry, "ledger_entries", "Number of the ledger's last entry");
        let ledger_available =
            add(registry, "ledger_available_bytes", "Bytes that are left on the disk of a ledger in SQLite");
        let registry_age = add(
            registry,
            "registry_age_seconds",
            "How long ago the API server was last heard on the watches of clusters and addons; up to 60 at rest",
        );
        let ledger_differs = add(registry, "ledger_differs", "What did not fit the ledger at a hub's start");
        let registrations_written =
            add(registry, "registrations_written", "Changes of status.registrations of ManagedClusterAddOns");
        let registrations_left = add(
            registry,
            "registrations_left",
            "ManagedClusterAddOns whose registrations the hub leaves to another program",
        );
        let foreign_certificates = add(
            registry,
            "foreign_certificates",
            "Requests whose certificates none of the signer's authorities signed",
        );
        let trust = TrustMetrics::new(registry);
        register(registry);
        Self {
            registry: Arc::new(all),
            issued,
            refused,
            rate_limited,
            held,
            authorities_forced,
            ledger_up,
            ledger_entries,
            ledger_differs,
            ledger_available,
            registry_age,
            registrations_written,
            registrations_left,
            foreign_certificates,
            trust,
        }
    }

    /// Counts a certificate that was issued.
    pub fn issued(&self, signer: &str) {
        self.issued.get_or_create(&SignerLabel { signer: signer.to_owned() }).inc();
    }

    /// Counts a refused request, by the name of the refusal.
    pub fn refused(&self, signer: &str, reason: &str) {
        let labels = RefusalLabels { signer: signer.to_owned(), reason: reason.to_owned() };
        self.refused.get_or_create(&labels).inc();
    }

    /// Counts a request that waits because of the addon's rate.
    pub fn rate_limited(&self, signer: &str) {
        self.rate_limited.get_or_create(&SignerLabel { signer: signer.to_owned() }).inc();
    }

    /// Counts a request that waits for the ledger.
    pub fn held(&self, signer: &str) {
        self.held.get_or_create(&SignerLabel { signer: signer.to_owned() }).inc();
    }

    /// Counts an authority that was activated without the evidence that everybody trusts it.
    pub fn authority_forced(&self, signer: &str) {
        self.authorities_forced.get_or_create(&SignerLabel { signer: signer.to_owned() }).inc();
    }

    /// Counts what a restored backup has left different: `checkpoint`, `requests` or `authorities`.
    pub fn differs(&self, from: &'static str, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.ledger_differs.get_or_create(&DifferenceLabel { from }).inc_by(count);
    }

    /// Counts a registration that was written into a ManagedClusterAddOn.
    pub fn registrations_written(&self) {
        self.registrations_written.inc();
    }

    /// Sets how many addons of each signer are left to another program. A signer that is not in `signers` loses its
    /// metric.
    pub fn registrations_left<'s>(&self, signers: impl Iterator<Item = (&'s str, usize)>) {
        self.registrations_left.clear();
        for (signer, addons) in signers {
            let label = SignerLabel { signer: signer.to_owned() };
            self.registrations_left.get_or_create(&label).set(i64::try_from(addons).unwrap_or(i64::MAX));
        }
    }

    /// Sets how many requests of a signer have a certificate that another program signed; `None` if nothing is known.
    pub fn foreign_certificates(&self, signer: &str, requests: Option<usize>) {
        let label = SignerLabel { signer: signer.to_owned() };
        match requests {
            Some(requests) => {
                self.foreign_certificates.get_or_create(&label).set(i64::try_from(requests).unwrap_or(i64::MAX));
            }
            None => {
                self.foreign_certificates.remove(&label);
            }
        }
    }

    /// Counts a ManifestWork that was written.
    pub fn trust_work_written(&self) {
        self.trust.works_written.inc();
    }

    /// Sets how many addons on clusters lack the present trust bundle; `None` if the hub brings it to none of them.
    pub fn trust_missing(&self, signer: &str, addons: Option<usize>) {
        let label = SignerLabel { signer: signer.to_owned() };
        match addons {
            Some(addons) => {
                self.trust.missing.get_or_create(&label).set(i64::try_from(addons).unwrap_or(i64::MAX));
            }
            None => {
                self.trust.missing.remove(&label);
            }
        }
    }

    /// Sets the state of the ledger: the number of its last entry, or `None` while it cannot be written to.
    pub fn ledger(&self, last: Option<u64>) {
        self.ledger_up.set(i64::from(last.is_some()));
        if let Some(last) = last {
            self.ledger_entries.set(i64::try_from(last).unwrap_or(i64::MAX));
        }
    }

    /// Sets how many bytes are left on the ledger's disk.
    pub fn ledger_available(&self, bytes: u64) {
        self.ledger_available.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Sets how old is what the hub knows of clusters and addons.
    pub fn registry_age(&self, age: Duration) {
        self.registry_age.set(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
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
