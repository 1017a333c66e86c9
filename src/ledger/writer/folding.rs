//! SQLite's journal is folded into the file beside the writer, not by a commit: of a large ledger that writes pages all
//! over the file and waits until they are on the disk, and requests would wait with it.

use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::ledger::connection::Connection;
use crate::ledger::error::classify;
use crate::ledger::{LedgerError, Location};

/// Entries after which it is time: some 64 MiB of journal.
const ENTRIES: u64 = 10_000;
/// What commits add meanwhile is folded in next, and is less each time.
const PASSES: u32 = 3;

/// When the journal was folded in, and who does it now.
pub(super) struct Folding {
    location: Location,
    since: u64,
    task: Option<AbortOnDropHandle<Result<(), LedgerError>>>,
}

impl Folding {
    /// Of a ledger whose last entry is `tip`.
    pub(super) fn new(location: &Location, tip: u64) -> Self {
        Self { location: location.clone(), since: tip, task: None }
    }

    /// Begins it when it is time, and ends it on the writer's connection: only what is folded in without a rest is
    /// written over from its beginning, so that the journal does not grow for ever.
    pub(super) async fn after_commit(&mut self, tip: u64, connection: &mut Connection) {
        if matches!(self.location, Location::Postgres(_)) {
            return;
        }
        if self.task.as_ref().is_some_and(AbortOnDropHandle::is_finished) {
            self.end().await;
            let rest = connection.fold().await;
            self.report(rest.map_err(|error| classify(&self.location, &error)));
        } else if self.task.is_none() && tip.saturating_sub(self.since) >= ENTRIES {
            self.since = tip;
            self.task = Some(AbortOnDropHandle::new(tokio::spawn(fold(self.location.clone()))));
        }
    }

    /// Waits until nobody folds.
    pub(super) async fn end(&mut self) {
        let Some(task) = self.task.take() else { return };
        match task.await {
            Ok(folded) => self.report(folded),
            Err(error) => warn!(%error, "Folding the journal into the ledger's file broke off; it is tried again"),
        }
    }

    fn report(&self, folded: Result<(), LedgerError>) {
        if let Err(error) = folded {
            warn!(%error, "The journal was not folded into the ledger's file; nothing is lost, and it is tried again");
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
