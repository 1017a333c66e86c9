//! Whether the ledger can be written: its health is that of its last write.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::transaction::dry_run;
use super::{DurableTip, LedgerWriter, RETRY};
use crate::LedgerError;
use crate::handle::Health;

/// How often an idle store is tried.
const IDLE: Duration = Duration::from_secs(30);
/// How long after a failed write no further write must have been requested before a dry run counts: CSRs that wait for
/// the ledger ask again after a minute at most.
pub(super) const QUIET: Duration = Duration::from_secs(90);

impl LedgerWriter {
    /// Tries to write to the open store: only that shows whether decisions can be recorded. A ledger on a full disk,
    /// for instance, can still be opened.
    pub(super) async fn try_to_write(&mut self) -> Result<(), LedgerError> {
        let author = self.author();
        let Some(store) = &mut self.store else { return Ok(()) };
        match dry_run(&mut store.connection, &author, &self.options.location).await {
            Ok(()) => {
                store.folding.after_dry_run(&mut store.connection).await;
                self.succeeded();
                Ok(())
            }
            Err(error) => self.failed(self.explain(error)),
        }
    }

    /// Notes that a write is durable.
    pub(super) fn succeeded(&mut self) {
        let Some(store) = &self.store else { return };
        let (ledger, tip) = (store.ledger.clone(), store.tip);
        if !matches!(*self.health.borrow(), Health::Up { .. }) {
            info!(ledger = %self.options.location, entries = tip.seq, epoch = self.epoch, "Opened the ledger");
        }
        self.refused = None;
        self.dry_run_at = Instant::now() + IDLE;
        self.written = Some(DurableTip { ledger: ledger.clone(), tip });
        self.health.send_replace(Health::Up { ledger, tip });
    }

    /// Notes that a write has failed.
    pub(super) fn failed(&mut self, error: LedgerError) -> Result<(), LedgerError> {
        if !self.may_pass(&error) {
            return Err(error);
        }
        self.fail(error);
        Ok(())
    }

    /// Whether the error may resolve by itself. A file that this process has written reappears with its disk.
    pub(super) fn may_pass(&self, error: &LedgerError) -> bool {
        error.is_passing() || self.written.is_some() && matches!(error, LedgerError::File { .. })
    }

    pub(super) fn fail(&mut self, error: LedgerError) {
        self.store = None;
        self.retry_at = Instant::now() + RETRY;
        let down = Health::Down(error);
        self.health.send_if_modified(|health| {
            let news = *health != down;
            // Warns once: an unavailable store fails for one reason after another, and `/readyz` shows the current one.
            match (&*health, &down) {
                (Health::Starting | Health::Up { .. }, Health::Down(error)) => {
                    warn!(%error, "The ledger cannot be written to; nothing is signed until it can");
                }
                (_, still) => debug!(?still, "The ledger still cannot be written to"),
            }
            *health = down;
            news
        });
    }
}
