//! Compares a line with the ledger before the first step of this process, because its Secret may come from a backup.

use tokio::time::timeout;
use tracing::{debug, error};

use super::steps::CATCH_UP;
use super::{Keeper, KeeperError};
use crate::hub::authorities::stored::StoredLine;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::line::Older;
use addon_signer_core::timestamp::Timestamp;

impl Keeper {
    /// Compares once, says what differs, and makes good what can be: an anchor stays until the last certificate that
    /// the ledger knows has expired. While the ledger does not answer, the line signs, but takes no step.
    pub(super) async fn compare(&mut self, stored: StoredLine, now: Timestamp) -> Result<StoredLine, KeeperError> {
        if self.compared {
            return Ok(stored);
        }
        let comparing = self.record.compare(&stored.line, now);
        let older = if self.unrecorded.is_some() {
            comparing.await? // a line that was just made has no effect before it is recorded
        } else if let Ok(Ok(older)) = timeout(CATCH_UP, comparing).await {
            older
        } else {
            debug!(
                secret = self.names.secret,
                "The ledger does not answer; the authorities are compared with it later"
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

    async fn make_good(&self, stored: StoredLine, older: &Older) -> Result<StoredLine, KeeperError> {
        let ids = |ids: &[AuthorityId]| ids.iter().map(AuthorityId::as_str).collect::<Vec<_>>().join(" ");
        error!(
            secret = self.names.secret,
            behind = ids(&older.behind),
            missing = ids(&older.missing),
            "The authorities are older than the ledger: their Secret was restored from a backup, or given up. \
             Certificates of missing ones are refused. See \"Restoring a backup\" in docs/operations.md"
        );
        if older.line == stored.line {
            self.metrics.differs("authorities", older.behind.len() + older.missing.len());
            return Ok(stored);
        }
        let leads = self.leading.leads()?;
        let good = self.store.replace(&leads, &self.names, &stored, &older.line, None).await?;
        self.metrics.differs("authorities", older.behind.len() + older.missing.len());
        Ok(good)
    }
}
