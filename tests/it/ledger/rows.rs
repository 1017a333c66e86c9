//! Reads and changes the rows of a ledger as somebody with access to the store can do it.

use addon_signer_ledger::verify::{VerifyError, VerifyReport};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use test_kit::store::TestStore;

/// A row of `entries`.
#[derive(Clone)]
pub(super) struct EntryRow {
    pub(super) seq: i64,
    pub(super) entry: String,
    pub(super) hash: Vec<u8>,
}

/// Evaluates an expression with a connection to either store.
macro_rules! on {
    ($store:expr, $connection:ident => $body:expr) => {
        match $store {
            TestStore::Sqlite(dir) => {
                let mut $connection = sqlite(&dir.path().join("ledger.db")).await;
                let result = $body;
                $connection.close().await.unwrap();
                result
            }
            TestStore::Postgres(database) => {
                let mut $connection = PgConnection::connect(&database.url).await.unwrap();
                $body
            }
        }
    };
}

/// Opens a file as any program does; creates it if it does not exist. What a test writes need not survive a crash.
pub(super) async fn sqlite(file: &std::path::Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    options.synchronous(SqliteSynchronous::Off).connect().await.unwrap()
}

/// Runs statements.
pub(super) async fn try_run(store: &TestStore, sql: &str) -> Result<(), sqlx::Error> {
    let sql = AssertSqlSafe(sql.to_owned());
    on!(store, connection => sqlx::raw_sql(sql).execute(&mut connection).await.map(drop))
}

pub(crate) async fn run(store: &TestStore, sql: &str) {
    try_run(store, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Runs statements on the file of a ledger that nobody has open, which closes it.
pub(crate) async fn run_on(file: &std::path::Path, sql: &str) {
    let mut connection = sqlite(file).await;
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// All entries.
pub(super) async fn read(store: &TestStore) -> Vec<EntryRow> {
    let sql = "SELECT seq, entry, hash FROM entries ORDER BY seq";
    let rows: Vec<(i64, String, Vec<u8>)> =
        on!(store, connection => sqlx::query_as(sql).fetch_all(&mut connection).await.unwrap());
    rows.into_iter().map(|(seq, entry, hash)| EntryRow { seq, entry, hash }).collect()
}

/// Removes the triggers that prevent changes by mistake, and saves the index, so that `replace` works.
pub(super) async fn disarm(store: &TestStore) {
    let of_table = if store.is_file() { "" } else { " ON entries" };
    for trigger in ["entries_are_not_altered", "entries_are_not_deleted"] {
        run(store, &format!("DROP TRIGGER {trigger}{of_table}")).await;
    }
    run(store, "CREATE TABLE saved AS SELECT * FROM certificates").await;
}

/// What a check says of the rows. It names the altered schema of a store that is disarmed, too.
pub(super) fn of_rows(checked: Result<VerifyReport, VerifyError>) -> Result<(), VerifyError> {
    match checked {
        Err(VerifyError::Schema { rows, .. }) => rows.map_or(Ok(()), |rows| Err(*rows)),
        other => other.map(drop),
    }
}

/// Replaces all rows by these, and restores the index of these rows as it was at `disarm`.
pub(super) async fn replace(store: &TestStore, rows: &[EntryRow]) {
    run(store, "DELETE FROM entries; DELETE FROM certificates; DELETE FROM unfinished").await;
    on!(store, connection => for EntryRow { seq, entry, hash } in rows.iter().cloned() {
        let insert = "INSERT INTO entries (seq, entry, hash) VALUES ($1, $2, $3)";
        sqlx::query(insert).bind(seq).bind(entry).bind(hash).execute(&mut connection).await.unwrap();
    });
    let intents = "SELECT seq FROM entries WHERE entry LIKE '%\"kind\":\"intent\"%'";
    run(store, &format!("INSERT INTO certificates SELECT * FROM saved WHERE seq IN ({intents})")).await;
    run(store, "INSERT INTO unfinished SELECT seq FROM certificates WHERE state IN ('intent', 'signed')").await;
}

/// Lets the ledger say that its archives end with these rows, and that these are their hashes.
pub(super) async fn replace_archives(store: &TestStore, archives: &[(u64, Vec<u8>)]) {
    run(store, "DELETE FROM archives").await;
    for (through, hash) in archives {
        let hex = data_encoding::HEXLOWER.encode(hash);
        let hash = if store.is_file() { format!("x'{hex}'") } else { format!("'\\x{hex}'") };
        let insert = format!("INSERT INTO archives VALUES ({through}, {hash}, 'a.jsonl', '2026-11-24T00:00:00Z')");
        run(store, &insert).await;
    }
}

/// Evaluates an SQL expression whose value is a number.
pub(super) async fn number(store: &TestStore, sql: &str) -> u64 {
    let sql = AssertSqlSafe(format!("SELECT CAST({sql} AS BIGINT)"));
    let found: i64 = on!(store, connection => sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap());
    found.try_into().unwrap()
}
