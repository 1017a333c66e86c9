//! PostgreSQL stops, hangs, or loses the answer to a COMMIT; and a clock goes back.

use std::time::Duration;

use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::record::{Existing, Intended};
use addon_signer_ledger::{Health, LedgerError, Location};
use sqlx::{Connection, PgConnection};
use tokio::time::{sleep, timeout};

use super::kit::RunningWriter;
use super::recorded::Recorded;
use super::{mk_intent, mk_serial, mk_signed};
use test_kit::cut::{Cut, Moment};
use test_kit::hub::TIMEOUT;
use test_kit::postgres::{PASSWORD, Postgres, PostgresOptions, programs};
use test_kit::quick::pass;
use test_kit::store::on_store;

/// Starts PostgreSQL; `None` if it is not installed.
async fn postgres() -> Option<Postgres> {
    programs()?;
    let server = Postgres::start_with(PostgresOptions { fsync: false, tls: false }).await;
    server.create_database("ledger").await;
    Some(server)
}

async fn count(server: &Postgres, what: &str) -> i64 {
    let mut connection = PgConnection::connect(&server.url("ledger")).await.unwrap();
    let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {what}"));
    sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn postgres_that_goes_away_is_said_and_found_again() {
    let Some(mut server) = postgres().await else { return };
    let running = RunningWriter::start(&server.url("ledger"));
    running.issue(1).await;
    server.stop();
    let refused = timeout(TIMEOUT, running.ledger.intend(mk_intent(2))).await.expect("an answer, not silence");
    let error = refused.unwrap_err();
    assert!(matches!(error, LedgerError::Unavailable { .. }), "{error}");
    assert!(!error.to_string().contains(PASSWORD), "{error}");
    sleep(Duration::from_secs(3)).await;
    assert!(matches!(running.down().await, LedgerError::Unavailable { .. }));
    server.start_again().await;
    running.writes(100).await;
    running.issue(2).await;
    assert_eq!(running.ledger.intend(mk_intent(1)).await.unwrap(), existing(1));
    assert_eq!(count(&server, "certificates WHERE state = 'signed'").await, 2);
}

#[tokio::test]
async fn postgres_that_stands_still_is_no_silence() {
    let Some(mut server) = postgres().await else { return };
    let running = RunningWriter::start(&server.url("ledger"));
    running.issue(1).await;
    server.freeze();
    let refused = timeout(TIMEOUT, running.ledger.intend(mk_intent(2))).await.expect("an answer, not silence");
    assert!(matches!(refused, Err(LedgerError::Unavailable { .. })), "{refused:?}");
    server.thaw();
    running.writes(100).await;
    running.issue(2).await;
    assert_eq!(count(&server, "certificates WHERE state = 'signed'").await, 2);
}

/// The connection is cut at this moment of an intent's COMMIT. The caller gets the result when PostgreSQL is back, and
/// not earlier. Whatever the result is, a second try leaves the intent recorded once.
async fn commit_is_found_out(moment: Moment) {
    let Some(server) = postgres().await else { return };
    let proxy = Cut::in_front_of(server.port()).await;
    let running = RunningWriter::start(&server.url_through(proxy.port(), "ledger"));
    running.issue(1).await;
    let before = count(&server, "entries").await;

    proxy.close_at_commit(moment);
    let ledger = running.ledger.clone();
    let asked = tokio::spawn(async move { ledger.intend(mk_intent(2)).await });
    timeout(TIMEOUT, proxy.closed()).await.unwrap();
    assert!(matches!(running.down().await, LedgerError::Unavailable { .. }));
    assert_eq!(count(&server, "entries").await, before + i64::from(moment == Moment::After));
    sleep(Duration::from_secs(2)).await;
    assert!(!asked.is_finished(), "nobody knows yet");

    proxy.open();
    let answer = timeout(TIMEOUT, asked).await.unwrap().unwrap();
    let again = running.ledger.intend(mk_intent(2)).await.unwrap();
    if moment == Moment::After {
        assert_eq!(answer, Ok(Intended::Recorded));
        assert!(matches!(again, Intended::Existing(Existing::Intent { .. })), "{again:?}");
    } else {
        assert!(matches!(answer, Err(LedgerError::Unavailable { .. })), "{answer:?}");
        assert_eq!(again, Intended::Recorded);
    }
    assert_eq!(count(&server, "entries").await, before + 1);
    running.ledger.append(mk_signed(2), "").await.unwrap();
    assert_eq!(count(&server, "certificates WHERE state = 'signed'").await, 2);
}

#[tokio::test]
async fn intent_whose_commit_never_arrived_is_none() {
    commit_is_found_out(Moment::Before).await;
}

#[tokio::test]
async fn intent_whose_commit_was_not_answered_is_found() {
    commit_is_found_out(Moment::After).await;
}

#[tokio::test]
async fn transaction_cut_off_by_network_does_not_lock_ledger_forever() {
    commit_is_found_out(Moment::Parted).await;
}

/// Checks that a ledger that is changed by `sql` while it is away is not continued when it comes back.
async fn is_not_continued(issued: u64, sql: &str) {
    let Some(server) = postgres().await else { return };
    let proxy = Cut::in_front_of(server.port()).await;
    let running = RunningWriter::start(&server.url_through(proxy.port(), "ledger"));
    running.up().await;
    for number in 1..=issued {
        running.issue(number).await;
    }
    proxy.close_at_commit(Moment::Before);
    let ledger = running.ledger.clone();
    let asked = tokio::spawn(async move { ledger.intend(mk_intent(0)).await });
    timeout(TIMEOUT, proxy.closed()).await.unwrap();
    let mut connection = PgConnection::connect(&server.url("ledger")).await.unwrap();
    for sql in ["SET session_replication_role = replica", sql] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    }
    let before = count(&server, "entries").await;
    proxy.open();
    let error = running.ended().await;
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("as a different ledger or without its last rows"), "{error}");
    assert!(timeout(TIMEOUT, asked).await.unwrap().unwrap().is_err(), "nobody gets a certificate by it");
    assert_eq!(count(&server, "entries").await, before, "nothing was added");
    // A new start continues what is there; the hub compares it with everything else.
    RunningWriter::start_as(&server.url("ledger"), "hub-1", 2).up().await;
}

