//! The inputs of a reconciler.

use tokio::sync::{mpsc, watch};

use super::{LinePlan, LineReconciler, Outside, Published, REVERT, ROUND, Reserve, Unrecorded, pauses};
use crate::authorities::activation::ActivationCheck;
use crate::authorities::state::LineState;
use crate::authorities::store::{AuthorityStore, LineNames};
use crate::authorities::trust_publisher::TrustPublisher;
use crate::authorities::versions::WatchedObjects;
use crate::lease::Leading;
use crate::metrics::{HubMetrics, LineGauges};
use crate::recording::chronicle::LineRecord;
use addon_signer_core::revert_backoff::RevertBackoff;
use addon_signer_ledger::Ledger;
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::audit::Audit;
use addon_signer_telemetry::pulse::Pulse;

/// What all reconcilers share.
pub(crate) struct ReconcilerLinks {
    /// Reads and writes Secrets and ConfigMaps.
    pub store: AuthorityStore,
    /// The time.
    pub clock: Clock,
    /// The log of decisions.
    pub audit: Audit,
    /// Whether this hub may write.
    pub leading: Leading,
    /// Publishes what the gateway is to trust after every change of a line.
    pub trust_publisher: TrustPublisher,
    /// Counts authorities that were activated without evidence.
    pub metrics: HubMetrics,
    /// The versions of the lines' objects on the API server.
    pub objects: WatchedObjects,
    /// Records the steps of all lines.
    pub ledger: Ledger,
}

/// What belongs to one line.
pub(crate) struct ReconcilerLine {
    /// The names of its objects.
    pub names: LineNames,
    /// Its desired state.
    pub plan: watch::Receiver<LinePlan>,
    /// When a Next may sign.
    pub activation: ActivationCheck,
    /// Receives its state.
    pub state: watch::Sender<LineState>,
    /// Reservations of its signer.
    pub reservations: mpsc::Receiver<Reserve>,
    /// The signs of life of its reconciler.
    pub pulse: Pulse,
}

impl LineReconciler {
    /// A reconciler that has not read its line yet.
    pub(crate) fn new(links: ReconcilerLinks, line: ReconcilerLine) -> Self {
        Self {
            gauges: LineGauges::new(links.metrics.clone(), line.names.metrics_label()),
            record: LineRecord::new(links.ledger.clone(), line.names.line()),
            outside: Outside::default(),
            written: None,
            published: Published {
                version: None,
                report: None,
                is_recorded: false,
                reverts: RevertBackoff::new(REVERT, ROUND),
            },
            unrecorded: Unrecorded::default(),
            compared: false,
            not_rolled_back: None,
            pauses: pauses(),
            links,
            line,
        }
    }
}

/// What tests do to a reconciler, and see of it.
#[cfg(test)]
impl LineReconciler {
    pub(super) fn forget_steps(&mut self) {
        self.unrecorded.by = None;
    }

    pub(super) fn states(&self) -> watch::Receiver<LineState> {
        self.line.state.subscribe()
    }
}
