//! Compares a lineage with the ledger before the first step of this process, and again after another client wrote its
//! Secret, because the Secret may come from a backup.

use std::time::Duration;

use tokio::time::timeout;
use tracing::{debug, error};

use super::lineage_steps::CATCH_UP;
use super::{LineageReconciler, ReconcileError};
use crate::authorities::stored::StoredLineage;
use crate::metrics::Difference;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::lineage::Older;
use addon_signer_core::timestamp::Timestamp;

/// Timeout for a ledger that is up: two transactions, each with the writer's own timeout.
const TIMEOUT: Duration = Duration::from_secs(20);

impl LineageReconciler {
    /// Compares once, logs what differs, and repairs what can be repaired: an anchor stays until the last certificate
    /// that the ledger knows has expired. While the ledger does not answer, the lineage signs, but takes no step. The
    /// timeout suits a distant ledger too.
    pub(super) async fn compare(
        &mut self,
        stored: StoredLineage,
        now: Timestamp,
    ) -> Result<StoredLineage, ReconcileError> {
        if self.compared {
            return Ok(stored);
        }
        let again = self.lineage.state.borrow().last().is_some();
        let bound = if self.record.is_up() { TIMEOUT } else { CATCH_UP };
        // If the hub's clock were ahead, certificates in use would count as expired.
        let date = self.links.store.server_time().await?.unwrap_or(Timestamp::from_unix(0));
        let comparing = self.record.compare(&stored.lineage, again, now.min(date));
        let older = if self.unrecorded.by.is_some() && !again {
            comparing.await? // a new lineage has no effect before it is recorded
        } else if let Ok(Ok(older)) = timeout(bound, comparing).await {
            older
        } else {
            debug!(
                secret = self.lineage.names.secret,
                "The ledger does not answer; the hub compares the authorities with it later"
            );
            return Ok(stored);
        };
        let stored = match older {
            Some(older) => self.make_good(stored, &older).await?,
            None => stored,
        };
        self.compared = true;
        Ok(stored)
    }

    async fn make_good(&self, stored: StoredLineage, older: &Older) -> Result<StoredLineage, ReconcileError> {
        let ids = |ids: &[AuthorityId]| ids.iter().map(AuthorityId::as_str).collect::<Vec<_>>().join(" ");
        error!(
            secret = self.lineage.names.secret,
            behind = ids(&older.behind),
            missing = ids(&older.missing),
            "The authorities are older than the ledger: their Secret was restored from a backup, or given up. \
             Certificates of missing ones are refused. See \"Restoring a backup\" in docs/operations.md"
        );
        if older.lineage == stored.lineage {
            self.links.hub.metrics.differs(Difference::Authorities, older.behind.len() + older.missing.len());
            return Ok(stored);
        }
        let leads = self.links.hub.leading.leads()?;
        let good = self.links.store.replace(&leads, &self.lineage.names, &stored, &older.lineage, None).await?;
        self.links.hub.metrics.differs(Difference::Authorities, older.behind.len() + older.missing.len());
        Ok(good)
    }
}
