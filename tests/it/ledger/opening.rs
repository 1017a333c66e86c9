//! What a ledger that cannot be opened says, and that nothing of it is touched.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use addon_signer::ledger::query::{Filter, Query};
use addon_signer::ledger::{Existing, Intended, LedgerError, Location, Reader};
use addon_signer_core::journal::record::Intent;
use addon_signer_core::timestamp::Timestamp;
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use tokio::time::timeout;

use super::kit::Running;
use super::rows::{run, sqlite, try_run};
use super::{mk_abandoned, mk_intent};
use crate::support::postgres::{Database, Options, PASSWORD, Postgres, programs};
use crate::support::store::{TestStore, on_every_store};

struct Place {
    dir: TempDir,
    file: PathBuf,
    url: String,
}

fn mk_place() -> Place {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("ledger.db");
    let url = format!("sqlite://{}", file.display());
    Place { dir, file, url }
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn files_of_a_ledger_are_their_owners_alone() {
    let place = mk_place();
    let running = Running::start(&place.url);
    running.up().await;
    running.issue(1).await;
    let files: Vec<_> = fs::read_dir(place.dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.iter().any(|file| file.ends_with("ledger.db-wal")), "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    running.stop().await;
}

#[tokio::test]
async fn file_is_one_that_other_programs_open_and_every_commit_waits_for_the_disk() {
    let place = mk_place();
    let running = Running::start(&place.url);
    running.issue(1).await;
    let mut reader = sqlite(&place.file).await;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut reader).await.unwrap();
    assert_eq!(mode, "wal");
    let check: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut reader).await.unwrap();
    assert_eq!(check, "ok");
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM certificates").fetch_one(&mut reader).await.unwrap();
    assert_eq!(rows, 1);
    reader.close().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn second_hub_on_a_file_is_told_who_has_it_and_waits() {
    let place = mk_place();
    let first = Running::start_as(&place.url, "hub-7d9f", 1);
    first.up().await;
    let second = Running::start_as(&place.url, "hub-b2c4", 2);
    let holder = format!("hub-7d9f (process {})", std::process::id());
    assert_eq!(second.down().await, LedgerError::Held { path: place.file.clone(), holder });
    first.issue(1).await;
    first.stop().await;
    second.up().await;
    second.issue(2).await;
    second.stop().await;
}

#[tokio::test]
async fn file_of_another_program_is_left_alone() {
    for content in ["#!/bin/sh\n# Longer than the 100 bytes of a database's header.\n".repeat(4), "x".to_owned()] {
        let place = mk_place();
        fs::write(&place.file, &content).unwrap();
        let error = Running::start(&place.url).ended().await;
        assert!(matches!(error, LedgerError::Foreign { .. }), "{error}");
        assert_eq!(fs::read_to_string(&place.file).unwrap(), content);
    }
}

#[tokio::test]
async fn postgres_that_was_left_before_the_first_migration_is_ours() {
    if programs().is_none() {
        return;
    }
    let store = TestStore::Postgres(Database::create().await);
    let columns = "version BIGINT PRIMARY KEY, description TEXT NOT NULL, installed_on TIMESTAMPTZ NOT NULL DEFAULT now(), \
                   success BOOLEAN NOT NULL, checksum BYTEA NOT NULL, execution_time BIGINT NOT NULL";
    run(&store, &format!("CREATE TABLE _sqlx_migrations ({columns})")).await;
    Running::start(&store.url()).issue(1).await;
}

#[tokio::test]
async fn database_of_another_program_is_left_alone() {
    on_every_store(async |store| {
        run(store, "CREATE TABLE accounts (name TEXT); INSERT INTO accounts VALUES ('x')").await;
        let error = Running::start(&store.url()).ended().await;
        assert!(matches!(error, LedgerError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("tables of another program"), "{error}");
        run(store, "CREATE TABLE entries (n BIGINT); DROP TABLE accounts").await; // both would fail after a migration
    })
    .await;
}

#[tokio::test]
async fn database_of_another_program_that_uses_the_same_library_is_left_alone() {
    on_every_store(async |store| {
        run(store, "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY); CREATE TABLE accounts (name TEXT)")
            .await;
        let error = Running::start(&store.url()).ended().await;
        assert!(matches!(error, LedgerError::Foreign { .. }), "{error}");
        run(store, "CREATE TABLE entries (n BIGINT)").await;
    })
    .await;
}

#[tokio::test]
async fn newer_schema_stops_the_program() {
    on_every_store(async |store| {
        let running = Running::start(&store.url());
        running.issue(1).await;
        running.stop().await;
        let insert = match store {
            TestStore::Sqlite(_) => "VALUES (99, 'later', 1, x'00', 1)",
            TestStore::Postgres(_) => "VALUES (99, 'later', true, '\\x00', 1)",
        };
        let columns = "(version, description, success, checksum, execution_time)";
        run(store, &format!("INSERT INTO _sqlx_migrations {columns} {insert}")).await;
        let error = Running::start(&store.url()).ended().await;
        assert!(matches!(error, LedgerError::Newer { found: 99, .. }), "{error}");
    })
    .await;
}

/// Makes of a ledger what the first version would have made.
const FIRST_SCHEMA: [&str; 15] = [
    "DROP INDEX certificates_signer",
    "DROP INDEX certificates_addon",
    "DROP INDEX certificates_agent",
    "DROP INDEX certificates_issuer",
    "DROP INDEX certificates_end",
    "DROP INDEX certificates_seen",
    "DROP INDEX certificates_uid",
    "DROP INDEX certificates_ended",
    "DROP TABLE unfinished",
    "ALTER TABLE certificates DROP COLUMN requested",
    "ALTER TABLE certificates DROP COLUMN released",
    "CREATE UNIQUE INDEX certificates_uid ON certificates (uid) WHERE state <> 'abandoned'",
    "CREATE INDEX certificates_open ON certificates (seq) WHERE state IN ('intent', 'signed')",
    "CREATE INDEX certificates_ended ON certificates (seq) WHERE state IN ('unpublished', 'abandoned')",
    "DELETE FROM _sqlx_migrations WHERE version > 1",
];

#[tokio::test]
async fn older_schema_is_brought_up_to_date_by_the_hub_alone() {
    on_every_store(async |store| {
        let running = Running::start(&store.url());
        running.issue(1).await;
        running.ledger.intend(mk_intent(2)).await.unwrap();
        running.ledger.append(mk_abandoned(2), "").await.unwrap();
        running.ledger.intend(mk_intent(4)).await.unwrap();
        running.stop().await;
        for sql in FIRST_SCHEMA {
            run(store, sql).await;
        }
        let location: Location = store.url().parse().unwrap();
        let error = Reader::open(location.clone()).await.err().unwrap();
        assert!(matches!(error, LedgerError::Older { found: 1, .. }), "{error}");
        let running = Running::start(&store.url());
        let again = Intent { uid: "uid-2".to_owned(), ..mk_intent(3) };
        assert_eq!(running.ledger.intend(again).await, Ok(Intended::Recorded), "its first intent was abandoned");
        let found = running.ledger.intend(mk_intent(1)).await;
        assert!(matches!(found, Ok(Intended::Existing(Existing::Signed { .. }))), "it has one: {found:?}");
        let open = running.ledger.open_rows(0, Timestamp::from_unix(i64::MAX)).await.unwrap();
        let open: Vec<_> = open.iter().map(|row| row.uid.as_str()).collect();
        assert_eq!(open, ["uid-1", "uid-4", "uid-2"]);
        running.stop().await;
        let agent = Some("telemetry".to_owned());
        let query = Query { filter: Filter { agent, ..Filter::default() }, ..Query::default() };
        let found = Reader::open(location).await.unwrap().list(&query, Timestamp::from_unix(0)).await.unwrap();
        assert_eq!(found.len(), 4);
        run(store, "DROP INDEX certificates_agent").await; // it was made again
    })
    .await;
}

/// What a store may take over any other step is no limit for a schema: of a large ledger it would never come.
#[tokio::test]
async fn an_upgrade_may_take_longer_than_any_other_step() {
    if programs().is_none() {
        return;
    }
    let server = Postgres::start_with(Options { fsync: false, tls: false }).await;
    server.create_database("ledger").await;
    let url = server.url("ledger");
    let running = Running::start(&url);
    running.issue(1).await;
    running.stop().await;
    let mut holder = PgConnection::connect(&url).await.unwrap();
    for sql in FIRST_SCHEMA.into_iter().chain(["BEGIN", "LOCK TABLE certificates"]) {
        sqlx::raw_sql(sql).execute(&mut holder).await.unwrap();
    }
    let running = Running::start(&url);
    let mut health = running.ledger.health();
    let changed = timeout(Duration::from_secs(15), health.changed()).await;
    assert!(changed.is_err(), "{:?}", *health.borrow());
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    running.up().await;
    running.issue(2).await;
    running.stop().await;
}

#[tokio::test]
async fn corrupt_file_stops_the_program() {
    let place = mk_place();
    let running = Running::start(&place.url);
    for number in 0..200 {
        running.issue(number).await;
    }
    running.stop().await;
    let mut bytes = fs::read(&place.file).unwrap();
    assert!(bytes.len() > 64 << 10, "{}", bytes.len());
    bytes[4096..].fill(0xa5);
    fs::write(&place.file, &bytes).unwrap();
    let error = Running::start(&place.url).ended().await;
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
    assert!(fs::read(&place.file).unwrap() == bytes, "it is left for whoever can mend it");
}

#[tokio::test]
async fn last_row_that_was_altered_stops_the_program() {
    on_every_store(async |store| {
        let running = Running::start(&store.url());
        running.issue(1).await;
        let tip = running.ledger.health().borrow().clone();
        running.stop().await;
        let drop = match store {
            TestStore::Sqlite(_) => "DROP TRIGGER entries_are_not_altered",
            TestStore::Postgres(_) => "DROP TRIGGER entries_are_not_altered ON entries",
        };
        run(store, &format!("{drop}; UPDATE entries SET entry = replace(entry, 'uid-1', 'uid-2')")).await;
        let error = Running::start(&store.url()).ended().await;
        assert!(matches!(error, LedgerError::Damaged { .. }), "{error} {tip:?}");
    })
    .await;
}

#[tokio::test]
async fn entries_cannot_be_altered_or_deleted_by_mistake() {
    on_every_store(async |store| {
        let running = Running::start(&store.url());
        running.issue(1).await;
        running.stop().await;
        for sql in [
            "UPDATE entries SET entry = ''",
            "DELETE FROM entries WHERE seq = 2",
            "INSERT INTO entries SELECT * FROM entries",
        ] {
            try_run(store, sql).await.expect_err(sql);
        }
    })
    .await;
}

/// The program looks before it decides; the store is the second to know.
#[tokio::test]
async fn the_store_has_no_second_row_that_stands_for_a_request() {
    on_every_store(async |store| {
        let running = Running::start(&store.url());
        running.issue(1).await;
        running.stop().await;
        let columns = "requested, request, signer, cluster, addon, agent, issuer, not_before, not_after, state";
        for sql in [
            &format!(
                "INSERT INTO certificates (seq, uid, serial, {columns}) SELECT 9, uid, '9', {columns} FROM certificates"
            ),
            "UPDATE certificates SET released = 9",
        ] {
            try_run(store, sql).await.expect_err(sql);
        }
    })
    .await;
}

#[tokio::test]
async fn directory_that_is_not_there_is_named() {
    let error = Running::start("sqlite:///nonexistent/ledger.db").ended().await;
    assert!(matches!(error, LedgerError::File { .. }), "{error}");
    assert!(error.to_string().contains("/nonexistent/ledger.db"), "{error}");
}

#[tokio::test]
async fn postgres_with_tls_is_asked_for_its_certificate() {
    if programs().is_none() {
        return;
    }
    let server = Postgres::start_with(Options { fsync: false, tls: true }).await;
    let url = server.url("postgres");
    Running::start(&url).issue(1).await;

    let other_ca = url.replace("ca.crt", "server.crt"); // not the issuer of anything
    let error = Running::start_as(&other_ca, "hub-1", 2).down().await;
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = Running::start_as(&url.replace(PASSWORD, "guess"), "hub-1", 2).down().await;
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    assert!(!error.to_string().contains("guess"), "{error}");
}
