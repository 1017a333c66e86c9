//! A snapshot of the ledger: its rows in their order, read ahead while earlier rows are checked.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::VerifyError;
use crate::connection::{Cells, Connection, PageSize};
use crate::{Location, schema};
use addon_signer_core::journal::entry::{Hash, Tip};
use addon_signer_core::journal::hash_chain::{ChainProblem, Fault, begins};
use addon_signer_core::timestamp::Timestamp;

/// Entries on a page, if they are not large.
const ENTRIES: u64 = 1024;
/// Pages that are read ahead.
const AHEAD: usize = 4;
/// Makes PostgreSQL read tables from one end to the other, and write the schema as it does by default.
const WITHOUT_INDEXES: &str = "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; \
                               SET LOCAL enable_bitmapscan = off; SET LOCAL quote_all_identifiers = off";
/// By their primary keys, pages come in their order without a sorted copy of the whole table. If a key omits a row,
/// there are fewer rows than [`Snapshot::counted`]. Lists must use an index here too, even if their table is so small
/// that they would need none.
const WITH_INDEXES: &str = "SET LOCAL enable_indexscan TO DEFAULT; SET LOCAL enable_indexonlyscan TO DEFAULT; \
                            SET LOCAL enable_bitmapscan TO DEFAULT; SET LOCAL enable_seqscan = off";

/// A connection whose transaction sees a snapshot of the ledger, whatever its hub writes meanwhile.
pub(super) struct Snapshot {
    connection: Connection,
    /// The last entry.
    pub(super) last: u64,
    /// The first entry.
    first: Option<u64>,
    /// The last entry of each archive, with its hash if that is valid.
    archives: Vec<(u64, Option<Hash>)>,
    /// The table of latest values: topic, name, value, number of the entry.
    pub(super) latest: Vec<Cells>,
    /// The epoch of the process that may write.
    pub(super) fence: u64,
    /// How many entries and how many certificates PostgreSQL finds without an index. In SQLite a table is itself in the
    /// order of its numbers.
    pub(super) counted: Option<[u64; 2]>,
}

impl Snapshot {
    /// Begins the transaction, which does not use indexes yet. It has not touched a table of the ledger either.
    pub(super) async fn begin(location: &Location) -> Result<Connection, VerifyError> {
        let mut connection = schema::open_to_check(location).await?;
        connection.begin_to_read().await?;
        if let Connection::Postgres(_) = connection {
            connection.command(WITHOUT_INDEXES).await?;
        }
        Ok(connection)
    }

    /// Reads what all pages have in common.
    pub(super) async fn take(mut connection: Connection) -> Result<Self, sqlx::Error> {
        let ends = match connection {
            Connection::Sqlite(_) => {
                "(SELECT MAX(seq) FROM entries NOT INDEXED), (SELECT MIN(seq) FROM entries NOT INDEXED)"
            }
            Connection::Postgres(_) => "MAX(seq), MIN(seq), COUNT(*), (SELECT COUNT(*) FROM certificates) FROM entries",
        };
        let rows = connection.rows(format!("SELECT {ends}"), Vec::new()).await?;
        let last = rows.first().map_or(0, |row| row.count(0));
        let first = rows.first().filter(|row| row.int(1).is_some()).map(|row| row.count(1));
        let counted = rows.first().filter(|row| row.len() > 2).map(|row| [row.count(2), row.count(3)]);
        let sql = "SELECT through, hash FROM archives ORDER BY through".to_owned();
        let archives = connection.rows(sql, Vec::new()).await?;
        let archives = archives.iter().map(|row| (row.count(0), Hash::from_bytes(row.bytes(1)))).collect();
        let sql = format!("SELECT topic, name, value, seq FROM latest{}", table_only(&connection));
        let latest = connection.rows(sql, Vec::new()).await?;
        let rows = connection.rows("SELECT epoch FROM fence WHERE id = 1".to_owned(), Vec::new()).await?;
        let fence = rows.first().map_or(0, |row| row.count(0));
        if let Connection::Postgres(_) = connection {
            connection.command(WITH_INDEXES).await?;
        }
        Ok(Self { connection, last, first, archives, latest, fence, counted })
    }

    /// The last entry that is in an archive; 0 for none.
    pub(super) fn through(&self) -> u64 {
        self.archives.last().map_or(0, |archive| archive.0)
    }

    /// Compares the ledger's record of its archives with its first entry.
    pub(super) fn check_archives(&self) -> Result<(), Fault> {
        match self.archives.iter().find(|(_, hash)| hash.is_none()) {
            Some((through, _)) => Err(ChainProblem::NoHash.at(*through)),
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

    /// Starts reading everything from the entry `from` on.
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

/// Makes SQLite read a table itself. For PostgreSQL [`WITHOUT_INDEXES`] does that.
fn table_only(connection: &Connection) -> &'static str {
    match connection {
        Connection::Sqlite(_) => " NOT INDEXED",
        Connection::Postgres(_) => "",
    }
}

async fn read(
    mut connection: Connection,
    from: u64,
    last: u64,
    pages: mpsc::Sender<RowPage>,
) -> Result<Connection, sqlx::Error> {
    let columns = super::index::COLUMNS;
    let table_only = table_only(&connection);
    let mut first = from;
    let mut index_from = i64::MIN;
    let mut size = PageSize::at_most(ENTRIES);
    loop {
        // Reads by ranges, not by row counts, so that no row is omitted, however often a number occurs.
        let sql = format!("SELECT seq, entry, hash FROM entries{table_only} WHERE seq BETWEEN $1 AND $2 ORDER BY seq");
        let range = |count: u64| (sql.clone(), vec![first.into(), (first + count - 1).into()]);
        let (entries, count) = connection.page(&mut size, range).await?;
        let end = first + count - 1;
        let is_last = end >= last;
        let upto = if is_last { i64::MAX } else { i64::try_from(end).unwrap_or(i64::MAX) };
        let sql = format!(
            "SELECT {columns} FROM certificates{table_only} LEFT JOIN unfinished \
             ON unfinished.seq = certificates.seq \
             WHERE certificates.seq BETWEEN $1 AND $2 ORDER BY certificates.seq"
        );
        let index = connection.rows(sql, vec![index_from.into(), upto.into()]).await?;
        (first, index_from) = (end + 1, upto.saturating_add(1));
        if entries.is_empty() && !is_last {
            // A gap may have any length, so reading continues at the next entry, which shows that rows are missing.
            let sql = "SELECT MIN(seq) FROM entries WHERE seq >= $1".to_owned();
            let rows = connection.rows(sql, vec![first.into()]).await?;
            first = rows.first().map_or(first, |row| row.count(0));
        }
        // The receiver was dropped after it found a fault.
        if pages.send(RowPage { entries, index }).await.is_err() || is_last {
            return Ok(connection);
        }
    }
}
