//! The schema: its migrations are embedded, only go forward, and are applied at start under a lock.

use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, SqlStr};
use tokio::time::timeout;

use super::connection::Connection;
use super::error::classify;
use super::{LedgerError, Location, lock};

// Without sqlx's macros, which would build both stores' drivers a second time.
static SQLITE: LazyLock<Migrator> = LazyLock::new(|| migrator(include_str!("migrations/sqlite/0001_ledger.sql")));
static POSTGRES: LazyLock<Migrator> = LazyLock::new(|| migrator(include_str!("migrations/postgres/0001_ledger.sql")));

fn migrator(first: &'static str) -> Migrator {
    let sql = SqlStr::from_static(first);
    Migrator::with_migrations(vec![Migration::new(1, "ledger".into(), MigrationType::Simple, sql, false)])
}

/// `PRAGMA application_id` of our files: "ASgn".
const APPLICATION_ID: i64 = 0x4153_676e;
/// One page of the smallest size (https://www.sqlite.org/fileformat.html section 1.3.2).
const SMALLEST_DATABASE: u64 = 512;

/// Opens a ledger to write, and creates it if it does not exist.
///
/// The caller holds the lock of a SQLite file; on PostgreSQL the migrations take a lock of their own.
pub(crate) async fn open(location: &Location, limit: Duration) -> Result<Connection, LedgerError> {
    if let Location::Sqlite(path) = location {
        lock::create_private(path)?;
    }
    open_again(location, limit).await
}

/// Opens an existing ledger to write.
pub(crate) async fn open_again(location: &Location, limit: Duration) -> Result<Connection, LedgerError> {
    let late = |_| classify(location, &sqlx::Error::PoolTimedOut);
    timeout(limit, connect(location)).await.map_err(late)?
}

async fn connect(location: &Location) -> Result<Connection, LedgerError> {
    refuse_other_file(location)?;
    let mut connection = Connection::open(location).await?;
    refuse_foreign(location, &mut connection).await?;
    migrate(location, &mut connection).await?;
    Ok(connection)
}

/// Opens a ledger to read; a ledger with another schema is refused.
pub(crate) async fn open_to_read(location: &Location) -> Result<Connection, LedgerError> {
    let mut connection = open_to_check(location).await?;
    refuse_other_version(location, &mut connection).await?;
    Ok(connection)
}

/// Opens a ledger to read, without a statement that touches its tables: such a statement may run code that belongs to
/// the table.
pub(crate) async fn open_to_check(location: &Location) -> Result<Connection, LedgerError> {
    refuse_other_file(location)?;
    let mut connection = Connection::open_to_read(location).await?;
    refuse_foreign(location, &mut connection).await?;
    Ok(connection)
}

/// Opens an existing ledger to move rows out of it, while its hub may write to it.
pub(crate) async fn open_to_archive(location: &Location) -> Result<Connection, LedgerError> {
    refuse_other_file(location)?;
    let mut connection = Connection::open(location).await?;
    refuse_foreign(location, &mut connection).await?;
    refuse_other_version(location, &mut connection).await?;
    Ok(connection)
}

/// Refuses a ledger that another program or a newer version has made.
pub(crate) async fn refuse_other_version(location: &Location, connection: &mut Connection) -> Result<(), LedgerError> {
    match version(location, connection).await? {
        found if found == latest() => Ok(()),
        0 => Err(LedgerError::Foreign { ledger: location.to_string(), cause: "it is empty".to_owned() }),
        found => Err(LedgerError::Newer { ledger: location.to_string(), found }),
    }
}

/// A database in memory with the schema of a ledger and nothing else.
pub(crate) async fn in_memory() -> Result<Connection, sqlx::Error> {
    let mut made = SqliteConnectOptions::new().in_memory(true).connect().await?;
    SQLITE.run_direct(None, &mut made, false).await?;
    Ok(Connection::Sqlite(made))
}

