//! A leader is frozen in the middle of a transaction, and wakes up when another hub leads.

use addon_signer_core::journal::entry::Entry;
use tokio::time::timeout;

use super::books::{assert_whole, compare, entries, rows};
use super::kit::{CrashWorld, closes_all};
use super::load::Load;
use test_kit::cut::{Cut, Moment};
use test_kit::frozen::Frozen;
use test_kit::hub::{TIMEOUT, wait_ready};
use test_kit::postgres::{Postgres, PostgresOptions, programs};
use test_kit::wait_until;

const CLUSTERS: [&str; 2] = ["spoke1", "spoke2"];

async fn issues(load: &Load, more: usize) {
    let before = load.issued();
    wait_until(TIMEOUT, "certificates", async || (load.issued() >= before + more).then_some(())).await;
}

#[tokio::test]
async fn frozen_leader_writes_nothing_after_another_takes_over() {
    if programs().is_none() {
        return;
    }
    let server = Postgres::start_with(PostgresOptions { fsync: false, tls: false }).await;
    server.create_database("ledger").await;
    let proxy = Cut::in_front_of(server.port()).await;
    let url = server.url("ledger");
    let world = CrashWorld::start(&CLUSTERS).await;
    let mut first = world.start_hub(&server.url_through(proxy.port(), "ledger"));
    wait_ready(&world.admin, "telemetry", "True").await;
    let mut load = Load::start(&world, &CLUSTERS).await;
    issues(&load, 5).await;

    // The leader's transaction stays open on the server, and with it the lock of the fence.
    proxy.close_at_commit_of("\"kind\":\"signed\"", Moment::Parted);
    timeout(TIMEOUT, proxy.closed()).await.unwrap();
    let frozen = Frozen::with_children(first.process.id());
    proxy.open();
    let mut second = world.last_hub(&url).await;
    let epoch = u64::from(second.leads().await);
    issues(&load, 20).await;
    drop(frozen);
    let status = wait_until(TIMEOUT, "the first hub to end", async || first.process.exited()).await;
    assert_eq!(status.code(), Some(1));
    let sentences = ["holds the Lease addon-signer now; this hub exits", "the ledger belongs to"];
    assert!(sentences.iter().any(|sentence| first.has_logged(sentence)), "{}", first.process.tail());
    issues(&load, 5).await;

    load.settle().await;
    closes_all(&second).await;
    second.stop().await;
    let entries: Vec<_> = entries(&url).await.iter().map(|text| Entry::parse(text).unwrap()).collect();
    let taken = entries.iter().position(|entry| entry.kind == "leader" && entry.epoch == epoch).unwrap();
    assert!(entries[..taken].iter().all(|entry| entry.epoch < epoch));
    assert!(entries[taken..].iter().all(|entry| entry.epoch == epoch), "the first wrote after the second began");
    let tally = compare(&load.finish(&world).await, &rows(&url).await);
    eprintln!("1 thaw, {tally}");
    tally.assert_clean();
    assert_whole(&url, world.dir()).await;
}