/// As a standby that lagged behind and has taken over.
#[tokio::test]
async fn ledger_returning_without_its_last_rows_is_not_continued() {
    const LOSE: &str = "DELETE FROM entries WHERE seq = (SELECT MAX(seq) FROM entries)";
    is_not_continued(1, LOSE).await; // the row of a certificate
    is_not_continued(0, LOSE).await; // the row that this process wrote when it opened the ledger
}

#[tokio::test]
async fn another_ledger_with_as_many_rows_is_not_continued() {
    is_not_continued(
        1,
        "UPDATE entries SET entry = replace(entry, 'hub-0', 'hub-9'), \
         hash = sha256(convert_to(replace(entry, 'hub-0', 'hub-9'), 'UTF8')) \
         WHERE seq = (SELECT MAX(seq) FROM entries)",
    )
    .await;
    is_not_continued(
        1,
        "UPDATE entries SET entry = replace(entry, (SELECT value FROM latest WHERE topic = 'ledger'), 'another') \
         WHERE seq = 1; \
         UPDATE latest SET value = 'another' WHERE topic = 'ledger'",
    )
    .await;
}

#[tokio::test]
async fn a_server_that_is_silent_after_the_login_is_not_waited_for() {
    let Some(server) = postgres().await else { return };
    let location: Location = server.url("ledger").parse().unwrap();
    let running = RunningWriter::start(&server.url("ledger"));
    running.up().await;
    let [ledger, hash, time, key, signature] = <[String; 5]>::default();
    let checkpoint = Checkpoint { ledger, seq: 1, hash, time, key, signature };
    assert_eq!(location.last_epoch().await, 1);
    assert_eq!(location.contradicts(&checkpoint).await, Ok(Some("row 1 is different".to_owned())));
    let mut connection = PgConnection::connect(&server.url("ledger")).await.unwrap();
    let mut held = connection.begin().await.unwrap();
    sqlx::query("LOCK TABLE fence, entries IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let both = async { tokio::join!(location.last_epoch(), location.contradicts(&checkpoint)) };
    let (epoch, compared) = timeout(TIMEOUT, both).await.expect("answers, not silence");
    assert_eq!(epoch, 0);
    assert!(matches!(compared, Err(LedgerError::Unavailable { .. })), "{compared:?}");
    held.rollback().await.unwrap();
    assert_eq!(location.last_epoch().await, 1);
}

/// As one whose disk is full, or that has become a standby.
#[tokio::test]
async fn a_server_that_refuses_writes_is_said_while_nobody_asks() {
    let Some(server) = postgres().await else { return };
    let running = RunningWriter::start(&server.url("ledger"));
    running.up().await;
    let mut recorded = Recorded::default();
    recorded.sample(&running);
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let set = async |connection: &mut PgConnection, sql: &'static str| {
        sqlx::query(sql).execute(&mut *connection).await.unwrap();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'ledger'";
        sqlx::query(end).execute(connection).await.unwrap();
    };
    set(&mut connection, "ALTER DATABASE ledger SET default_transaction_read_only = on").await;
    pass(Duration::from_secs(31)).await;
    let error = running.down().await;
    assert!(matches!(error, LedgerError::Unavailable { .. }), "{error}");
    // It is opened again each second, which says nothing.
    let mut health = running.ledger.health();
    let up = timeout(Duration::from_secs(3), health.wait_for(|health| matches!(health, Health::Up { .. })));
    assert!(up.await.is_err(), "it can be opened, and not be written to");
    recorded.sample(&running);
    recorded.assert_fires(&[("LedgerAway", true), ("LedgerDiskFillsUp", false)]);
    set(&mut connection, "ALTER DATABASE ledger RESET default_transaction_read_only").await;
    running.writes(1).await;
}

