//! The inputs of a reconciler.

use tokio::sync::{mpsc, watch};

use super::{LineageReconciler, Outside, Published, REVERT, ROUND, Reserve, Unrecorded, pauses};
use crate::authorities::activation::ActivationCheck;
use crate::authorities::asked::RequestedSteps;
use crate::authorities::state::LineageState;
use crate::authorities::store::{AuthorityStore, LineageNames};
use crate::authorities::supply::SupplyPlan;
use crate::authorities::trust_publisher::TrustPublisher;
use crate::authorities::versions::WatchedObjects;
use crate::lease::Leading;
use crate::metrics::{HubMetrics, LineageGauges};
use crate::recording::chronicle::LineageRecord;
use addon_signer_api::rules::AuthorityPlan;
use addon_signer_core::doubling::RevertBackoff;
use addon_signer_ledger::Ledger;
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::audit::Audit;
use addon_signer_telemetry::pulse::Pulse;

/// The desired state of a lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineagePlan {
    /// How authorities are created.
    pub authority: AuthorityPlan,
    /// Where they come from.
    pub supply: SupplyPlan,
    /// What the AddOnSigner asks for. A lineage of the gateway is asked by the annotations of its ConfigMap.
    pub asked: RequestedSteps,
    /// Whether something other than the ConfigMap names authorities whose certificates may not have expired yet.
    pub remembered: bool,
    /// Whether the hub may have the lineage at all: it may sign, or had the lineage before; somebody needs it, if it is
    /// one of the gateway. Until then nothing is read or created.
    pub may_create: bool,
}

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
    /// Publishes what the gateway is to trust after every change of a lineage.
    pub trust_publisher: TrustPublisher,
    /// Counts authorities that were activated without evidence.
    pub metrics: HubMetrics,
    /// The versions of the lineages' objects on the API server.
    pub objects: WatchedObjects,
    /// Records the steps of all lineages.
    pub ledger: Ledger,
}

/// What belongs to one lineage.
pub(crate) struct ReconcilerLineage {
    /// The names of its objects.
    pub names: LineageNames,
    /// Its desired state.
    pub plan: watch::Receiver<LineagePlan>,
    /// When a Next may sign.
    pub activation: ActivationCheck,
    /// Receives its state.
    pub state: watch::Sender<LineageState>,
    /// Reservations of its signer.
    pub reservations: mpsc::Receiver<Reserve>,
    /// The signs of life of its reconciler.
    pub pulse: Pulse,
}

impl LineageReconciler {
    /// A reconciler that has not read its lineage yet.
    pub(crate) fn new(links: ReconcilerLinks, lineage: ReconcilerLineage) -> Self {
        Self {
            gauges: LineageGauges::new(links.metrics.clone(), lineage.names.metrics_label()),
            record: LineageRecord::new(links.ledger.clone(), lineage.names.lineage()),
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
            lineage,
        }
    }
}

/// What tests do to a reconciler, and see of it.
#[cfg(test)]
impl LineageReconciler {
    pub(super) fn forget_steps(&mut self) {
        self.unrecorded.by = None;
    }

    pub(super) fn states(&self) -> watch::Receiver<LineageState> {
        self.lineage.state.subscribe()
    }
}
