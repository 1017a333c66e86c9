//! Metrics of certificate authorities.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use addon_signer_core::ca::line::{Line, Phase};
use addon_signer_telemetry::metrics::{SignerLabel, add, at_zero};

/// Labels: an authority of a signer, and its state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuthorityLabels {
    signer: String,
    authority: String,
    state: &'static str,
}

/// Labels: a line of authorities, and a step of a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    signer: String,
    phase: &'static str,
}

/// What became of authorities.
#[derive(Debug, Clone)]
pub(crate) struct AuthorityMetrics {
    forced: Family<SignerLabel, Counter>,
    ends: Family<AuthorityLabels, Gauge>,
    phases: Family<PhaseLabels, Gauge>,
}

impl AuthorityMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            forced: add(
                registry,
                "authorities_forced",
                "Authorities activated without evidence of trust, because the previous one was about to expire",
            ),
            ends: add(registry, "authority_end_timestamp_seconds", "When each authority expires, in Unix time"),
            phases: add(registry, "rotation_phase", "1 for the step of a rotation that a line is at, 0 for the others"),
        }
    }

    pub(crate) fn serve(&self, signer: &str) {
        at_zero(&self.forced, signer);
    }

    pub(super) fn forced(&self, signer: &str) {
        self.forced.get_or_create(&SignerLabel::of(signer)).inc();
    }
}

/// The ends of the authorities of one line and its step, as long as this value lives.
pub(super) struct LineGauges {
    metrics: AuthorityMetrics,
    signer: String,
    shown: Vec<AuthorityLabels>,
}

impl LineGauges {
    pub(super) fn new(metrics: AuthorityMetrics, signer: &str) -> Self {
        Self { metrics, signer: signer.to_owned(), shown: Vec::new() }
    }

    pub(super) fn show(&mut self, line: &Line) {
        let shown = line.members().iter().map(|member| {
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
            self.metrics.phases.get_or_create(&self.labels(phase)).set(i64::from(phase == line.phase()));
        }
    }

    fn labels(&self, phase: Phase) -> PhaseLabels {
        PhaseLabels { signer: self.signer.clone(), phase: phase.as_str() }
    }
}

impl Drop for LineGauges {
    fn drop(&mut self) {
        for labels in &self.shown {
            self.metrics.ends.remove(labels);
        }
        for phase in Phase::ALL {
            self.metrics.phases.remove(&self.labels(phase));
        }
    }
}