fn existing(number: u64) -> Intended {
    let certificate = number.to_be_bytes().to_vec();
    let issuer = "0123456789abcdef".into();
    Intended::Existing(Existing::Signed { row: 2 * number + 2, issuer, serial: mk_serial(number), certificate })
}

#[tokio::test]
async fn clock_that_jumps_back_an_hour_stops_nothing() {
    on_store(async |store| {
        let running = RunningWriter::start(&store.url());
        running.issue(1).await;
        let before = running.up().await;
        running.clock.set_back(Duration::from_secs(3_600));
        running.issue(2).await;
        let after = running.up().await;
        assert_eq!(after.seq, before.seq + 2);
        assert!(after.time >= before.time);
        assert!(after.time.until(before.time).is_zero());
        running.stop().await;
        let next = RunningWriter::start_as(&store.url(), "hub-1", 2);
        next.issue(3).await;
        next.stop().await;
    })
    .await;
}

#[tokio::test]
async fn leader_of_an_earlier_epoch_writes_nothing() {
    on_store(async |store| {
        if store.is_file() {
            let first = RunningWriter::start_as(&store.url(), "hub-0", 5);
            first.issue(1).await;
            first.stop().await;
        } else {
            let first = RunningWriter::start_as(&store.url(), "hub-0", 4);
            first.issue(1).await;
            RunningWriter::start_as(&store.url(), "hub-1", 5).up().await;
            let refused = first.ledger.intend(mk_intent(2)).await.unwrap_err();
            assert_eq!(refused, LedgerError::Fenced { ours: 4, theirs: 5, replica: "hub-1".to_owned() });
            assert_eq!(first.ended().await, refused);
        }
        let error = RunningWriter::start_as(&store.url(), "hub-2", 3).ended().await;
        assert!(matches!(error, LedgerError::Fenced { ours: 3, theirs: 5, .. }), "{error}");
    })
    .await;
}
