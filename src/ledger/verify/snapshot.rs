//! One moment of the ledger, seen by several connections.

use std::time::Duration;

use super::VerifyError;
use crate::ledger::connection::{Cells, Connection};
use crate::ledger::error::classify;
use crate::ledger::{LedgerError, Location, schema};
use addon_signer_core::journal::entry::{Hash, Tip};
use addon_signer_core::timestamp::Timestamp;

/// Connections at most.
const CONNECTIONS: usize = 16;
/// How often connections that saw different moments are set up again: a hub that writes leaves a gap between two transactions.
const ATTEMPTS: u32 = 200;

/// One moment of the ledger.
pub(super) struct Snapshot {
    pub(super) connections: Vec<Connection>,
    /// The last row.
    pub(super) last: u64,
    /// The last row of each archive, with its hash.
    pub(super) archives: Vec<(u64, Hash)>,
    /// As the index of latest values has it.
    pub(super) ledger: String,
}

impl Snapshot {
    pub(super) fn through(&self) -> u64 {
        self.archives.last().map_or(0, |archive| archive.0)
    }

    /// What a row must follow that an archive ends before.
    pub(super) fn tip_before(&self, row: u64) -> Option<Tip> {
        if row == 1 {
            return Some(Tip::EMPTY);
        }
        let (seq, hash) = self.archives.iter().find(|archive| archive.0 + 1 == row)?;
        Some(Tip { seq: *seq, hash: *hash, time: Timestamp::from_unix(0) })
    }

    /// Connections that see the same moment.
    pub(super) async fn take(location: &Location) -> Result<Self, VerifyError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut connections = Vec::new();
        // Two for each core, because one waits for its store while another checks; and one for what is looked at row by row.
        for _ in 0..=(2 * cores).min(CONNECTIONS) {
            connections.push(schema::open_to_read(location).await?);
        }
        let failed = |error: sqlx::Error| classify(location, &error);
        for connection in &mut connections {
            connection.map_file().await.map_err(failed)?;
        }
        for _ in 0..ATTEMPTS {
            let mut moments = Vec::new();
            for connection in &mut connections {
                moments.push(look(connection).await.map_err(failed)?);
            }
            if let Some((last, archives)) = all_the_same(moments) {
                let sql = "SELECT value FROM latest WHERE topic = 'ledger' AND name = ''".to_owned();
                let first = connections.first_mut().ok_or(LedgerError::Stopped)?;
                let rows = first.rows(sql, Vec::new()).await.map_err(failed)?;
                let ledger = rows.first().map(|row| row.text(0)).unwrap_or_default();
                return Ok(Self { connections, last, archives, ledger });
            }
            for connection in &mut connections {
                connection.command("ROLLBACK").await.map_err(failed)?;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(VerifyError::Unfinished("its hub writes so often that no two connections see the same rows; try again"))
    }
}

type Moment = (u64, Vec<(u64, Hash)>);

fn all_the_same(mut moments: Vec<Moment>) -> Option<Moment> {
    let last = moments.pop()?;
    moments.iter().all(|moment| *moment == last).then_some(last)
}

/// Begins a transaction that reads, and says which moment it sees.
async fn look(connection: &mut Connection) -> Result<Moment, sqlx::Error> {
    connection.begin_to_read().await?;
    let rows = connection.rows("SELECT MAX(seq) FROM entries".to_owned(), Vec::new()).await?;
    let last = rows.first().map_or(0, |row| row.count(0));
    let sql = "SELECT through, hash FROM archives ORDER BY through".to_owned();
    let archives = connection.rows(sql, Vec::new()).await?;
    let archive = |row: &Cells| Some((row.count(0), Hash::from_bytes(row.bytes(1))?));
    Ok((last, archives.iter().filter_map(archive).collect()))
}
