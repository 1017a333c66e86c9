//! What a keeper is made of.

use tokio::sync::{mpsc, watch};

use super::{Keeper, LinePlan, Reserve, pauses};
use crate::audit::Audit;
use crate::hub::authorities::board::Board;
use crate::hub::authorities::gate::Gate;
use crate::hub::authorities::objects::WatchedObjects;
use crate::hub::authorities::state::LineState;
use crate::hub::authorities::store::{AuthorityStore, LineNames};
use crate::hub::lease::Leading;
use crate::hub::recording::chronicle::LineRecord;
use crate::ledger::Ledger;
use crate::pulse::Pulse;
use crate::telemetry::Metrics;
use addon_signer_platform::clock::Clock;

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
    pub metrics: Metrics,
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
