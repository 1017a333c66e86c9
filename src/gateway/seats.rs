//! The connections and calls that each addon on each cluster has, as guards that give their seat back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use addon_signer_core::gateway::seats::{Seats, Use};
use addon_signer_core::identity::{AddOnName, ClusterName, PeerIdentity};

/// Who shares seats. The name of the agent is no part of it, because the requester chooses that.
type SeatHolder = (ClusterName, AddOnName);

/// The seats of all.
#[derive(Clone)]
pub(super) struct SharedSeats(Arc<Mutex<Seats<SeatHolder>>>);

impl SharedSeats {
    pub(super) fn new(max_connections: usize, max_calls: usize) -> Self {
        Self(Arc::new(Mutex::new(Seats::new(max_connections, max_calls))))
    }

    /// Takes a seat for a connection; without one, returns how many there are.
    pub(super) fn connect(&self, identity: &PeerIdentity) -> Result<Seat, usize> {
        self.take(&Arc::new((identity.cluster.clone(), identity.addon.clone())), Use::Connection)
    }

    fn take(&self, holder: &Arc<SeatHolder>, kind: Use) -> Result<Seat, usize> {
        lock(&self.0).take(holder, kind)?;
        Ok(Seat { all: self.clone(), holder: Arc::clone(holder), kind })
    }
}

/// One seat, which dropping gives back.
pub(super) struct Seat {
    all: SharedSeats,
    holder: Arc<SeatHolder>,
    kind: Use,
}

impl Seat {
    /// Takes a seat for a call of the same holder; without one, returns how many there are.
    pub(super) fn call(&self) -> Result<Self, usize> {
        self.all.take(&self.holder, Use::Call)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.all.0).give_back(&self.holder, self.kind);
    }
}

/// Ignores poisoning: the methods of the seats do not panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
