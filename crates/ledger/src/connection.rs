//! One connection to either store. Both take the same SQL; all differences are here and in [`super::schema`].

use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt, TryStreamExt};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, Row, TypeInfo, ValueRef};

use super::{LedgerError, Location};

/// How long one process waits for another that writes to the same file (`certs archive`).
const BUSY: Duration = Duration::from_secs(5);
/// How long PostgreSQL may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A commit is durable once it is answered. If a client loses the network, its transaction keeps the fence row locked
/// until this timeout ends it. Our transactions are never idle that long.
const WRITER: &str = "SET synchronous_commit = on; SET idle_in_transaction_session_timeout = '5s'";
/// For a reader, a policy of row-level security is an error: it would hide rows, and run code in the session.
const READER: &str = "SET default_transaction_read_only = on; SET row_security = off";
/// Resolves names first among PostgreSQL's own and then in the schema that has the ledger. Otherwise `search_path`,
/// which every account that may alter the role or the database can set, would decide which table or operator a
/// statement means. Temporary tables come last; if the path did not name them, they would come first. A new ledger is
/// made in the first schema of the path.
const PIN: &str = "SELECT pg_catalog.set_config('search_path', pg_catalog.quote_ident(COALESCE((\
    SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n \
    ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('fence')), pg_catalog.current_schema())) \
    OPERATOR(pg_catalog.||) ', pg_temp', false)";
/// The size of a block of most file systems. To write a smaller page, they would have to read the block first.
const PAGE: u32 = 4096;
/// Largest cache; negative numbers are in KiB. SQLite takes no more than it needs. A cached page need not be read.
const CACHE: &str = "-131072";
/// At this number of pages in the journal, 256 MiB, a commit folds the journal into the file. The writer folds it
/// earlier, so that no commit has to wait for that.
const WAL_PAGES: &str = "65536";
/// The most bytes of the texts on a page of entries, if that has more than one.
pub(crate) const PAGE_BYTES: usize = 4 << 20;
/// Largest number of cached statements, which differ by their number of rows.
const STATEMENTS: usize = 512;

/// A connection to one of the stores.
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// Runs the same expression on either kind of connection.
macro_rules! on {
    ($connection:expr, $inner:ident => $body:expr) => {
        match $connection {
            Connection::Sqlite($inner) => $body,
            Connection::Postgres($inner) => $body,
        }
    };
}

/// A value of a statement, or of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    /// NULL of a column of texts.
    Null,
}

/// A statement with its values bound in order.
macro_rules! bound {
    ($sql:expr, $values:expr) => {{
        let mut query = sqlx::query(AssertSqlSafe($sql));
        for value in $values {
            query = match value {
                Value::Int(number) => query.bind(number),
                Value::Text(text) => query.bind(text),
                Value::Bytes(bytes) => query.bind(bytes),
                Value::Null => query.bind(None::<String>),
            };
        }
        query
    }};
}

/// Every column of a row, by its type.
macro_rules! cells {
    ($row:expr) => {{
        let row = $row;
        let cell = |at: usize| -> Result<Value, sqlx::Error> {
            let value = row.try_get_raw(at)?;
            if value.is_null() {
                return Ok(Value::Null);
            }
            Ok(match value.type_info().name() {
                "TEXT" => Value::Text(row.try_get(at)?),
                "BLOB" | "BYTEA" => Value::Bytes(row.try_get(at)?),
                _ => Value::Int(row.try_get(at)?),
            })
        };
        (0..row.len()).map(cell).collect::<Result<Vec<_>, _>>().map(Cells)
    }};
}

/// The first rows of a statement, and whether there are more.
pub(crate) struct FirstRows {
    pub(crate) rows: Vec<Cells>,
    pub(crate) is_cut: bool,
}

/// How many rows are read together.
pub(crate) struct PageSize {
    most: u64,
    next: u64,
}

impl PageSize {
    pub(crate) fn at_most(most: u64) -> Self {
        Self { most, next: most }
    }
}

/// A row.
#[derive(Debug, Clone)]
pub(crate) struct Cells(Vec<Value>);

