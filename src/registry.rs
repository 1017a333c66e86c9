//! Which addon of which cluster is registered on the hub: the facts that policy and gateway ask for.
//!
//! Fed from watches of ManagedCluster and ManagedClusterAddOn; nothing that an agent can write is kept here
//! (`status.registrations` never is). What cannot be read denies (invariant I8).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::identity::{AddOnName, ClusterName};

/// What the hub says of a ManagedCluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterFacts {
    /// `spec.hubAcceptsClient`.
    pub accepted: bool,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// What the hub says of a ManagedClusterAddOn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddOnFacts {
    /// Installed.
    Installed,
    /// `metadata.deletionTimestamp` is set.
    Deleting,
    /// The annotation `addon-signer.io/suspended: "true"`.
    Suspended,
    /// An object or annotation whose meaning is unclear: denies.
    Unreadable,
}

/// Why an addon of a cluster has no standing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRegistered {
    /// The first list of clusters and addons is not complete. Not a refusal: ask again.
    #[error("the hub has not read its clusters and addons yet")]
    NotReady,
    /// No such ManagedCluster.
    #[error("there is no ManagedCluster of that name")]
    ClusterUnknown,
    /// `hubAcceptsClient` is not true.
    #[error("the ManagedCluster is not accepted (hubAcceptsClient is not true)")]
    ClusterNotAccepted,
    /// The ManagedCluster is going away.
    #[error("the ManagedCluster is being deleted")]
    ClusterDeleting,
    /// No such ManagedClusterAddOn.
    #[error("the addon is not installed on that cluster (no ManagedClusterAddOn)")]
    AddOnUnknown,
    /// The ManagedClusterAddOn is going away.
    #[error("the ManagedClusterAddOn is being deleted")]
    AddOnDeleting,
    /// Suspended by annotation.
    #[error("the addon is suspended on that cluster (annotation addon-signer.io/suspended)")]
    AddOnSuspended,
    /// The object cannot be read.
    #[error("the addon's registration cannot be read")]
    Unreadable,
}

impl NotRegistered {
    /// CamelCase name for conditions and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotReady => "RegistryNotReady",
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

/// How the standing of an addon on a cluster changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has standing now and had none: it was installed, or its cluster was accepted.
    Registered,
    /// It was suspended and is not any more.
    Resumed,
    /// It is suspended now.
    Suspended,
    /// It lost its standing: it was removed, or its cluster was, or is not accepted any more.
    Detached,
}

impl Standing {
    /// The word for logs and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Resumed => "resumed",
            Self::Suspended => "suspended",
            Self::Detached => "detached",
        }
    }

    /// Without standing before and after, nothing changed, whatever the reasons are.
    pub fn between(before: Result<(), NotRegistered>, after: Result<(), NotRegistered>) -> Option<Self> {
        match (before, after) {
            (Err(NotRegistered::AddOnSuspended), Ok(())) => Some(Self::Resumed),
            (Err(_), Ok(())) => Some(Self::Registered),
            (Ok(()), Err(NotRegistered::AddOnSuspended)) => Some(Self::Suspended),
            (Ok(()), Err(_)) => Some(Self::Detached),
            (Ok(()), Ok(())) | (Err(_), Err(_)) => None,
        }
    }
}

/// An addon on a cluster gained or lost standing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingChange {
    /// The cluster.
    pub cluster: ClusterName,
    /// The addon.
    pub addon: AddOnName,
    /// What happened.
    pub change: Standing,
    /// Why it has no standing now; `None` when it has.
    pub cause: Option<NotRegistered>,
}

/// All clusters and addons of the hub.
#[derive(Debug, Default)]
pub struct Registry {
    clusters_ready: bool,
    addons_ready: bool,
    clusters: HashMap<ClusterName, ClusterFacts>,
    addons: HashMap<ClusterName, HashMap<AddOnName, AddOnFacts>>,
}

impl Registry {
    /// Records what is known of a cluster, or with `None` that it is gone. Returns whose standing changed.
    pub fn set_cluster(&mut self, cluster: ClusterName, facts: Option<ClusterFacts>) -> Vec<StandingChange> {
        self.compare(Some(&cluster.clone()), |registry| match facts {
            Some(facts) => drop(registry.clusters.insert(cluster, facts)),
            None => drop(registry.clusters.remove(&cluster)),
        })
    }

