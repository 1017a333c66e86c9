//! Ledgers that cannot be opened: the error names the cause, and the store is not changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use addon_signer_ledger::{LedgerError, Reader};
use sqlx::Connection;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::kit::RunningWriter;
use super::rows::{run, sqlite, try_run};
use test_kit::postgres::{Database, PASSWORD, Postgres, PostgresOptions, programs};
use test_kit::store::{TestStore, on_store};

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
    let running = RunningWriter::start(&place.url);
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
async fn other_programs_can_open_file_and_commits_wait_for_disk() {
    let place = mk_place();
    let running = RunningWriter::start(&place.url);
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

/// Another process that was the last to close a file without locks would remove the log of what was committed.
#[tokio::test]
async fn a_backup_by_another_process_takes_nothing_away() {
    let place = mk_place();
    let running = RunningWriter::start(&place.url);
    running.issue(1).await;
    Reader::new(place.url.parse().unwrap()).unrenewed(running.clock.now()).await.unwrap();
    let copy = "import sqlite3, sys; a, b = map(sqlite3.connect, sys.argv[1:]); a.backup(b); b.close(); a.close()";
    let backup = place.dir.path().join("copy.db");
    let done = Command::new("python3").args(["-c", copy]).arg(&place.file).arg(backup).status().await.unwrap();
    assert!(done.success());
    assert!(place.dir.path().join("ledger.db-wal").exists());
    running.issue(2).await;
    let mut reader = sqlite(&place.file).await;
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM certificates").fetch_one(&mut reader).await.unwrap();
    assert_eq!(rows, 2);
    reader.close().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn second_hub_on_a_file_is_told_who_has_it_and_waits() {
    let place = mk_place();
    let first = RunningWriter::start_as(&place.url, "hub-7d9f", 1);
    first.up().await;
    let second = RunningWriter::start_as(&place.url, "hub-b2c4", 2);
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
    let script = "#!/bin/sh\n# Longer than the 100 bytes of a database's header.\n";
    for content in [script.repeat(4), script.repeat(40), "x".to_owned()] {
        let place = mk_place();
        fs::write(&place.file, &content).unwrap();
        let error = RunningWriter::start(&place.url).ended().await;
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
    let columns = "version BIGINT PRIMARY KEY, description TEXT NOT NULL, \
                   installed_on TIMESTAMPTZ NOT NULL DEFAULT now(), success BOOLEAN NOT NULL, \
                   checksum BYTEA NOT NULL, execution_time BIGINT NOT NULL";
    run(&store, &format!("CREATE TABLE _sqlx_migrations ({columns})")).await;
    RunningWriter::start(&store.url()).issue(1).await;
}

#[tokio::test]
async fn database_of_another_program_is_left_alone() {
    on_store(async |store| {
        run(store, "CREATE TABLE accounts (name TEXT); INSERT INTO accounts VALUES ('x')").await;
        let error = RunningWriter::start(&store.url()).ended().await;
        assert!(matches!(error, LedgerError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("tables of another program"), "{error}");
        run(store, "CREATE TABLE entries (n BIGINT); DROP TABLE accounts").await; // both would fail after a migration
    })
    .await;
}

#[tokio::test]
async fn foreign_database_using_the_same_library_is_left_alone() {
    on_store(async |store| {
        run(store, "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY); CREATE TABLE accounts (name TEXT)")
            .await;
        let error = RunningWriter::start(&store.url()).ended().await;
        assert!(matches!(error, LedgerError::Foreign { .. }), "{error}");
        run(store, "CREATE TABLE entries (n BIGINT)").await;
    })
    .await;
}

#[tokio::test]
async fn newer_schema_stops_the_program() {
    on_store(async |store| {
        let running = RunningWriter::start(&store.url());
        running.issue(1).await;
        running.stop().await;
        let insert = match store {
            TestStore::Sqlite(_) => "VALUES (99, 'later', 1, x'00', 1)",
            TestStore::Postgres(_) => "VALUES (99, 'later', true, '\\x00', 1)",
        };
        let columns = "(version, description, success, checksum, execution_time)";
        run(store, &format!("INSERT INTO _sqlx_migrations {columns} {insert}")).await;
        let error = RunningWriter::start(&store.url()).ended().await;
        assert!(matches!(error, LedgerError::Newer { found: 99, .. }), "{error}");
    })
    .await;
}

#[tokio::test]
async fn corrupt_file_stops_the_program() {
    let place = mk_place();
    let running = RunningWriter::start(&place.url);
    for number in 0..200 {
        running.issue(number).await;
    }
    running.stop().await;
    let mut bytes = fs::read(&place.file).unwrap();
    assert!(bytes.len() > 64 << 10, "{}", bytes.len());
    bytes[4096..].fill(0xa5);
    fs::write(&place.file, &bytes).unwrap();
    let error = RunningWriter::start(&place.url).ended().await;
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
    assert!(fs::read(&place.file).unwrap() == bytes, "it is left for whoever can mend it");
}

#[tokio::test]
async fn last_row_that_was_altered_stops_the_program() {
    on_store(async |store| {
        let running = RunningWriter::start(&store.url());
        running.issue(1).await;
        let tip = running.ledger.health().borrow().clone();
        running.stop().await;
        let drop = match store {
            TestStore::Sqlite(_) => "DROP TRIGGER entries_are_not_altered",
            TestStore::Postgres(_) => "DROP TRIGGER entries_are_not_altered ON entries",
        };
        run(store, &format!("{drop}; UPDATE entries SET entry = replace(entry, 'uid-1', 'uid-2')")).await;
        let error = RunningWriter::start(&store.url()).ended().await;
        assert!(matches!(error, LedgerError::Damaged { .. }), "{error} {tip:?}");
    })
    .await;
}

#[tokio::test]
async fn entries_cannot_be_altered_or_deleted_by_mistake() {
    on_store(async |store| {
        let running = RunningWriter::start(&store.url());
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

/// The program checks this before it decides; the store checks it too.
#[tokio::test]
async fn the_store_has_no_second_row_that_stands_for_a_request() {
    on_store(async |store| {
        let running = RunningWriter::start(&store.url());
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
async fn postgres_with_tls_is_asked_for_its_certificate() {
    if programs().is_none() {
        return;
    }
    let server = Postgres::start_with(PostgresOptions { fsync: false, tls: true }).await;
    let url = server.url("postgres");
    RunningWriter::start(&url).issue(1).await;

    let other_ca = url.replace("ca.crt", "server.crt"); // not the issuer of anything
    let error = RunningWriter::start_as(&other_ca, "hub-1", 2).down().await;
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = RunningWriter::start_as(&url.replace(PASSWORD, "guess"), "hub-1", 2).down().await;
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    assert!(!error.to_string().contains("guess"), "{error}");
}

/// Poolers such as PgBouncer refuse a client whose first message has a parameter that they do not keep.
#[tokio::test]
async fn first_message_has_no_parameter_that_poolers_refuse() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("postgres://me:pw@{}/ledger?sslmode=disable", listener.local_addr().unwrap());
    let _running = RunningWriter::start(&url);
    let (mut client, _) = listener.accept().await.unwrap();
    let mut message = vec![0; client.read_u32().await.unwrap() as usize - 4];
    client.read_exact(&mut message).await.unwrap();
    // The version, then names and values that each end with a zero, then one more zero.
    let texts: Vec<_> = message[4..].split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let names: Vec<_> = texts.chunks(2).map(|pair| pair[0].as_ref()).filter(|name| !name.is_empty()).collect();
    assert!(names.contains(&"user") && names.contains(&"database"), "{names:?}");
    // What PgBouncer keeps of each client, and what docs/ledger.md lets it ignore.
    let known = ["user", "database", "application_name", "client_encoding", "DateStyle", "TimeZone"];
    let is_known = |name: &&str| known.contains(name) || *name == "extra_float_digits";
    assert!(names.iter().all(is_known), "{names:?}");
}
