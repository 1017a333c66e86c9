//! The connections and requests of each addon on each cluster, and of each cluster, as guards that give their slot
//! back.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Limits;
use addon_signer_core::gateway::route::{Route, RouteName};
use addon_signer_core::gateway::slots::{Holders, NoSlot, SlotCount, Slots, Use};
use addon_signer_core::identity::{AddOnName, ClusterName, PeerIdentity};

/// Everyone's slots.
#[derive(Clone)]
pub(super) struct SharedSlots(Arc<Mutex<Slots>>);

impl SharedSlots {
    pub(super) fn new(limits: &Limits) -> Self {
        let of_addon =
            SlotCount { connections: limits.max_identity_connections, requests: limits.max_identity_requests };
        let of_cluster =
            SlotCount { connections: limits.max_cluster_connections, requests: limits.max_cluster_requests };
        Self(Arc::new(Mutex::new(Slots::new(of_addon, of_cluster))))
    }

    /// Takes a slot for a connection. The name of the agent does not count, because the requester chooses that.
    pub(super) fn connect(&self, identity: &PeerIdentity) -> Result<Slot, NoSlot> {
        self.take(Holders::new(&identity.cluster, &identity.addon), Use::Connection)
    }

    fn take(&self, holders: Holders, kind: Use) -> Result<Slot, NoSlot> {
        self.0.lock().take(&holders, kind)?;
        Ok(Slot { all: self.clone(), holders, kind })
    }
}

/// One slot, which dropping gives back.
pub(super) struct Slot {
    all: SharedSlots,
    holders: Holders,
    kind: Use,
}

impl Slot {
    /// Takes a slot for a request of the same holder.
    pub(super) fn request(&self) -> Result<Self, NoSlot> {
        self.all.take(self.holders.clone(), Use::Request)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.all.0.lock().give_back(&self.holders, self.kind);
    }
}

/// Who calls which AddOnRoute.
type RouteCaller = (RouteName, ClusterName, AddOnName);

/// How many requests each addon on each cluster has on each AddOnRoute that bounds them.
#[derive(Clone, Default)]
pub(super) struct RouteSlots(Arc<Mutex<BTreeMap<RouteCaller, usize>>>);

impl RouteSlots {
    /// Takes a slot, if the route bounds its requests.
    ///
    /// # Errors
    /// How many calls the caller may have, and has.
    pub(super) fn take(&self, route: &Route, identity: &PeerIdentity) -> Result<Option<RouteSlot>, usize> {
        let Some(max) = route.limits.requests_per_identity else { return Ok(None) };
        let caller = (route.name.clone(), identity.cluster.clone(), identity.addon.clone());
        let mut taken = self.0.lock();
        let number = taken.entry(caller.clone()).or_default();
        if *number >= max {
            if *number == 0 {
                taken.remove(&caller);
            }
            return Err(max);
        }
        *number += 1;
        Ok(Some(RouteSlot { all: self.clone(), caller }))
    }
}

/// One slot, which dropping gives back.
pub(super) struct RouteSlot {
    all: RouteSlots,
    caller: RouteCaller,
}

impl Drop for RouteSlot {
    fn drop(&mut self) {
        let mut taken = self.all.0.lock();
        if let Some(number) = taken.get_mut(&self.caller) {
            *number -= 1;
            if *number == 0 {
                taken.remove(&self.caller); // who has no requests costs no memory
            }
        }
    }
}