    /// Records what is known of an addon on a cluster, or with `None` that it is gone. Returns whose standing changed.
    pub fn set_addon(
        &mut self,
        cluster: ClusterName,
        addon: AddOnName,
        facts: Option<AddOnFacts>,
    ) -> Vec<StandingChange> {
        self.compare(Some(&cluster.clone()), |registry| registry.put_addon(cluster, addon, facts))
    }

    /// Replaces all clusters by a complete list. Returns whose standing changed; the first complete lists change nobody's.
    pub fn replace_clusters(&mut self, clusters: HashMap<ClusterName, ClusterFacts>) -> Vec<StandingChange> {
        self.compare(None, |registry| {
            registry.clusters = clusters;
            registry.clusters_ready = true;
        })
    }

    /// Replaces all addons by a complete list. Returns whose standing changed; the first complete lists change nobody's.
    pub fn replace_addons(
        &mut self,
        addons: HashMap<ClusterName, HashMap<AddOnName, AddOnFacts>>,
    ) -> Vec<StandingChange> {
        self.compare(None, |registry| {
            registry.addons = addons;
            registry.addons_ready = true;
        })
    }

    fn put_addon(&mut self, cluster: ClusterName, addon: AddOnName, facts: Option<AddOnFacts>) {
        match facts {
            Some(facts) => {
                self.addons.entry(cluster).or_default().insert(addon, facts);
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

    /// Makes a change, and compares the standing of every addon, or of those of one cluster, before and after it.
    fn compare(&mut self, only: Option<&ClusterName>, change: impl FnOnce(&mut Self)) -> Vec<StandingChange> {
        if !self.is_ready() {
            change(self);
            return Vec::new();
        }
        let before = self.standings(only);
        change(self);
        let mut after = self.standings(only);
        for pair in before.keys().filter(|pair| !after.contains_key(*pair)).cloned().collect::<Vec<_>>() {
            after.insert(pair.clone(), self.check(&pair.0, &pair.1));
        }
        let unknown = Err(NotRegistered::AddOnUnknown);
        let compared = after.into_iter().filter_map(|(pair, now)| {
            let change = Standing::between(before.get(&pair).copied().unwrap_or(unknown), now)?;
            Some(StandingChange { cluster: pair.0, addon: pair.1, change, cause: now.err() })
        });
        compared.collect()
    }

    fn standings(&self, only: Option<&ClusterName>) -> HashMap<(ClusterName, AddOnName), Result<(), NotRegistered>> {
        let of_all = only.is_none().then_some(&self.addons).into_iter().flatten();
        let of_one = only.and_then(|cluster| self.addons.get_key_value(cluster));
        let addons =
            of_all.chain(of_one).flat_map(|(cluster, addons)| addons.keys().map(move |addon| (cluster, addon)));
        addons.map(|(cluster, addon)| ((cluster.clone(), addon.clone()), self.check(cluster, addon))).collect()
    }

    /// Whether both lists have been complete once.
    pub fn is_ready(&self) -> bool {
        self.clusters_ready && self.addons_ready
    }

    /// Whether `addon` on `cluster` has standing now.
    ///
    /// # Errors
    /// [`NotRegistered`] says what is missing; [`NotRegistered::NotReady`] means that nobody can say yet.
    pub fn check(&self, cluster: &ClusterName, addon: &AddOnName) -> Result<(), NotRegistered> {
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
        match self.addons.get(cluster).and_then(|addons| addons.get(addon)) {
            None => Err(NotRegistered::AddOnUnknown),
            Some(AddOnFacts::Deleting) => Err(NotRegistered::AddOnDeleting),
            Some(AddOnFacts::Suspended) => Err(NotRegistered::AddOnSuspended),
            Some(AddOnFacts::Unreadable) => Err(NotRegistered::Unreadable),
            Some(AddOnFacts::Installed) => Ok(()),
        }
    }
}

/// One registry, written by the hub's watches, read per request by signer and gateway.
#[derive(Debug, Clone, Default)]
pub struct SharedRegistry(Arc<RwLock<Registry>>);

impl SharedRegistry {
    /// Reads under a lock that is held for a look-up only.
    pub fn read<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        // A panic elsewhere cannot leave these maps half-written: every change is one map operation.
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the registry.
    pub fn write<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(cluster: Option<ClusterFacts>, addon: Option<AddOnFacts>) -> Registry {
        let mut registry = Registry::default();
        registry.replace_clusters(HashMap::new());
        registry.replace_addons(HashMap::new());
        registry.set_cluster("c1".parse().unwrap(), cluster);
        registry.set_addon("c1".parse().unwrap(), "a1".parse().unwrap(), addon);
        registry
    }

    fn check(registry: &Registry) -> Result<(), NotRegistered> {
        registry.check(&"c1".parse().unwrap(), &"a1".parse().unwrap())
    }

    const ACCEPTED: Option<ClusterFacts> = Some(ClusterFacts { accepted: true, deleting: false });

    #[test]
    fn only_an_installed_addon_of_an_accepted_cluster_has_standing() {
        use AddOnFacts::{Deleting, Installed, Suspended, Unreadable};
        let cases = [
            (ACCEPTED, Some(Installed), Ok(())),
            (None, Some(Installed), Err(NotRegistered::ClusterUnknown)),
            (
                Some(ClusterFacts { accepted: false, deleting: false }),
                Some(Installed),
                Err(NotRegistered::ClusterNotAccepted),
            ),
            (
                Some(ClusterFacts { accepted: true, deleting: true }),
                Some(Installed),
                Err(NotRegistered::ClusterDeleting),
            ),
            (ACCEPTED, None, Err(NotRegistered::AddOnUnknown)),
            (ACCEPTED, Some(Deleting), Err(NotRegistered::AddOnDeleting)),
            (ACCEPTED, Some(Suspended), Err(NotRegistered::AddOnSuspended)),
            (ACCEPTED, Some(Unreadable), Err(NotRegistered::Unreadable)),
        ];
        for (cluster, addon, expected) in cases {
            assert_eq!(check(&registry(cluster, addon)), expected);
        }
    }

    #[test]
    fn nothing_has_standing_before_both_lists_are_complete() {
        let mut registry = Registry::default();
        registry.replace_clusters(HashMap::new());
        assert_eq!(check(&registry), Err(NotRegistered::NotReady));
    }

    #[test]
    fn changes_of_standing_are_told_one_by_one() {
        use AddOnFacts::{Deleting, Installed, Suspended};
        let mut registry = registry(ACCEPTED, None);
        let change = |change, cause| {
            let (cluster, addon) = ("c1".parse().unwrap(), "a1".parse().unwrap());
            vec![StandingChange { cluster, addon, change, cause }]
        };
        let mut addon = |facts| registry.set_addon("c1".parse().unwrap(), "a1".parse().unwrap(), facts);
        assert_eq!(addon(Some(Installed)), change(Standing::Registered, None));
        assert_eq!(addon(Some(Installed)), vec![]);
        assert_eq!(addon(Some(Suspended)), change(Standing::Suspended, Some(NotRegistered::AddOnSuspended)));
        assert_eq!(addon(Some(Deleting)), vec![], "without standing as before");
        assert_eq!(addon(Some(Suspended)), vec![]);
        assert_eq!(addon(Some(Installed)), change(Standing::Resumed, None));
        assert_eq!(addon(None), change(Standing::Detached, Some(NotRegistered::AddOnUnknown)));
        addon(Some(Installed));
        let lost = change(Standing::Detached, Some(NotRegistered::ClusterUnknown));
        assert_eq!(registry.set_cluster("c1".parse().unwrap(), None), lost);
        registry.set_cluster("c1".parse().unwrap(), ACCEPTED);
        assert_eq!(registry.replace_clusters(HashMap::new()), lost, "also when a watch begins anew");
        registry.set_cluster("c1".parse().unwrap(), ACCEPTED);
        let lost = change(Standing::Detached, Some(NotRegistered::AddOnUnknown));
        assert_eq!(registry.replace_addons(HashMap::new()), lost);
    }

    #[test]
    fn the_first_complete_lists_change_nobodys_standing() {
        let mut registry = Registry::default();
        let installed = HashMap::from([("a1".parse().unwrap(), AddOnFacts::Installed)]);
        let accepted = ClusterFacts { accepted: true, deleting: false };
        assert_eq!(registry.replace_addons(HashMap::from([("c1".parse().unwrap(), installed)])), vec![]);
        assert_eq!(registry.replace_clusters(HashMap::from([("c1".parse().unwrap(), accepted)])), vec![]);
        assert_eq!(check(&registry), Ok(()));
    }
}
