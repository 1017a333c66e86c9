//! The connections and requests of each addon on each cluster, and of each cluster, as guards that give their permit
//! back.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Limits;
use addon_signer_core::gateway::permits::{Holders, NoPermit, PermitCount, Permits, Use};
use addon_signer_core::gateway::route::{Route, RouteName};
use addon_signer_core::identity::{AddOnName, ClusterName, PeerIdentity};

/// The permits of all addons and clusters.
#[derive(Clone)]
pub(super) struct SharedPermits(Arc<Mutex<Permits>>);

impl SharedPermits {
    pub(super) fn new(limits: &Limits) -> Self {
        let of_addon =
            PermitCount { connections: limits.max_identity_connections, requests: limits.max_identity_requests };
        let of_cluster =
            PermitCount { connections: limits.max_cluster_connections, requests: limits.max_cluster_requests };
        Self(Arc::new(Mutex::new(Permits::new(of_addon, of_cluster))))
    }

    /// Takes a permit for a connection. The name of the agent does not count, because the requester chooses that.
    pub(super) fn connect(&self, identity: &PeerIdentity) -> Result<Permit, NoPermit> {
        self.take(Holders::new(&identity.cluster, &identity.addon), Use::Connection)
    }

    fn take(&self, holders: Holders, kind: Use) -> Result<Permit, NoPermit> {
        self.0.lock().take(&holders, kind)?;
        Ok(Permit { all: self.clone(), holders, kind })
    }
}

/// One permit, which dropping gives back.
pub(super) struct Permit {
    all: SharedPermits,
    holders: Holders,
    kind: Use,
}

impl Permit {
    /// Takes a permit for a request of the same holder.
    pub(super) fn request(&self) -> Result<Self, NoPermit> {
        self.all.take(self.holders.clone(), Use::Request)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.all.0.lock().give_back(&self.holders, self.kind);
    }
}

/// An AddOnRoute, and the addon on a cluster that sends requests to it.
type RouteCaller = (RouteName, ClusterName, AddOnName);

/// How many requests each addon on each cluster has on each AddOnRoute that bounds them.
#[derive(Clone, Default)]
pub(super) struct RoutePermits(Arc<Mutex<BTreeMap<RouteCaller, usize>>>);

impl RoutePermits {
    /// Takes a permit, if the route bounds its requests.
    ///
    /// # Errors
    /// The caller has this many requests, and may have no more.
    pub(super) fn take(&self, route: &Route, identity: &PeerIdentity) -> Result<Option<RoutePermit>, usize> {
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
        Ok(Some(RoutePermit { all: self.clone(), caller }))
    }
}

/// One permit, which dropping gives back.
pub(super) struct RoutePermit {
    all: RoutePermits,
    caller: RouteCaller,
}

impl Drop for RoutePermit {
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
