//! The hub's metrics.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use addon_signer_core::ca::lineage::{Lineage, Phase};
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_ledger::LedgerMetrics;
use addon_signer_telemetry::metrics::{SignerLabel, add, add_seconds, at_zero, count};

// Texts that are too long for the list in `HubMetrics::register`.
const RATE_LIMITED: &str = "CSRs that had to wait because their addon or cluster had too many certificates";
const FOREIGN: &str = "CSRs whose certificates none of the signer's authorities signed";
const FORCED: &str = "Authorities activated without evidence of trust, because the previous one was about to expire";
const WORKS: &str = "ManifestWorks with the trust bundle that the hub created, changed or deleted";
const QUARANTINED: &str = "CSRs that wait because the ledger holds something other than their certificate";

/// Labels: which signer, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    signer: String,
    reason: String,
}

/// Labels: an authority of a signer, and its state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuthorityLabels {
    signer: String,
    authority: String,
    state: &'static str,
}

/// Labels: a lineage of authorities, and a step of a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    signer: String,
    phase: &'static str,
}

/// Labels: an authority of a signer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IssuerLabels {
    signer: String,
    authority: String,
}

/// Label: what the ledger differs from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DifferenceLabel {
    from: &'static str,
}

/// What a restored backup has left different from the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The checkpoint that was published last.
    Checkpoint,
    /// CSRs with certificates that the ledger lacks.
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

/// The metrics of all parts of the hub.
#[derive(Debug, Clone)]
pub struct HubMetrics {
    issued: Family<SignerLabel, Counter>,
    refused: Family<RefusalLabels, Counter>,
    rate_limited: Family<SignerLabel, Counter>,
    held: Family<SignerLabel, Counter>,
    foreign_certificates: Family<SignerLabel, Gauge>,
    csr_seconds: Histogram,
    forced: Family<SignerLabel, Counter>,
    ends: Family<AuthorityLabels, Gauge>,
    phases: Family<PhaseLabels, Gauge>,
    unpublished: Family<SignerLabel, Gauge>,
    ready: Family<SignerLabel, Gauge>,
    registrations_written: Counter,
    registrations_left: Family<SignerLabel, Gauge>,
    works_written: Counter,
    trust_missing: Family<SignerLabel, Gauge>,
    /// None until the API server has answered.
    bundle_protected: Family<[(&'static str, &'static str); 0], Gauge>,
    differs: Family<DifferenceLabel, Counter>,
    unrenewed: Family<SignerLabel, Gauge>,
    valid: Family<IssuerLabels, Gauge>,
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
    /// Registers the metrics. Counters of what is known beforehand start at zero, such as those of the gateway's own
    /// signer.
    pub fn register(to: &mut Registry) -> Self {
        let metrics = Self {
            issued: add(to, "certificates_issued", "Certificates published on CSRs"),
            refused: add(to, "csrs_refused", "Requests denied or failed, by reason"),
            rate_limited: add(to, "csrs_rate_limited", RATE_LIMITED),
            held: add(to, "csrs_quarantined", QUARANTINED),
            foreign_certificates: add(to, "foreign_certificates", FOREIGN),
            // An approval by people may take hours.
            csr_seconds: add_seconds(
                to,
                "csr",
                "Time from when the hub first saw a CSR until its certificate was published",
                0.01,
                20,
            ),
            forced: add(to, "authorities_forced", FORCED),
            ends: add(to, "authority_end_timestamp_seconds", "When each authority expires, in Unix time"),
            phases: add(to, "rotation_phase", "1 for the step of a rotation that a lineage is at, 0 for the others"),
            unpublished: add(
                to,
                "anchors_unpublished",
                "1 while the API server refuses the ConfigMap with the anchors",
            ),
            ready: add(to, "signer_ready", "1 while the AddOnSigner's condition Ready is True"),
            registrations_written: add(
                to,
                "registrations_written",
                "Changes of status.registrations of ManagedClusterAddOns",
            ),
            registrations_left: add(
                to,
                "registrations_left",
                "ManagedClusterAddOns whose registrations the hub leaves to another program",
            ),
            works_written: add(to, "trust_works_written", WORKS),
            trust_missing: add(
                to,
                "trust_missing",
                "Addons on clusters that have not applied the present trust bundle by their ManifestWork",
            ),
            bundle_protected: add(
                to,
                "trust_bundle_protected",
                "1 while a policy keeps others from setting the trust bundle that agents take from their CSRs",
            ),
            differs: add(to, "ledger_differs", "Differences from the ledger found when a hub begins to lead"),
            unrenewed: add(
                to,
                "certificates_unrenewed",
                "Certificates that expire within a day, have less than a sixth of their life left and no successor",
            ),
            valid: add(to, "certificates_valid", "Certificates that have not expired, by the authority that signed"),
            ledger: LedgerMetrics::register(to),
        };
        for difference in Difference::ALL {
            drop(metrics.differs.get_or_create(&difference.label()));
        }
        GatewayCertificate::ALL.iter().for_each(|certificate| metrics.serve(certificate.name()));
        metrics
    }

    /// Starts the counters of a signer at zero, unless they exist.
    pub(crate) fn serve(&self, signer: &str) {
        for counter in [&self.issued, &self.rate_limited, &self.held, &self.forced] {
            at_zero(counter, signer);
        }
    }

    /// Drops the gauges of a signer that is no longer served.
    pub(crate) fn stop(&self, signer: &str) {
        self.foreign_certificates(signer, None);
        self.trust_missing(signer, None);
        self.signer_ready(signer, None);
    }

