//! A snapshot of the ledger: its rows in their order, read ahead while earlier rows are checked.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::VerifyError;
use crate::connection::{Cells, Connection};
use crate::error::classify;
use crate::{Location, schema};
use addon_signer_core::journal::chain::{Fault, Problem, begins};
use addon_signer_core::journal::entry::{Hash, Tip};
use addon_signer_core::timestamp::Timestamp;

/// Entries on a page.
const ENTRIES: u64 = 1024;
/// Pages that are read ahead.
const AHEAD: usize = 4;

/// A connection whose transaction sees the ledger at one moment, whatever its hub writes meanwhile.
pub(super) struct Snapshot {
    connection: Connection,
    /// The last entry.
    pub(super) last: u64,
    /// The first entry.
    first: Option<u64>,
    /// The last entry of each archive, with its hash if that is one.
    archives: Vec<(u64, Option<Hash>)>,
    /// The id of the ledger, from the table of latest values.
    pub(super) ledger: String,
}

impl Snapshot {
    /// Begins the transaction.
    pub(super) async fn take(location: &Location) -> Result<Self, VerifyError> {
        let connection = schema::open_to_read(location).await?;
        Self::look(connection).await.map_err(|error| classify(location, &error).into())
    }

    async fn look(mut connection: Connection) -> Result<Self, sqlx::Error> {
        connection.begin_to_read().await?;
        let rows = connection.rows("SELECT MAX(seq), MIN(seq) FROM entries".to_owned(), Vec::new()).await?;
        let last = rows.first().map_or(0, |row| row.count(0));
        let first = rows.first().filter(|row| row.int(1).is_some()).map(|row| row.count(1));
        let sql = "SELECT through, hash FROM archives ORDER BY through".to_owned();
        let archives = connection.rows(sql, Vec::new()).await?;
        let archives = archives.iter().map(|row| (row.count(0), Hash::from_bytes(row.bytes(1)))).collect();
        let sql = "SELECT value FROM latest WHERE topic = 'ledger' AND name = ''".to_owned();
        let rows = connection.rows(sql, Vec::new()).await?;
        let ledger = rows.first().map(|row| row.text(0)).unwrap_or_default();
        Ok(Self { connection, last, first, archives, ledger })
    }

    /// The last entry that is in an archive; 0 for none.
    pub(super) fn through(&self) -> u64 {
        self.archives.last().map_or(0, |archive| archive.0)
    }

    /// Checks the ledger's claims about its archives against the entry that it begins with.
    pub(super) fn check_archives(&self) -> Result<(), Fault> {
        match self.archives.iter().find(|(_, hash)| hash.is_none()) {
            Some((through, _)) => Err(Problem::NoHash.at(*through)),
            None => begins(self.through(), self.first),
        }
    }

    /// The hash of the entry `seq`, if an archive ends with it.
    pub(super) fn archived(&self, seq: u64) -> Option<Hash> {
        self.archives.iter().find(|archive| archive.0 == seq)?.1
    }

    /// The tip that the entry `seq` must follow, if it is the first entry of all or the first one after an archive.
    pub(super) fn tip_before(&self, seq: u64) -> Option<Tip> {
        match seq.checked_sub(1)? {
            0 => Some(Tip::EMPTY),
            before => Some(Tip { seq: before, hash: self.archived(before)?, time: Timestamp::from_unix(0) }),
        }
    }

    /// Begins to read everything from the entry `from` on.
    pub(super) fn read(self, from: u64) -> Pages {
        let (sender, pages) = mpsc::channel(AHEAD);
        Pages { pages, reader: tokio::spawn(read(self.connection, from, self.last, sender)) }
    }
}

/// Entries in their order, and the rows of the index up to the last of them.
pub(super) struct RowPage {
    /// `seq`, `entry`, `hash`.
    pub(super) entries: Vec<Cells>,
    /// [`super::index::COLUMNS`].
    pub(super) index: Vec<Cells>,
}

/// Pages as they are read.
pub(super) struct Pages {
    pages: mpsc::Receiver<RowPage>,
    reader: JoinHandle<Result<Connection, sqlx::Error>>,
}

impl Pages {
    /// The next page; `None` after the last, or when reading has failed.
    pub(super) async fn next(&mut self) -> Option<RowPage> {
        self.pages.recv().await
    }

    /// The connection, for single queries, or why reading has failed.
    pub(super) async fn end(self) -> Result<Connection, VerifyError> {
        drop(self.pages);
        let read = self.reader.await.map_err(|_| VerifyError::Unfinished("the task that reads it failed"))?;
        Ok(read?)
    }
}

async fn read(
    mut connection: Connection,
    from: u64,
    last: u64,
    pages: mpsc::Sender<RowPage>,
) -> Result<Connection, sqlx::Error> {
    let columns = super::index::COLUMNS;
    let mut first = from;
    let mut index_after = i64::MIN;
    loop {
        // Reads by ranges, not by row counts, so that no row is left out, however often a number occurs.
        let end = first + ENTRIES - 1;
        let is_last = end >= last;
        let sql = "SELECT seq, entry, hash FROM entries WHERE seq BETWEEN $1 AND $2 ORDER BY seq".to_owned();
        let entries = connection.rows(sql, vec![first.into(), end.into()]).await?;
        let upto = if is_last { i64::MAX } else { i64::try_from(end).unwrap_or(i64::MAX) };
        let sql = format!(
            "SELECT {columns} FROM certificates LEFT JOIN unfinished ON unfinished.seq = certificates.seq \
             WHERE certificates.seq > $1 AND certificates.seq <= $2 ORDER BY certificates.seq"
        );
        let index = connection.rows(sql, vec![index_after.into(), upto.into()]).await?;
        (first, index_after) = (end + 1, upto);
        if entries.is_empty() && !is_last {
            // A gap may have any length, so reading continues at the next entry, which shows that rows are missing.
            let sql = "SELECT MIN(seq) FROM entries WHERE seq >= $1".to_owned();
            let rows = connection.rows(sql, vec![first.into()]).await?;
            first = rows.first().map_or(first, |row| row.count(0));
        }
        // The receiver is gone after a fault was found.
        if pages.send(RowPage { entries, index }).await.is_err() || is_last {
            return Ok(connection);
        }
    }
}
