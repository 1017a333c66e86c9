//! What a keeper is made of.

use tokio::sync::{mpsc, watch};

use super::{Keeper, LinePlan, Reserve, pauses};
use crate::authorities::board::Board;
use crate::authorities::gate::Gate;
use crate::authorities::metrics::EndsOfLine;
use crate::authorities::objects::WatchedObjects;
use crate::authorities::state::LineState;
use crate::authorities::store::{AuthorityStore, LineNames};
use crate::lease::Leading;
use crate::metrics::HubMetrics;
use crate::recording::chronicle::LineRecord;
use addon_signer_ledger::Ledger;
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::audit::Audit;
use addon_signer_telemetry::pulse::Pulse;

/// What all keepers share.
pub struct KeeperLinks {
    /// Reads and writes Secrets and ConfigMaps.
    pub store: AuthorityStore,
    /// The time.
    pub clock: Clock,
    /// The log of decisions.
    pub audit: Audit,
    /// Whether this hub may write.
    pub leading: Leading,
    /// Publishes what the gateway is to trust after every change of a line.
    pub board: Board,
    /// Counts authorities that were activated without evidence.
    pub metrics: HubMetrics,
    /// What the API server has of the objects of lines.
    pub objects: WatchedObjects,
    /// Has the steps of all lines.
    pub ledger: Ledger,
}

/// What a line has of its own.
pub struct KeeperLine {
    /// The names of its objects.
    pub names: LineNames,
    /// How it should be.
    pub plan: watch::Receiver<LinePlan>,
    /// When a Next may sign.
    pub gate: Gate,
    /// Gets its state.
    pub state: watch::Sender<LineState>,
    /// Reservations of its signer.
    pub reservations: mpsc::Receiver<Reserve>,
    /// The signs of life of its keeper.
    pub pulse: Pulse,
}

impl Keeper {
    /// A keeper that has not read its line yet.
    pub fn new(links: KeeperLinks, line: KeeperLine) -> Self {
        let KeeperLinks { store, clock, audit, leading, board, metrics, objects, ledger } = links;
        let KeeperLine { names, plan, gate, state, reservations, pulse } = line;
        Self {
            ends: EndsOfLine::new(metrics.authorities.clone(), names.metrics_label()),
            record: LineRecord::new(ledger, names.line()),
            names,
            store,
            clock,
            audit,
            plan,
            gate,
            leading,
            state,
            board,
            metrics,
            objects,
            reservations,
            pulse,
            published: None,
            undone: Default::default(),
            reported: None,
            distributed: false,
            compared: false,
            unrecorded: None,
            pauses: pauses(),
        }
    }
}
