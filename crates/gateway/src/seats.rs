//! The connections and calls of each addon on each cluster, and of each cluster, as guards that give their seat back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Limits;
use addon_signer_core::gateway::seats::{NoSeat, SeatCount, Seats, Use};
use addon_signer_core::identity::{AddOnName, ClusterName, PeerIdentity};

/// Whose seats are counted. The name of the agent is not part of it, because the requester chooses that.
type SeatHolder = (ClusterName, AddOnName);

/// Everyone's seats.
#[derive(Clone)]
pub(super) struct SharedSeats(Arc<Mutex<Seats>>);

impl SharedSeats {
    pub(super) fn new(limits: &Limits) -> Self {
        let of_addon = SeatCount { connections: limits.max_identity_connections, calls: limits.max_identity_calls };
        let of_cluster = SeatCount { connections: limits.max_cluster_connections, calls: limits.max_cluster_calls };
        Self(Arc::new(Mutex::new(Seats::new(of_addon, of_cluster))))
    }

    /// Takes a seat for a connection.
    pub(super) fn connect(&self, identity: &PeerIdentity) -> Result<Seat, NoSeat> {
        self.take(&Arc::new((identity.cluster.clone(), identity.addon.clone())), Use::Connection)
    }

    fn take(&self, holder: &Arc<SeatHolder>, kind: Use) -> Result<Seat, NoSeat> {
        lock(&self.0).take(&holder.0, &holder.1, kind)?;
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
    /// Takes a seat for a call of the same holder.
    pub(super) fn call(&self) -> Result<Self, NoSeat> {
        self.all.take(&self.holder, Use::Call)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.all.0).give_back(&self.holder.0, &self.holder.1, self.kind);
    }
}

/// Ignores poisoning: the methods of the seats do not panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
