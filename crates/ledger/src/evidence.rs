//! Compares a ledger with a checkpoint, and reads its last epoch.

use std::time::Duration;

use tokio::time::timeout;

use super::connection::Connection;
use super::error::classify;
use super::{LedgerError, Location, schema};
use addon_signer_core::journal::checkpoint::Checkpoint;

/// Timeout of a store. Without it, the hub would wait forever for a server that falls silent after the login.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Location {
    /// Why the ledger contradicts `checkpoint`; `None` if it does not. No archive takes the row of the published
    /// checkpoint, so it must be there.
    ///
    /// # Errors
    /// [`LedgerError`] when it cannot be read.
    pub async fn contradicts(&self, checkpoint: &Checkpoint) -> Result<Option<String>, LedgerError> {
        let late = |_| classify(self, &sqlx::Error::PoolTimedOut);
        timeout(TIMEOUT, self.compare(checkpoint)).await.map_err(late)?
    }

    async fn compare(&self, checkpoint: &Checkpoint) -> Result<Option<String>, LedgerError> {
        let mut connection = schema::open_to_read(self).await?;
        contradiction(&mut connection, checkpoint).await.map_err(|error| classify(self, &error))
    }

    /// The last epoch that wrote. 0 if the ledger does not exist yet or does not answer; the writer finds that out.
    pub async fn last_epoch(&self) -> u64 {
        timeout(TIMEOUT, self.read_epoch()).await.ok().and_then(Result::ok).unwrap_or(0)
    }

    async fn read_epoch(&self) -> Result<u64, LedgerError> {
        let mut connection = schema::open_to_read(self).await?;
        let rows = connection.rows("SELECT epoch FROM fence WHERE id = 1".to_owned(), Vec::new()).await;
        Ok(rows.map_err(|error| classify(self, &error))?.first().map_or(0, |row| row.count(0)))
    }
}

/// Why the ledger contradicts `checkpoint`.
pub(super) async fn contradiction(
    connection: &mut Connection,
    checkpoint: &Checkpoint,
) -> Result<Option<String>, sqlx::Error> {
    let seq = checkpoint.seq;
    let sql = "SELECT hash FROM entries WHERE seq = $1".to_owned();
    let rows = connection.rows(sql, vec![seq.into()]).await?;
    if let Some(row) = rows.first() {
        let same = data_encoding::HEXLOWER.encode(row.bytes(0)) == checkpoint.hash;
        return Ok((!same).then(|| format!("row {seq} is different")));
    }
    let rows = connection.rows("SELECT MAX(through) FROM archives".to_owned(), Vec::new()).await?;
    let through = rows.first().map_or(0, |row| row.count(0));
    Ok(Some(match through {
        through if through >= seq => {
            format!("it has no row {seq}, and says that those up to {through} are in archives")
        }
        _ => format!("it has no row {seq}"),
    }))
}
