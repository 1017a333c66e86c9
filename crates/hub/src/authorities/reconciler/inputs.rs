//! The inputs of a reconciler, and why it could not do its work.

use tokio::sync::{mpsc, watch};

use super::{LineageReconciler, Outside, Published, REVERT, ROUND, Reserve, Unrecorded, pauses};
use crate::HubLinks;
use crate::authorities::activation::ActivationCheck;
use crate::authorities::asked::RequestedSteps;
use crate::authorities::state::LineageState;
use crate::authorities::store::{AuthorityStore, LineageNames, StoreError};
use crate::authorities::supply::SupplyPlan;
use crate::authorities::trust_publisher::TrustPublisher;
use crate::authorities::versions::WatchedObjects;
use crate::lease::NotLeading;
use crate::metrics::LineageGauges;
use crate::recording::chronicle::LineageRecord;
use addon_signer_api::rules::AuthorityPlan;
use addon_signer_core::ca::authority::AuthorityError;
use addon_signer_core::ca::lineage::WaitsFor;
use addon_signer_core::doubling::RevertBackoff;
use addon_signer_core::keys::private::KeyError;
use addon_signer_ledger::LedgerError;
use addon_signer_telemetry::pulse::Pulse;

/// The desired state of a lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineagePlan {
    /// How authorities are created.
    pub authority: AuthorityPlan,
    /// Where they come from.
    pub supply: SupplyPlan,
    /// What the AddOnSigner's annotations request. For a lineage of the gateway, its ConfigMap's annotations do.
    pub asked: RequestedSteps,
    /// Whether anything besides the ConfigMap shows authorities with certificates that may not have expired yet.
    pub remembered: bool,
    /// Whether the hub may have the lineage at all: it may sign, or had the lineage before. A lineage of the gateway
    /// must also be needed. Until then nothing is read or created.
    pub may_create: bool,
}

/// What all reconcilers share.
pub(crate) struct ReconcilerLinks {
    pub hub: HubLinks,
    /// Reads and writes Secrets and ConfigMaps.
    pub store: AuthorityStore,
    /// Publishes what the gateway must trust after every change of a lineage.
    pub trust_publisher: TrustPublisher,
    /// The versions of the lineages' objects on the API server.
    pub objects: WatchedObjects,
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
            gauges: LineageGauges::new(links.hub.metrics.clone(), lineage.names.metrics_label()),
            record: LineageRecord::new(links.hub.ledger.clone(), lineage.names.lineage()),
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

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// Another hub may lead.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// A step that was persisted could not be recorded; it has no effect before it is recorded.
    #[error("a step of the authorities could not be recorded: {0}")]
    Ledger(#[from] LedgerError),
    /// The Secret could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A new authority could not be created.
    #[error("a new authority could not be created: {0}")]
    Authority(#[from] AuthorityError),
    /// A new key could not be generated.
    #[error("a new key could not be generated: {0}")]
    Key(#[from] KeyError),
    /// The lineage has no authority yet: none has come from outside.
    #[error("There is no authority yet. {0}")]
    NoAuthority(String),
    /// The lineage's first authority is not created while the clock is wrong.
    #[error("the first authority waits for {0}")]
    Clock(WaitsFor),
    /// The lineage has no anchor.
    #[error(transparent)]
    Bundle(#[from] addon_signer_core::ca::bundle::BundleError),
    /// The report could not be written as JSON.
    #[error("the report of the lineage could not be written: {0}")]
    Report(#[from] serde_json::Error),
}

/// Access for tests.
#[cfg(test)]
impl LineageReconciler {
    pub(super) fn forget_steps(&mut self) {
        self.unrecorded.by = None;
    }

    pub(super) fn states(&self) -> watch::Receiver<LineageState> {
        self.lineage.state.subscribe()
    }
}