impl Cells {
    /// The bytes of its texts.
    fn size(&self) -> usize {
        let of_value = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Int(_) | Value::Null => 0,
        };
        self.0.iter().map(of_value).sum()
    }

    /// The number of its values.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A text; empty for NULL.
    pub(crate) fn text(&self, at: usize) -> String {
        self.str(at).to_owned()
    }

    /// A borrowed text; empty for NULL.
    pub(crate) fn str(&self, at: usize) -> &str {
        match self.0.get(at) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// A number; `None` for NULL.
    pub(crate) fn int(&self, at: usize) -> Option<i64> {
        match self.0.get(at) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// A sequence number or an epoch; 0 for NULL.
    pub(crate) fn count(&self, at: usize) -> u64 {
        self.int(at).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    }

    /// Bytes; empty for NULL.
    pub(crate) fn bytes(&self, at: usize) -> &[u8] {
        match self.0.get(at) {
            Some(Value::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }
}

impl From<u64> for Value {
    /// Sequence numbers and epochs stay far below 2^63.
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Boxed, because the compiler cannot see that sqlx's generic futures are `Send` for every lifetime.
pub(crate) type StoreFuture<'c, T> = BoxFuture<'c, Result<T, sqlx::Error>>;

impl Connection {
    /// Opens a ledger to write.
    pub(crate) async fn open(location: &Location) -> Result<Self, LedgerError> {
        let opened = match location {
            Location::Sqlite(path) => {
                let options = sqlite(path)
                    .page_size(PAGE)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .pragma("wal_autocheckpoint", WAL_PAGES)
                    .pragma("cache_size", CACHE)
                    .pragma("temp_store", "MEMORY");
                options.connect().await.map(Self::Sqlite)
            }
            Location::Postgres(options) => Self::postgres(options, WRITER).await,
        };
        opened.map_err(|error| super::error::classify(location, &error))
    }

    /// Opens a ledger to read.
    pub(crate) async fn open_to_read(location: &Location) -> Result<Self, LedgerError> {
        let opened = match location {
            Location::Sqlite(path) => sqlite(path).read_only(true).connect().await.map(Self::Sqlite),
            Location::Postgres(options) => Self::postgres(options, READER).await,
        };
        opened.map_err(|error| super::error::classify(location, &error))
    }

    /// The settings come as statements: a pooler such as PgBouncer may drop or refuse those of the startup message.
    async fn postgres(options: &PgConnectOptions, settings: &'static str) -> Result<Self, sqlx::Error> {
        let options = options.clone().statement_cache_capacity(STATEMENTS);
        let connect = async {
            let mut connection = options.connect().await?;
            sqlx::raw_sql(settings).execute(&mut connection).await?;
            sqlx::raw_sql(PIN).execute(&mut connection).await?;
            Ok(Self::Postgres(connection))
        };
        tokio::time::timeout(CONNECT, connect).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// Runs one statement; returns how many rows it changed.
    pub(crate) fn execute(&mut self, sql: String, values: Vec<Value>) -> StoreFuture<'_, u64> {
        let executed = async move { on!(self, inner => Ok(bound!(sql, values).execute(inner).await?.rows_affected())) };
        executed.boxed()
    }

    /// The rows of one statement.
    pub(crate) fn rows(&mut self, sql: String, values: Vec<Value>) -> StoreFuture<'_, Vec<Cells>> {
        self.first_rows(sql, values, usize::MAX).map_ok(|first| first.rows).boxed()
    }

    /// The first rows of one statement, until their texts have more than `most` bytes together.
    pub(crate) fn first_rows(&mut self, sql: String, values: Vec<Value>, most: usize) -> StoreFuture<'_, FirstRows> {
        let read = async move {
            on!(self, inner => {
                let mut found = bound!(sql, values).fetch(inner);
                let (mut rows, mut size) = (Vec::new(), 0);
                while let Some(row) = found.try_next().await? {
                    if size > most {
                        return Ok(FirstRows { rows, is_cut: true });
                    }
                    let row = cells!(&row)?;
                    size += row.size();
                    rows.push(row);
                }
                Ok(FirstRows { rows, is_cut: false })
            })
        };
        read.boxed()
    }

    /// The rows of a query for at most some number of rows, and that number. It is halved while the rows are large:
    /// authors of AddOnSigners decide how large some entries are.
    pub(crate) async fn page(
        &mut self,
        size: &mut PageSize,
        query: impl Fn(u64) -> (String, Vec<Value>),
    ) -> Result<(Vec<Cells>, u64), sqlx::Error> {
        loop {
            let count = size.next;
            let (sql, values) = query(count);
            let most = if count == 1 { usize::MAX } else { PAGE_BYTES };
            let FirstRows { rows, is_cut } = self.first_rows(sql, values, most).await?;
            if is_cut {
                size.next = count / 2;
                continue;
            }
            size.next = size.most.min(2 * count);
            return Ok((rows, count));
        }
    }

    /// BEGIN, COMMIT and the like, without a prepared statement.
    pub(crate) fn command(&mut self, sql: &'static str) -> StoreFuture<'_, ()> {
        async move { on!(self, inner => sqlx::raw_sql(sql).execute(inner).await.map(drop)) }.boxed()
    }

    /// Begins a transaction that will write: SQLite takes the lock now, not at the first write.
    pub(crate) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(_) => self.command("BEGIN IMMEDIATE").await,
            Self::Postgres(_) => self.command("BEGIN").await,
        }
    }

    /// Begins a transaction that moves entries into an archive. A second one waits for it.
    pub(crate) async fn begin_to_archive(&mut self) -> Result<(), sqlx::Error> {
        self.begin().await?;
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(_) => self.command("LOCK TABLE archives IN EXCLUSIVE MODE").await,
        }
    }

    /// Folds SQLite's journal into the file, except for what a reader still needs. Commits continue meanwhile.
    pub(crate) async fn fold(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(_) => self.command("PRAGMA wal_checkpoint(PASSIVE)").await,
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Begins a read transaction that sees the ledger as it was at its first statement.
    pub(crate) async fn begin_to_read(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(_) => self.command("BEGIN").await,
            Self::Postgres(_) => self.command("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await,
        }
    }

    /// Ends the connection properly, so that SQLite folds its journal into the file.
    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(inner) => inner.close().await,
            Self::Postgres(inner) => inner.close().await,
        }
    }
}

fn sqlite(path: &Path) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(false).busy_timeout(BUSY);
    options.statement_cache_capacity(STATEMENTS).disable_statement_logging()
}

/// `($1, $2), ($3, $4)` for `rows` rows of `columns`.
pub(super) fn tuples(columns: usize, rows: usize) -> String {
    let row = |row: usize| {
        let names: Vec<_> = (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", names.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}
