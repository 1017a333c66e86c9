//! PostgreSQL and the proxy in front of it behave as the tests of the ledger expect. These tests need
//! `ADDON_SIGNER_POSTGRES` (tests/real/README.md) and pass at once without it.

use sqlx::{Connection, PgConnection, Row};

use test_kit::cut::{Cut, Moment};
use test_kit::needed::{Needed, has};
use test_kit::postgres::{Postgres, PostgresOptions, programs};

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
