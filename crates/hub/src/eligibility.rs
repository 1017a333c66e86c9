//! Whose eligibility has changed: the watches of clusters and addons report it to the dispatcher of CSRs.

use std::collections::BTreeSet;
use std::mem::replace;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use addon_signer_core::identity::ClusterName;

/// Those whose eligibility may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangedEligibility {
    /// All clusters.
    All,
    /// Addons of these clusters.
    Of(BTreeSet<ClusterName>),
}

/// Collects changes until the dispatcher takes them. It begins with all clusters: a hub that waits for the Lease has no
/// dispatcher, and collects no names.
#[derive(Debug, Clone)]
pub(crate) struct EligibilityWatch(Arc<(Mutex<ChangedEligibility>, Notify)>);

impl Default for EligibilityWatch {
    fn default() -> Self {
        Self(Arc::new((Mutex::new(ChangedEligibility::All), Notify::new())))
    }
}

impl EligibilityWatch {
    /// Reports that all may have changed: the registry has become complete.
    pub(crate) fn all_changed(&self) {
        self.change(|changed| *changed = ChangedEligibility::All);
    }

    /// Reports that addons of these clusters have changed.
    pub(crate) fn changed(&self, clusters: impl Iterator<Item = ClusterName>) {
        self.change(|changed| {
            if let ChangedEligibility::Of(known) = changed {
                known.extend(clusters);
            }
        });
    }

    /// Waits for changes and takes them. If this is dropped, nothing is lost.
    pub(crate) async fn next(&self) -> ChangedEligibility {
        self.0.1.notified().await;
        self.locked(|changed| replace(changed, ChangedEligibility::Of(BTreeSet::new())))
    }

    fn change(&self, change: impl FnOnce(&mut ChangedEligibility)) {
        self.locked(change);
        self.0.1.notify_one();
    }

    fn locked<T>(&self, use_it: impl FnOnce(&mut ChangedEligibility) -> T) -> T {
        use_it(&mut self.0.0.lock())
    }
}
