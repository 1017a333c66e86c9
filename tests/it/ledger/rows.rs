//! The rows of a ledger as somebody sees and changes them who has the store itself.

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use crate::support::store::TestStore;

/// A row of `entries`.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) seq: i64,
    pub(super) entry: String,
    pub(super) hash: Vec<u8>,
}

/// The same on either store.
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

/// A file as any program opens it; made if it is not there.
pub(super) async fn sqlite(file: &std::path::Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(file).create_if_missing(true).connect().await.unwrap()
}

/// Runs statements.
pub(super) async fn try_run(store: &TestStore, sql: &str) -> Result<(), sqlx::Error> {
    let sql = AssertSqlSafe(sql.to_owned());
    on!(store, connection => sqlx::raw_sql(sql).execute(&mut connection).await.map(drop))
}

pub(crate) async fn run(store: &TestStore, sql: &str) {
    try_run(store, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// All entries.
pub(super) async fn read(store: &TestStore) -> Vec<Row> {
    let sql = "SELECT seq, entry, hash FROM entries ORDER BY seq";
    let rows: Vec<(i64, String, Vec<u8>)> =
        on!(store, connection => sqlx::query_as(sql).fetch_all(&mut connection).await.unwrap());
    rows.into_iter().map(|(seq, entry, hash)| Row { seq, entry, hash }).collect()
}

/// Lets `replace` do what the ledger's triggers do not let happen by mistake.
pub(super) async fn disarm(store: &TestStore) {
    let of_table = if store.is_file() { "" } else { " ON entries" };
    for trigger in ["entries_are_not_altered", "entries_are_not_deleted"] {
        run(store, &format!("DROP TRIGGER {trigger}{of_table}")).await;
    }
    run(store, "CREATE TABLE saved AS SELECT * FROM certificates").await;
}

/// Puts these rows in place of all, with the index as it was before `disarm` as far as there are rows for it.
pub(super) async fn replace(store: &TestStore, rows: &[Row]) {
    run(store, "DELETE FROM entries; DELETE FROM certificates; DELETE FROM unfinished").await;
    for Row { seq, entry, hash } in rows.iter().cloned() {
        let insert = "INSERT INTO entries (seq, entry, hash) VALUES ($1, $2, $3)";
        on!(store, connection => {
            sqlx::query(insert).bind(seq).bind(entry).bind(hash).execute(&mut connection).await.map(drop).unwrap();
        });
    }
    run(store, "INSERT INTO certificates SELECT * FROM saved WHERE seq IN (SELECT seq FROM entries)").await;
    run(store, "INSERT INTO unfinished SELECT seq FROM certificates WHERE state IN ('intent', 'signed')").await;
}

/// The number that a statement selects.
pub(super) async fn number(store: &TestStore, sql: &str) -> u64 {
    let sql = AssertSqlSafe(format!("SELECT CAST({sql} AS BIGINT)"));
    let found: i64 = on!(store, connection => sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap());
    found.try_into().unwrap()
}