    /// Sets whether the CSRs of a signer are signed; `None` for one that is gone.
    pub(crate) fn signer_ready(&self, signer: &str, is_ready: Option<bool>) {
        set_or_remove(&self.ready, signer, is_ready.map(usize::from));
    }

    pub(crate) fn issued(&self, signer: &str) {
        self.issued.get_or_create(&SignerLabel::of(signer)).inc();
    }

    pub(crate) fn published_after(&self, time: Duration) {
        self.csr_seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn refused(&self, signer: &str, reason: &str) {
        let labels = RefusalLabels { signer: signer.to_owned(), reason: reason.to_owned() };
        self.refused.get_or_create(&labels).inc();
    }

    pub(crate) fn rate_limited(&self, signer: &str) {
        self.rate_limited.get_or_create(&SignerLabel::of(signer)).inc();
    }

    pub(crate) fn quarantined(&self, signer: &str) {
        self.held.get_or_create(&SignerLabel::of(signer)).inc();
    }

    /// Sets how many CSRs of a signer have a certificate that another program signed; `None` if nothing is known.
    pub(crate) fn foreign_certificates(&self, signer: &str, requests: Option<usize>) {
        set_or_remove(&self.foreign_certificates, signer, requests);
    }

    pub(crate) fn authority_forced(&self, signer: &str) {
        self.forced.get_or_create(&SignerLabel::of(signer)).inc();
    }

    pub(crate) fn registration_written(&self) {
        self.registrations_written.inc();
    }

    /// Sets how many addons of each signer are left to another program. A signer that is not in `signers` loses its
    /// metric.
    pub(crate) fn registrations_left<'s>(&self, signers: impl Iterator<Item = (&'s str, usize)>) {
        set_all(&self.registrations_left, signers);
    }

    pub(crate) fn work_written(&self) {
        self.works_written.inc();
    }

    /// Sets whether only the hub can set the trust bundle on CSRs.
    pub(crate) fn bundle_protected(&self, is_protected: bool) {
        self.bundle_protected.get_or_create(&[]).set(i64::from(is_protected));
    }

    /// Sets how many addons on clusters lack the present trust bundle; `None` if the hub delivers it to none of them.
    pub(crate) fn trust_missing(&self, signer: &str, addons: Option<usize>) {
        set_or_remove(&self.trust_missing, signer, addons);
    }

    /// Counts what a restored backup has left different.
    pub(crate) fn differs(&self, difference: Difference, times: usize) {
        self.differs.get_or_create(&difference.label()).inc_by(u64::try_from(times).unwrap_or(u64::MAX));
    }

    /// Sets how many certificates of each signer should have been renewed. A signer that is not in `signers` loses its
    /// metric.
    pub(crate) fn unrenewed<'s>(&self, signers: impl Iterator<Item = (&'s str, usize)>) {
        set_all(&self.unrenewed, signers);
    }

    /// Sets how many certificates of each authority, by signer and id, are valid. Others lose their metric.
    pub(crate) fn valid(&self, authorities: impl Iterator<Item = (String, String, u64)>) {
        self.valid.clear();
        for (signer, authority, certificates) in authorities {
            let labels = IssuerLabels { signer, authority };
            self.valid.get_or_create(&labels).set(i64::try_from(certificates).unwrap_or(i64::MAX));
        }
    }
}

fn set_or_remove(gauge: &Family<SignerLabel, Gauge>, signer: &str, number: Option<usize>) {
    let label = SignerLabel::of(signer);
    match number {
        Some(number) => _ = gauge.get_or_create(&label).set(count(number)),
        None => _ = gauge.remove(&label),
    }
}

fn set_all<'s>(gauge: &Family<SignerLabel, Gauge>, signers: impl Iterator<Item = (&'s str, usize)>) {
    gauge.clear();
    for (signer, number) in signers {
        gauge.get_or_create(&SignerLabel::of(signer)).set(count(number));
    }
}

/// The ends of the authorities of one lineage and its step, as long as this value lives.
pub(crate) struct LineageGauges {
    metrics: HubMetrics,
    signer: String,
    shown: Vec<AuthorityLabels>,
}

impl LineageGauges {
    pub(crate) fn new(metrics: HubMetrics, signer: &str) -> Self {
        Self { metrics, signer: signer.to_owned(), shown: Vec::new() }
    }

    pub(crate) fn show(&mut self, lineage: &Lineage) {
        let shown = lineage.members().iter().map(|member| {
            let labels = AuthorityLabels {
                signer: self.signer.clone(),
                authority: member.authority.id().to_string(),
                state: member.state.as_str(),
            };
            self.metrics.ends.get_or_create(&labels).set(member.authority.not_after().unix());
            labels
        });
        let shown: Vec<_> = shown.collect();
        for gone in self.shown.iter().filter(|labels| !shown.contains(labels)) {
            self.metrics.ends.remove(gone);
        }
        self.shown = shown;
        for phase in Phase::ALL {
            self.metrics.phases.get_or_create(&self.labels(phase)).set(i64::from(phase == lineage.phase()));
        }
    }

    /// Sets whether the lineage's anchors could be published.
    pub(crate) fn published(&self, is_published: bool) {
        set_or_remove(&self.metrics.unpublished, &self.signer, Some(usize::from(!is_published)));
    }

    fn labels(&self, phase: Phase) -> PhaseLabels {
        PhaseLabels { signer: self.signer.clone(), phase: phase.as_str() }
    }
}

impl Drop for LineageGauges {
    fn drop(&mut self) {
        for labels in &self.shown {
            self.metrics.ends.remove(labels);
        }
        for phase in Phase::ALL {
            self.metrics.phases.remove(&self.labels(phase));
        }
        set_or_remove(&self.metrics.unpublished, &self.signer, None);
    }
}