/// The schema of this program.
fn latest() -> i64 {
    SQLITE.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// The schema of a ledger; 0 if it has none yet.
async fn version(location: &Location, connection: &mut Connection) -> Result<i64, LedgerError> {
    let sql = "SELECT CAST(MAX(version) AS BIGINT) FROM _sqlx_migrations".to_owned();
    match connection.rows(sql, Vec::new()).await {
        Ok(rows) => Ok(rows.first().and_then(|row| row.int(0)).unwrap_or(0)),
        Err(error) => match classify(location, &error) {
            hidden @ LedgerError::RowSecurity { .. } => Err(hidden),
            _ if error.as_database_error().is_some() => Ok(0), // no such table
            other => Err(other),
        },
    }
}

/// Refuses a file that is too short for a database: SQLite treats a one-byte file as an empty one. It is not opened,
/// because POSIX drops all locks of a process on a file when the process closes that file anywhere
/// (https://www.sqlite.org/howtocorrupt.html section 2.2).
fn refuse_other_file(location: &Location) -> Result<(), LedgerError> {
    let Location::Sqlite(path) = location else { return Ok(()) };
    let failed = |error: io::Error| LedgerError::File { path: path.clone(), cause: error.to_string() };
    match std::fs::metadata(path).map_err(failed)?.len() {
        1..SMALLEST_DATABASE => {
            let cause = "the file is not a SQLite database".to_owned();
            Err(LedgerError::Foreign { ledger: location.to_string(), cause })
        }
        _ => Ok(()),
    }
}

/// Refuses a database that has tables of another program.
async fn refuse_foreign(location: &Location, connection: &mut Connection) -> Result<(), LedgerError> {
    let failed = |error: sqlx::Error| classify(location, &error);
    let foreign = |cause: &str| LedgerError::Foreign { ledger: location.to_string(), cause: cause.to_owned() };
    let tables = match connection {
        Connection::Sqlite(_) => "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
        Connection::Postgres(_) => "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()",
    };
    let tables = connection.rows(tables.to_owned(), Vec::new()).await.map_err(failed)?;
    if tables.is_empty() {
        return Ok(());
    }
    if !tables.iter().any(|row| row.text(0) == "_sqlx_migrations") {
        return Err(foreign("it is a database with tables of another program"));
    }
    if let Connection::Sqlite(_) = connection {
        let rows = connection.rows("PRAGMA application_id".to_owned(), Vec::new()).await.map_err(failed)?;
        if rows.first().and_then(|row| row.int(0)) != Some(APPLICATION_ID) {
            return Err(foreign("it is a SQLite database of another program"));
        }
    } else if tables.len() > 1 && !tables.iter().any(|row| row.text(0) == "fence") {
        // The table of migrations is the only one if a process was killed before its first migration.
        return Err(foreign("it is a database with tables of another program"));
    }
    Ok(())
}

async fn migrate(location: &Location, connection: &mut Connection) -> Result<(), LedgerError> {
    let migrated = match connection {
        Connection::Sqlite(inner) => {
            mark(inner).await.map_err(|error| classify(location, &error))?;
            SQLITE.run_direct(None, inner, false).await
        }
        Connection::Postgres(inner) => POSTGRES.run_direct(None, inner, false).await,
    };
    let ledger = location.to_string();
    migrated.map_err(|error| match error {
        MigrateError::VersionMissing(found) => LedgerError::Newer { ledger, found },
        MigrateError::VersionMismatch(version) => {
            LedgerError::Foreign { ledger, cause: format!("its schema {version} is not this program's") }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => classify(location, &error),
        other => LedgerError::Unavailable { ledger, cause: other.to_string() },
    })
}

/// Writes our application id into the file, if it is missing.
async fn mark(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let found: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await?;
    if found != APPLICATION_ID {
        let mark = sqlx::AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}"));
        sqlx::raw_sql(mark).execute(connection).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_in_the_tree_is_applied() {
        for (store, migrator) in [("sqlite", &SQLITE), ("postgres", &POSTGRES)] {
            let files = std::fs::read_dir(format!("{}/src/migrations/{store}", env!("CARGO_MANIFEST_DIR")));
            assert_eq!(files.unwrap().count(), migrator.iter().count(), "{store}");
        }
    }
}
