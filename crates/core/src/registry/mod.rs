//! The registry: which addons of which clusters are registered on the hub. Policy and gateway ask it.
//!
//! Watches of ManagedCluster and ManagedClusterAddOn fill it. It holds nothing that an agent can write, such as
//! `status.registrations`. An addon whose object cannot be read is not eligible (invariant I8).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::identity::{AddOnKey, AddOnName, ClusterName};
use crate::timestamp::Timestamp;

mod eligibility;

pub use eligibility::{Change, Eligibility, EligibilityChange, Revocation};

/// What the hub knows about a ManagedCluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterFacts {
    /// `spec.hubAcceptsClient`.
    pub accepted: bool,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.creationTimestamp`, which the API server sets. A cluster that is recreated under its name may have
    /// another owner, even if the ManagedClusterAddOn has stayed.
    pub created: Timestamp,
}

impl ClusterFacts {
    /// A cluster that has been accepted since the beginning of time.
    pub const ACCEPTED: Self = Self { accepted: true, deleting: false, created: Timestamp::from_unix(0) };
}

/// What the hub knows about a ManagedClusterAddOn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddOnFacts {
    /// It is installed.
    Installed,
    /// `metadata.deletionTimestamp` is set.
    Deleting,
    /// It has the annotation `addon-signer.io/suspended` with any value but `false`.
    Suspended,
    /// The meaning of the object or of an annotation is unclear, so the addon is not eligible.
    Unreadable,
}

/// A ManagedClusterAddOn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddOn {
    /// Whether it is eligible.
    pub facts: AddOnFacts,
    /// `metadata.creationTimestamp`, which the API server sets. Certificates that begin earlier were made for an object
    /// of the same name that was deleted, perhaps with a revocation.
    pub created: Timestamp,
    /// Which of its certificates are revoked. It is boxed, because few addons have one.
    pub revocation: Option<Box<Revocation>>,
}

impl From<AddOnFacts> for AddOn {
    /// An addon that has existed since the beginning of time.
    fn from(facts: AddOnFacts) -> Self {
        Self { facts, created: Timestamp::from_unix(0), revocation: None }
    }
}

/// Why an addon of a cluster is not eligible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRegistered {
    /// The first list of clusters or addons is not complete yet. This is not a refusal; ask again later.
    #[error("the hub has not read its clusters and addons yet")]
    NotReady,
    /// The API server was silent for longer than the hub may rely on what it knows. This is not a refusal; ask again
    /// later.
    #[error("the hub has not heard from the API server for too long to know who is registered")]
    Outdated,
    /// There is no such ManagedCluster.
    #[error("there is no ManagedCluster of that name")]
    ClusterUnknown,
    /// `hubAcceptsClient` is not true.
    #[error("the ManagedCluster is not accepted (hubAcceptsClient is not true)")]
    ClusterNotAccepted,
    /// The ManagedCluster is being deleted.
    #[error("the ManagedCluster is being deleted")]
    ClusterDeleting,
    /// There is no such ManagedClusterAddOn.
    #[error("the addon is not installed on that cluster (no ManagedClusterAddOn)")]
    AddOnUnknown,
    /// The ManagedClusterAddOn is being deleted.
    #[error("the ManagedClusterAddOn is being deleted")]
    AddOnDeleting,
    /// An annotation suspends the addon.
    #[error("the addon is suspended on that cluster (annotation addon-signer.io/suspended)")]
    AddOnSuspended,
    /// The object cannot be read.
    #[error("the addon's registration cannot be read")]
    Unreadable,
}

impl NotRegistered {
    /// Whether the hub does not know which addons are registered, so that nothing is refused and the caller may ask
    /// again.
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::NotReady | Self::Outdated)
    }

    /// The CamelCase name for conditions and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotReady => "RegistryNotReady",
            Self::Outdated => "RegistryOutdated",
            Self::ClusterUnknown => "ClusterUnknown",
            Self::ClusterNotAccepted => "ClusterNotAccepted",
            Self::ClusterDeleting => "ClusterDeleting",
            Self::AddOnUnknown => "AddOnNotInstalled",
            Self::AddOnDeleting => "AddOnDeleting",
            Self::AddOnSuspended => "AddOnSuspended",
            Self::Unreadable => "RegistrationUnreadable",
        }
    }
}

/// All clusters and addons of the hub.
#[derive(Debug, Default)]
pub struct Registry {
    clusters_ready: bool,
    addons_ready: bool,
    /// Whether it must not be relied on.
    outdated: bool,
    clusters: HashMap<ClusterName, ClusterFacts>,
    /// The ManagedClusterSets of clusters that are in one.
    sets: HashMap<ClusterName, String>,
    addons: HashMap<ClusterName, HashMap<AddOnName, AddOn>>,
}

/// The state of an addon, which is compared before and after a change.
struct AddOnState {
    eligibility: Result<(), NotRegistered>,
    /// When the younger of the two objects was made, if the addon's is there.
    created: Option<Timestamp>,
    /// `None` if the object is not there or cannot be read. Then the revocation is unknown, but it was not withdrawn.
    revocation: Option<Option<Revocation>>,
}

impl Registry {
    /// Records what is known of a cluster; `None` means that it was deleted. Returns the changes of eligibility.
    pub fn set_cluster(&mut self, cluster: ClusterName, facts: Option<ClusterFacts>) -> Vec<EligibilityChange> {
        self.compare(Some(&cluster.clone()), |registry| match facts {
            Some(facts) => drop(registry.clusters.insert(cluster, facts)),
            None => {
                registry.clusters.remove(&cluster);
                registry.sets.remove(&cluster);
            }
        })
    }

    /// Records the ManagedClusterSet of a cluster. It decides which routes admit the cluster, not its eligibility.
    pub fn set_cluster_set(&mut self, cluster: &ClusterName, set: Option<String>) {
        match set {
            Some(set) => drop(self.sets.insert(cluster.clone(), set)),
            None => drop(self.sets.remove(cluster)),
        }
    }

    /// The ManagedClusterSet of a cluster.
    #[must_use]
    pub fn cluster_set(&self, cluster: &ClusterName) -> Option<&str> {
        self.sets.get(cluster).map(String::as_str)
    }

    /// Records what is known of an addon on a cluster; `None` means that it was deleted. Returns the changes of
    /// eligibility.
    pub fn put_addon(
        &mut self,
        cluster: ClusterName,
        addon: AddOnName,
        found: Option<AddOn>,
    ) -> Vec<EligibilityChange> {
        self.compare(Some(&cluster.clone()), |registry| registry.insert(cluster, addon, found))
    }

    /// Does the same as [`Self::put_addon`], for an addon without revocation.
    pub fn set_addon(
        &mut self,
        cluster: ClusterName,
        addon: AddOnName,
        facts: Option<AddOnFacts>,
    ) -> Vec<EligibilityChange> {
        self.put_addon(cluster, addon, facts.map(AddOn::from))
    }

    /// Another cluster whose name begins with that of this one.
    pub fn longer_name(&self, cluster: &ClusterName) -> Option<&ClusterName> {
        self.clusters.keys().find(|other| *other != cluster && other.as_str().starts_with(cluster.as_str()))
    }

    /// Notes that all clusters were listed, and forgets those that the list did not show. Returns the changes of
    /// eligibility; the first complete lists cause none.
    pub fn complete_clusters(&mut self, is_shown: impl Fn(&ClusterName) -> bool) -> Vec<EligibilityChange> {
        self.compare(None, |registry| {
            registry.clusters.retain(|cluster, _| is_shown(cluster));
            registry.sets.retain(|cluster, _| is_shown(cluster));
            registry.clusters_ready = true;
        })
    }

    /// Notes that all addons were listed, and forgets those that the list did not show. Returns the changes of
    /// eligibility; the first complete lists cause none.
    pub fn complete_addons(&mut self, is_shown: impl Fn(&AddOnKey) -> bool) -> Vec<EligibilityChange> {
        self.compare(None, |registry| {
            registry.addons.retain(|cluster, addons| {
                addons.retain(|addon, _| is_shown(&AddOnKey { cluster: cluster.clone(), addon: addon.clone() }));
                !addons.is_empty()
            });
            registry.addons_ready = true;
        })
    }

    fn insert(&mut self, cluster: ClusterName, addon: AddOnName, found: Option<AddOn>) {
        match found {
            Some(found) => {
                self.addons.entry(cluster).or_default().insert(addon, found);
            }
            None => {
                if let Some(addons) = self.addons.get_mut(&cluster) {
                    addons.remove(&addon);
                    if addons.is_empty() {
                        self.addons.remove(&cluster);
                    }
                }
            }
        }
    }

    /// Makes a change, and compares all addons, or those of one cluster, before and after it.
    fn compare(&mut self, only: Option<&ClusterName>, change: impl FnOnce(&mut Self)) -> Vec<EligibilityChange> {
        if !self.is_ready() {
            change(self);
            return Vec::new();
        }
        let before = self.all(only);
        change(self);
        let mut after = self.all(only);
        for pair in before.keys().filter(|pair| !after.contains_key(*pair)).cloned().collect::<Vec<_>>() {
            after.insert(pair.clone(), self.found(&pair.0, &pair.1));
        }
        let nothing = AddOnState { eligibility: Err(NotRegistered::AddOnUnknown), created: None, revocation: None };
        let compared = after.into_iter().flat_map(|((cluster, addon), now)| {
            let changes = now.changes_since(before.get(&(cluster.clone(), addon.clone())).unwrap_or(&nothing));
            let cause = now.eligibility.err();
            let changed =
                move |change| EligibilityChange { cluster: cluster.clone(), addon: addon.clone(), change, cause };
            changes.into_iter().flatten().map(changed)
        });
        compared.collect()
    }

    fn all(&self, only: Option<&ClusterName>) -> HashMap<(ClusterName, AddOnName), AddOnState> {
        let of_all = only.is_none().then_some(&self.addons).into_iter().flatten();
        let of_one = only.and_then(|cluster| self.addons.get_key_value(cluster));
        let addons =
            of_all.chain(of_one).flat_map(|(cluster, addons)| addons.keys().map(move |addon| (cluster, addon)));
        addons.map(|(cluster, addon)| ((cluster.clone(), addon.clone()), self.found(cluster, addon))).collect()
    }

    fn found(&self, cluster: &ClusterName, addon: &AddOnName) -> AddOnState {
        let revocation = self.revocation(cluster, addon).map(Option::<&Revocation>::cloned);
        AddOnState { eligibility: self.listed(cluster, addon), created: self.created(cluster, addon), revocation }
    }

    fn addon(&self, cluster: &ClusterName, addon: &AddOnName) -> Option<&AddOn> {
        self.addons.get(cluster)?.get(addon)
    }

    /// Sets whether the registry's content is too old to rely on. This changes no eligibility.
    pub fn set_outdated(&mut self, outdated: bool) {
        self.outdated = outdated;
    }

    /// Whether both lists were complete at least once.
    pub fn is_ready(&self) -> bool {
        self.clusters_ready && self.addons_ready
    }

    /// Whether `addon` on `cluster` is eligible now.
    ///
    /// # Errors
    /// [`NotRegistered`] names what is missing. [`NotRegistered::is_unknown`] means that the hub does not know.
    pub fn check(&self, cluster: &ClusterName, addon: &AddOnName) -> Result<(), NotRegistered> {
        if self.outdated { Err(NotRegistered::Outdated) } else { self.listed(cluster, addon) }
    }

    /// Whether `addon` on `cluster` is eligible according to the last read, however old that is.
    ///
    /// # Errors
    /// As [`Self::check`], without [`NotRegistered::Outdated`].
    pub fn listed(&self, cluster: &ClusterName, addon: &AddOnName) -> Result<(), NotRegistered> {
        if !self.is_ready() {
            return Err(NotRegistered::NotReady);
        }
        let facts = self.clusters.get(cluster).ok_or(NotRegistered::ClusterUnknown)?;
        if facts.deleting {
            return Err(NotRegistered::ClusterDeleting);
        }
        if !facts.accepted {
            return Err(NotRegistered::ClusterNotAccepted);
        }
        match self.addon(cluster, addon).map(|addon| addon.facts) {
            None => Err(NotRegistered::AddOnUnknown),
            Some(AddOnFacts::Deleting) => Err(NotRegistered::AddOnDeleting),
            Some(AddOnFacts::Suspended) => Err(NotRegistered::AddOnSuspended),
            Some(AddOnFacts::Unreadable) => Err(NotRegistered::Unreadable),
            Some(AddOnFacts::Installed) => Ok(()),
        }
    }

    /// On how many clusters these addons are eligible according to the last read, each counted by itself.
    pub fn count_eligible(&self, addons: &BTreeSet<AddOnName>) -> usize {
        self.names().filter(|(cluster, addon)| addons.contains(*addon) && self.listed(cluster, addon).is_ok()).count()
    }

    /// All addons of all clusters that have a ManagedClusterAddOn, in no order.
    pub fn names(&self) -> impl Iterator<Item = (&ClusterName, &AddOnName)> {
        self.addons.iter().flat_map(|(cluster, of)| of.keys().map(move |addon| (cluster, addon)))
    }

    /// The earliest beginning of a certificate of `addon` on `cluster`: those that begin earlier are revoked, or were
    /// made for an earlier ManagedClusterAddOn or ManagedCluster of that name. So a revoked certificate does not become
    /// valid again if such an object is deleted and recreated without the revocation.
    pub fn valid_from(&self, cluster: &ClusterName, addon: &AddOnName) -> Option<Timestamp> {
        self.created(cluster, addon).max(self.revoked_before(cluster, addon))
    }

    /// When the ManagedClusterAddOn or its ManagedCluster was created, whichever was later.
    pub fn created(&self, cluster: &ClusterName, addon: &AddOnName) -> Option<Timestamp> {
        let created = self.addon(cluster, addon)?.created;
        Some(self.clusters.get(cluster).map_or(created, |facts| facts.created.max(created)))
    }

    /// Certificates of `addon` on `cluster` that begin before this time are revoked.
    pub fn revoked_before(&self, cluster: &ClusterName, addon: &AddOnName) -> Option<Timestamp> {
        self.addon(cluster, addon)?.revocation.as_ref().map(|revocation| revocation.before)
    }

    /// The revocation of an addon. The outer `None` means that it is unknown, because the object is not there or cannot
    /// be read.
    pub fn revocation(&self, cluster: &ClusterName, addon: &AddOnName) -> Option<Option<&Revocation>> {
        let readable = self.addon(cluster, addon).filter(|addon| addon.facts != AddOnFacts::Unreadable)?;
        Some(readable.revocation.as_deref())
    }

    /// Every addon with a revocation.
    pub fn revocations(&self) -> impl Iterator<Item = (&ClusterName, &AddOnName, &Revocation)> {
        let of_cluster = |(cluster, addons)| std::iter::repeat(cluster).zip::<&HashMap<AddOnName, AddOn>>(addons);
        let all = self.addons.iter().flat_map(of_cluster);
        all.filter_map(|(cluster, (addon, found))| Some((cluster, addon, found.revocation.as_deref()?)))
    }
}

impl AddOnState {
    fn changes_since(&self, before: &Self) -> [Option<Change>; 2] {
        let was = before.revocation.as_ref().and_then(Option::as_ref);
        // Nothing becomes valid again if the object was created after the revoked certificates.
        let is_kept = was.is_some_and(|was| self.created >= Some(was.before));
        let moved = self.revocation.as_ref().and_then(|now| Change::moved(was, now.as_ref()));
        let moved = moved.filter(|change| !is_kept || matches!(change, Change::Revoked(_)));
        [Eligibility::between(before.eligibility, self.eligibility).map(Change::Eligibility), moved]
    }
}

/// A registry that the hub's watches write, and that the signer reads for each CSR and the gateway for each request.
#[derive(Debug, Clone, Default)]
pub struct SharedRegistry(Arc<RwLock<Registry>>);

impl SharedRegistry {
    /// Calls `look` under a lock, so `look` must be short.
    pub fn read<T>(&self, read: impl FnOnce(&Registry) -> T) -> T {
        // A panic elsewhere cannot leave these maps half-written, because every change is one map operation.
        read(&self.0.read())
    }

    /// Changes the registry.
    pub fn write<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        change(&mut self.0.write())
    }
}

#[cfg(test)]
mod tests;
