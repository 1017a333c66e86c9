//! The tasks of the hub, and how they tell each other news. The end of each one ends the hub.

use std::collections::BTreeSet;
use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::HubError;
use addon_signer_core::identity::ClusterName;

/// How long the end of a task that feeds the ledger's writer is delayed, so that the writer reports its own end first.
const WRITER_FIRST: Duration = Duration::from_secs(5);

/// The tasks that run as long as the hub.
#[derive(Default)]
pub(super) struct HubTasks(JoinSet<HubError>);

impl HubTasks {
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<(), HubError>> + Send + 'static,
    ) {
        self.0.spawn(async move { task.await.err().unwrap_or_else(|| HubError::TaskEnded(name.to_owned())) });
    }

    /// Waits for the first task that ends.
    pub(super) async fn ended(&mut self) -> HubError {
        match self.0.join_next().await {
            Some(ended) => ended.unwrap_or_else(HubError::from),
            None => std::future::pending().await,
        }
    }
}

/// Runs a task that feeds the ledger's writer. The task ends when the writer has ended, and the hub may see the task's
/// end first. Only the writer knows why it ended, so the end of the task counts a little later.
pub(super) async fn after_the_writer(feeder: impl Future<Output = ()>) -> Result<(), HubError> {
    feeder.await;
    tokio::time::sleep(WRITER_FIRST).await;
    Ok(())
}

/// Sends a value if it differs from the last one, so that receivers see only news. Returns whether it differs.
pub fn send_news<T: PartialEq>(sender: &watch::Sender<T>, now: T) -> bool {
    sender.send_if_modified(|known| {
        let differs = *known != now;
        if differs {
            *known = now; // otherwise receivers share the one that they have
        }
        differs
    })
}

/// Those whose eligibility may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangedEligibility {
    /// All clusters.
    All,
    /// Addons of these clusters.
    Of(BTreeSet<ClusterName>),
}

/// Collects changes until the dispatcher takes them. It begins with all clusters, so that a hub that waits for the
/// Lease, and so has no dispatcher, need not collect names.
#[derive(Debug, Clone)]
pub(crate) struct EligibilityWatch(Arc<(Mutex<ChangedEligibility>, Notify)>);

impl Default for EligibilityWatch {
    fn default() -> Self {
        Self(Arc::new((Mutex::new(ChangedEligibility::All), Notify::new())))
    }
}

impl EligibilityWatch {
    /// Reports that the eligibility of all may have changed, because the registry has become complete.
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
        replace(&mut *self.0.0.lock(), ChangedEligibility::Of(BTreeSet::new()))
    }

    fn change(&self, change: impl FnOnce(&mut ChangedEligibility)) {
        change(&mut self.0.0.lock());
        self.0.1.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_ledger::LedgerError;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_each_of_the_hubs_tasks_ends_the_hub() {
        let end = async |task: Result<(), HubError>| {
            let mut tasks = HubTasks::default();
            tasks.spawn("another", std::future::pending());
            tasks.spawn("requests", std::future::ready(task));
            tasks.ended().await
        };
        assert!(matches!(end(Ok(())).await, HubError::TaskEnded(name) if name == "requests"));
        assert!(matches!(end(Err(LedgerError::Stopped.into())).await, HubError::Ledger(LedgerError::Stopped)));
        let mut tasks = HubTasks::default();
        tasks.spawn("panic", async { std::panic::resume_unwind(Box::new(())) });
        assert!(matches!(tasks.ended().await, HubError::TaskFailed(error) if error.is_panic()));
        let mut tasks = HubTasks::default();
        tasks.spawn("recovery", after_the_writer(async {}));
        assert!(matches!(tasks.ended().await, HubError::TaskEnded(name) if name == "recovery"));
    }

    #[tokio::test(start_paused = true)]
    async fn hub_ends_for_writer_error_not_for_tasks_feeding_it() {
        let mut tasks = HubTasks::default();
        tasks.spawn("recovery", after_the_writer(async {}));
        tokio::task::yield_now().await;
        tasks.spawn("writer of the ledger", async { Err(HubError::Ledger(LedgerError::Stopped)) });
        assert!(matches!(tasks.ended().await, HubError::Ledger(LedgerError::Stopped)));
    }
}
