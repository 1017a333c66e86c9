//! The hub's metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use addon_signer_core::ca::lineage::{Lineage, Phase};
use addon_signer_core::named;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_ledger::LedgerMetrics;
use addon_signer_telemetry::metrics::{Registry, SignerLabel, at_zero, count};
use addon_signer_telemetry::{labels, metrics};

labels! {
    /// Labels: which signer, and why.
    struct RefusalLabels {
        signer: String,
        reason: String,
    }
}

labels! {
    /// Labels: an authority of a signer, and its state.
    struct AuthorityLabels {
        signer: String,
        authority: String,
        state: &'static str,
    }
}

labels! {
    /// Labels: a lineage of authorities, and a step of a rotation.
    struct PhaseLabels {
        signer: String,
        phase: &'static str,
    }
}

labels! {
    /// Labels: an authority of a signer.
    struct IssuerLabels {
        signer: String,
        authority: String,
    }
}

labels! {
    /// Label: what differs from the ledger.
    struct DifferenceLabel {
        from: &'static str,
    }
}

named! {
    /// What may differ from the ledger after a restore.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Difference {
        /// The last published checkpoint.
        Checkpoint = "checkpoint",
        /// CSRs with certificates that the ledger lacks.
        Requests = "requests",
        /// Authorities in a Secret.
        Authorities = "authorities",
    }
    /// The value of the label `from`.
    fn as_str(self) -> &'static str;
}

impl Difference {
    fn label(self) -> DifferenceLabel {
        DifferenceLabel { from: self.as_str() }
    }
}

metrics! {
    /// The metrics of all parts of the hub.
    #[derive(Debug, Clone)]
    pub struct HubMetrics {
        /// Certificates that the hub published on their CSRs.
        issued: Family<SignerLabel, Counter> = add("certificates_issued"),
        /// CSRs that broke a rule, so that the hub denied or failed them; reason is a cause of refused (audit.md).
        /// CertificateOutdated is not counted.
        refused: Family<RefusalLabels, Counter> = add("csrs_refused"),
        /// CSRs that had to wait because their addon or its cluster had received too many certificates.
        rate_limited: Family<SignerLabel, Counter> = add("csrs_rate_limited"),
        /// CSRs that wait because the ledger holds something other than their certificate.
        held: Family<SignerLabel, Counter> = add("csrs_quarantined"),
        /// CSRs whose certificates none of the signer's authorities signed; at most 10,000 are counted. Absent until
        /// the hub knows the signer's authorities.
        foreign_certificates: Family<SignerLabel, Gauge> = add("foreign_certificates"),
        // An administrator's approval may take hours.
        /// Time from when the hub first saw a CSR until its certificate was published, with all that it waited for.
        pub(crate) csr_seconds: Histogram = add_seconds("csr", 0.01, 20),
        /// Certificate authorities that were activated without evidence that all clients trust them, because the
        /// previous one was about to expire.
        forced: Family<SignerLabel, Counter> = add("authorities_forced"),
        /// When each certificate authority expires, in Unix time; state is Next, Active or Old.
        ends: Family<AuthorityLabels, Gauge> = add("authority_end_timestamp_seconds"),
        /// 1 for the step of a rotation that the authorities of a signer are at, 0 for the others. phase is Settled (no
        /// rotation is under way), Activate or Finish, as rotation.phase of the status.
        phases: Family<PhaseLabels, Gauge> = add("rotation_phase"),
        /// 1 while the API server refuses the ConfigMap with the anchors of a signer, else 0.
        unpublished: Family<SignerLabel, Gauge> = add("anchors_unpublished"),
        /// 1 while the AddOnSigner's condition Ready is True, else 0. Only the hub that leads has it.
        ready: Family<SignerLabel, Gauge> = add("signer_ready"),
        /// Changes that the hub made to status.registrations of ManagedClusterAddOns.
        pub(crate) registrations_written: Counter = add("registrations_written"),
        /// ManagedClusterAddOns whose registrations the hub leaves to another program.
        registrations_left: Family<SignerLabel, Gauge> = add("registrations_left"),
        /// ManifestWorks with the trust bundle that the hub created, changed or deleted.
        pub(crate) works_written: Counter = add("trust_works_written"),
        /// Addons on clusters that have not applied the present trust bundle by their ManifestWork. Absent where the
        /// hub writes none.
        trust_missing: Family<SignerLabel, Gauge> = add("trust_missing"),
        /// 1 while a policy lets only the hub set the trust bundle that agents take from their CSRs. Absent while
        /// unknown.
        bundle_protected: Family<[(&'static str, &'static str); 0], Gauge> = add("trust_bundle_protected"),
        /// What did not match the ledger when a hub began to lead, because a backup was restored (operations.md): from
        /// is checkpoint (its last checkpoint), requests (CSRs whose certificates it does not have) or authorities
        /// (authorities of which it knows more than their Secret).
        differs: Family<DifferenceLabel, Counter> = add("ledger_differs"),
        /// Certificates of eligible addons that expire within a day, have less than a sixth of their life left and no
        /// successor: addon-signer-agent renews at 60 to 70 %, OCM's agents at 75 to 80 %. Counted every five minutes.
        unrenewed: Family<SignerLabel, Gauge> = add("certificates_unrenewed"),
        /// Certificates that have not expired, by the authority that signed them; revoked ones count until they expire.
        /// An authority without any has none. Counted every five minutes.
        valid: Family<IssuerLabels, Gauge> = add("certificates_valid"),
        /// The metrics of the ledger's writer, which the hub runs.
        pub ledger: LedgerMetrics,
    }
}

/// Metrics that are not exported.
impl Default for HubMetrics {
    fn default() -> Self {
        Self::register(&mut Registry::default())
    }
}

impl HubMetrics {
    /// Registers the metrics. Counters whose labels are known beforehand start at zero, such as those of the gateway's
    /// own signers.
    pub fn register(to: &mut Registry) -> Self {
        let metrics = Self::add_all(to);
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

    /// Sets whether the CSRs of a signer are signed; `None` for a deleted signer.
    pub(crate) fn signer_ready(&self, signer: &str, is_ready: Option<bool>) {
        set_or_remove(&self.ready, signer, is_ready.map(usize::from));
    }

    pub(crate) fn issued(&self, signer: &str) {
        self.issued.get_or_create(&SignerLabel::of(signer)).inc();
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

    /// Sets how many addons of each signer are left to another program. A signer that is not in `signers` loses its
    /// metric.
    pub(crate) fn registrations_left<'s>(&self, signers: impl Iterator<Item = (&'s str, usize)>) {
        set_all(&self.registrations_left, signers);
    }

    /// Sets whether only the hub can set the trust bundle on CSRs.
    pub(crate) fn bundle_protected(&self, is_protected: bool) {
        self.bundle_protected.get_or_create(&[]).set(i64::from(is_protected));
    }

    /// Sets how many addons on clusters lack the present trust bundle; `None` if the hub delivers it to none of them.
    pub(crate) fn trust_missing(&self, signer: &str, addons: Option<usize>) {
        set_or_remove(&self.trust_missing, signer, addons);
    }

    /// Counts differences to the ledger after a restore.
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

/// Shows the phase of one lineage, and when its authorities expire, as long as this value lives.
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
