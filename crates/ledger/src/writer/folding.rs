//! Folds SQLite's journal into the file in a task beside the writer, not in a commit. In a large ledger, folding writes
//! pages all over the file and waits until they are on disk; in a commit, CSRs would have to wait for that.

use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::connection::Connection;
use crate::error::classify;
use crate::{LedgerError, Location};

/// Entries between two foldings: some 64 MiB of journal.
const ENTRIES: u64 = 10_000;
/// A dry run takes as much of the journal as this many entries.
const DRY_RUN: u64 = 10;
/// Passes of one folding. Each pass folds what commits added during the one before, which is less each time.
const PASSES: u32 = 3;

/// The growth of the journal since it was last folded, and the current task that folds it.
pub(super) struct Folding {
    location: Location,
    /// The last entry.
    tip: u64,
    entries: u64,
    task: Option<AbortOnDropHandle<Result<(), LedgerError>>>,
}

impl Folding {
    /// Folding for a ledger whose last entry is `tip`.
    pub(super) fn new(location: &Location, tip: u64) -> Self {
        Self { location: location.clone(), tip, entries: 0, task: None }
    }

    /// Starts a folding when one is due, and folds the rest on the writer's connection. SQLite reuses the journal from
    /// its beginning only when all of it has been folded; otherwise the journal grows forever.
    pub(super) async fn after_commit(&mut self, tip: u64, connection: &mut Connection) {
        let entries = tip.saturating_sub(self.tip);
        self.tip = tip;
        self.after(entries, connection).await;
    }

    /// The same after a dry run.
    pub(super) async fn after_dry_run(&mut self, connection: &mut Connection) {
        self.after(DRY_RUN, connection).await;
    }

    async fn after(&mut self, entries: u64, connection: &mut Connection) {
        self.entries = self.entries.saturating_add(entries);
        if matches!(self.location, Location::Postgres(_)) {
            return;
        }
        if self.task.as_ref().is_some_and(AbortOnDropHandle::is_finished) {
            self.end().await;
            let rest = connection.fold().await;
            self.report(rest.map_err(|error| classify(&self.location, &error)));
        } else if self.task.is_none() && self.entries >= ENTRIES {
            self.entries = 0;
            self.task = Some(AbortOnDropHandle::new(tokio::spawn(fold(self.location.clone()))));
        }
    }

    /// Waits until the folding has ended.
    pub(super) async fn end(&mut self) {
        let Some(task) = self.task.take() else { return };
        match task.await {
            Ok(folded) => self.report(folded),
            Err(error) => warn!(%error, "The task that folds the journal into the file failed; retrying later"),
        }
    }

    fn report(&self, folded: Result<(), LedgerError>) {
        if let Err(error) = folded {
            warn!(%error, "Could not fold the journal into the file; nothing is lost, retrying later");
        }
    }
}

async fn fold(location: Location) -> Result<(), LedgerError> {
    let mut connection = Connection::open(&location).await?;
    for _ in 0..PASSES {
        connection.fold().await.map_err(|error| classify(&location, &error))?;
    }
    connection.close().await.map_err(|error| classify(&location, &error))
}
