//! PostgreSQL and the proxy in front of it behave as the tests of the ledger expect. These tests need
//! `ADDON_SIGNER_POSTGRES` (tests/real/README.md) and pass at once without it.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Row};
use tokio::time::timeout;

use test_kit::cut::{Cut, Moment};
use test_kit::needed::{Needed, has};
use test_kit::postgres::{Postgres, PostgresOptions, programs};
use test_kit::store::on_store;

fn postgres_is_there() -> bool {
    has(Needed::Postgres, programs().is_some())
}

async fn numbers(connection: &mut PgConnection) -> Vec<i64> {
    sqlx::query_scalar("SELECT n FROM numbers ORDER BY n").fetch_all(connection).await.unwrap()
}

async fn setting(connection: &mut PgConnection, name: &str) -> String {
    sqlx::query("SELECT current_setting($1)").bind(name).fetch_one(connection).await.unwrap().get(0)
}

#[tokio::test]
async fn server_waits_for_disk_and_keeps_commits_over_a_crash() {
    if !postgres_is_there() {
        return;
    }
    let mut server = Postgres::start().await;
    server.create_database("kept").await;
    let mut before = PgConnection::connect(&server.url("kept")).await.unwrap();
    assert_eq!(setting(&mut before, "fsync").await, "on");
    sqlx::raw_sql("CREATE TABLE numbers (n BIGINT); INSERT INTO numbers VALUES (1)")
        .execute(&mut before)
        .await
        .unwrap();

    server.stop();
    sqlx::query("SELECT 1").execute(&mut before).await.expect_err("the server is gone");
    PgConnection::connect(&server.url("kept")).await.expect_err("and nobody listens");
    server.start_again().await;
    let mut after = PgConnection::connect(&server.url("kept")).await.unwrap();
    assert_eq!(numbers(&mut after).await, [1]);
}

#[tokio::test]
async fn server_asks_for_the_password() {
    if !postgres_is_there() {
        return;
    }
    let server = Postgres::start_with(PostgresOptions { fsync: false, tls: false }).await;
    let wrong = server.url("postgres").replace("not-for-any-log", "guess");
    let refused = PgConnection::connect(&wrong).await.unwrap_err();
    assert!(refused.to_string().contains("password authentication failed"), "{refused}");
}

#[tokio::test]
async fn server_with_tls_is_verified_by_its_ca() {
    if !postgres_is_there() {
        return;
    }
    let server = Postgres::start_with(PostgresOptions { fsync: false, tls: true }).await;
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let encrypted: bool = sqlx::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(encrypted);

    let other = Postgres::start_with(PostgresOptions { fsync: false, tls: true }).await;
    let of_another_ca = other.url("postgres").replace(&other.port().to_string(), &server.port().to_string());
    let refused = PgConnection::connect(&of_another_ca).await.unwrap_err();
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
}

#[tokio::test]
async fn frozen_server_answers_when_it_is_thawed() {
    if !postgres_is_there() {
        return;
    }
    let mut server = Postgres::start_with(PostgresOptions { fsync: false, tls: false }).await;
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    server.freeze();
    let mut answer = Box::pin(sqlx::query("SELECT 1").execute(&mut connection));
    timeout(Duration::from_millis(500), &mut answer).await.expect_err("a stopped server says nothing");
    server.thaw();
    timeout(Duration::from_secs(10), answer).await.unwrap().unwrap();
}

/// Commits the number 1 through a proxy that is cut at this moment; returns the content of the table after that.
async fn commit_cut(moment: Moment) -> Vec<i64> {
    let server = Postgres::start_with(PostgresOptions { fsync: false, tls: false }).await;
    let proxy = Cut::in_front_of(server.port()).await;
    let mut connection = PgConnection::connect(&server.url_through(proxy.port(), "postgres")).await.unwrap();
    sqlx::raw_sql("CREATE TABLE numbers (n BIGINT)").execute(&mut connection).await.unwrap();

    proxy.close_at_commit(moment);
    let mut transaction = connection.begin().await.unwrap();
    sqlx::query("INSERT INTO numbers VALUES (1)").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.expect_err("the client never hears of it");
    proxy.closed().await;
    let through = server.url_through(proxy.port(), "postgres");
    PgConnection::connect(&through).await.expect_err("closed from then on");
    proxy.open();
    numbers(&mut PgConnection::connect(&through).await.unwrap()).await
}

#[tokio::test]
async fn commit_that_is_cut_before_the_server_hears_of_it_is_none() {
    if postgres_is_there() {
        assert!(commit_cut(Moment::Before).await.is_empty());
    }
}

#[tokio::test]
async fn commit_that_is_cut_after_the_servers_answer_has_happened() {
    if postgres_is_there() {
        assert_eq!(commit_cut(Moment::After).await, [1]);
    }
}

#[tokio::test]
async fn server_cut_off_from_its_client_keeps_the_clients_locks() {
    if !postgres_is_there() {
        return;
    }
    let server = Postgres::start_with(PostgresOptions { fsync: false, tls: false }).await;
    let proxy = Cut::in_front_of(server.port()).await;
    let mut connection = PgConnection::connect(&server.url_through(proxy.port(), "postgres")).await.unwrap();
    sqlx::raw_sql("CREATE TABLE numbers (n BIGINT)").execute(&mut connection).await.unwrap();

    proxy.close_at_commit(Moment::Parted);
    let mut transaction = connection.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE numbers").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.expect_err("the client hears of it");
    let mut other = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let locked = sqlx::raw_sql("BEGIN; LOCK TABLE numbers NOWAIT").execute(&mut other).await.unwrap_err();
    assert!(locked.to_string().contains("could not obtain lock"), "{locked}");
}

#[tokio::test]
async fn closed_proxy_breaks_what_is_open_and_lets_nobody_in() {
    if !postgres_is_there() {
        return;
    }
    let server = Postgres::start_with(PostgresOptions { fsync: false, tls: false }).await;
    let proxy = Cut::in_front_of(server.port()).await;
    let url = server.url_through(proxy.port(), "postgres");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    proxy.close();
    sqlx::query("SELECT 1").execute(&mut connection).await.expect_err("broken");
    PgConnection::connect(&url).await.expect_err("closed");
    proxy.open();
    PgConnection::connect(&url).await.unwrap();
}

#[tokio::test]
async fn every_store_is_empty_at_first() {
    on_store(async |store| {
        let url = store.url();
        if url.starts_with("postgres:") {
            let mut connection = PgConnection::connect(&url).await.unwrap();
            let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert_eq!(tables, 0);
        } else {
            assert!(!std::path::Path::new(url.trim_start_matches("sqlite://")).exists());
        }
    })
    .await;
}
