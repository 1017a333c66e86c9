//! Kills the hub between the steps of one CSR. The test recognizes each step by what PostgreSQL's client sends, so
//! the program has no code for this.

use std::collections::HashMap;

use kube::ResourceExt;
use tokio::time::timeout;

use super::books::{CertificateRow, assert_whole, compare, rows};
use super::kit::{CrashWorld, closes_all};
use test_kit::cut::{Cut, Moment};
use test_kit::hub::{TIMEOUT, certificate, wait_csr, wait_ready};
use test_kit::postgres::{Postgres, PostgresOptions, programs};

/// Where a hub is killed.
pub(super) struct CutBoundary {
    pub(super) name: &'static str,
    /// How the transactions of the CSR end, in this order: its intent, its certificate, the note that it was
    /// published. The hub is killed at the last one; it learns how each earlier one ended.
    cuts: &'static [Moment],
    /// The state of the CSR's row at the kill.
    row: Option<&'static str>,
    /// Whether the CSR has its certificate at the kill.
    issued: bool,
}

pub(super) static BOUNDARIES: [CutBoundary; 6] = [
    CutBoundary { name: "before-the-intent", cuts: &[Moment::Before], row: None, issued: false },
    CutBoundary { name: "intent-durable", cuts: &[Moment::After], row: Some("intent"), issued: false },
    CutBoundary {
        name: "signed-in-memory",
        cuts: &[Moment::After, Moment::Before],
        row: Some("intent"),
        issued: false,
    },
    // The server does not notice the kill: the next hub waits until the server ends the transaction.
    CutBoundary {
        name: "signed-and-parted",
        cuts: &[Moment::After, Moment::Parted],
        row: Some("intent"),
        issued: false,
    },
    CutBoundary { name: "signed-durable", cuts: &[Moment::After, Moment::After], row: Some("signed"), issued: false },
    CutBoundary {
        name: "published",
        cuts: &[Moment::After, Moment::After, Moment::Before],
        row: Some("signed"),
        issued: true,
    },
];

pub(super) async fn row_of(url: &str, uid: &str) -> Option<CertificateRow> {
    rows(url).await.into_iter().find(|row| row.uid == uid)
}

/// A server, a proxy that can cut its connections, and the URLs with and without the proxy.
pub(super) struct Ledger {
    pub(super) proxy: Cut,
    pub(super) through: String,
    pub(super) direct: String,
    _server: Postgres,
}

pub(super) async fn mk_ledger() -> Option<Ledger> {
    programs()?;
    let server = Postgres::start_with(PostgresOptions { fsync: false, tls: false }).await;
    server.create_database("ledger").await;
    let proxy = Cut::in_front_of(server.port()).await;
    let through = server.url_through(proxy.port(), "ledger");
    let direct = server.url("ledger");
    Some(Ledger { proxy, through, direct, _server: server })
}

/// Brings a CSR to the boundary; returns its UID.
pub(super) async fn bring_to(boundary: &CutBoundary, world: &CrashWorld, ledger: &Ledger) -> String {
    let request = format!("\"request\":\"{}\"", boundary.name);
    ledger.proxy.close_at_commit_of(&request, boundary.cuts[0]);
    let uid = world.submit("spoke1", boundary.name).await;
    timeout(TIMEOUT, ledger.proxy.closed()).await.expect("the intent comes");
    for moment in &boundary.cuts[1..] {
        let serial = row_of(&ledger.direct, &uid).await.unwrap().serial;
        ledger.proxy.close_at_commit_of(&serial, *moment);
        timeout(TIMEOUT, ledger.proxy.closed()).await.expect("the next step comes");
    }
    uid
}

async fn kill_at(boundary: &CutBoundary, world: &CrashWorld, ledger: &Ledger) {
    eprintln!("{}", boundary.name); // shown when the test fails
    ledger.proxy.open();
    let child = world.start_hub(&ledger.through);
    let warm = format!("{}-warm", boundary.name);
    world.submit("spoke1", &warm).await;
    wait_csr(&world.admin, &warm, "issued", certificate).await;
    let uid = bring_to(boundary, world, ledger).await;
    child.kill();
    world.delete_lease().await;

    let row = row_of(&ledger.direct, &uid).await;
    assert_eq!(row.as_ref().map(|row| row.state.as_str()), boundary.row);
    let before = certificate(&world.requests().get(boundary.name).await.unwrap());
    assert_eq!(before.is_some(), boundary.issued);

    ledger.proxy.open();
    let child = world.start_hub(&ledger.through);
    let after = wait_csr(&world.admin, boundary.name, "issued", certificate).await;
    assert!(before.is_none_or(|before| before == after), "the certificate was replaced");
    child.kill();
    world.delete_lease().await;
    let now = row_of(&ledger.direct, &uid).await.unwrap();
    if let Some(row) = row {
        assert_eq!(row.serial, now.serial, "what was decided is what was signed");
        assert!(row.certificate.is_none_or(|signed| Some(signed) == now.certificate), "signed once");
    }
}

#[tokio::test]
async fn kill_between_any_two_steps_leaves_one_recorded_certificate() {
    let Some(ledger) = mk_ledger().await else { return };
    let world = CrashWorld::start(&["spoke1"]).await;
    let child = world.start_hub(&ledger.through);
    wait_ready(&world.admin, "telemetry", "True").await;
    child.kill();
    world.delete_lease().await;
    for boundary in &BOUNDARIES {
        kill_at(boundary, &world, &ledger).await;
    }
    let running = world.last_hub(&ledger.direct).await;
    closes_all(&running).await;
    running.stop().await;

    let rows = rows(&ledger.direct).await;
    let requests = world.requests().list(&Default::default()).await.unwrap();
    let ours = requests.items.iter().filter(|csr| csr.spec.signer_name == "example.com/telemetry");
    let seen: HashMap<_, Vec<_>> =
        ours.map(|csr| (csr.uid().unwrap(), certificate(csr).into_iter().collect())).collect();
    let tally = compare(&seen, &rows);
    eprintln!("{} boundaries, {tally}", BOUNDARIES.len());
    tally.assert_clean();
    assert!(rows.iter().all(|row| row.state == "published"), "{rows:?}");
    assert_whole(&ledger.direct, world.dir()).await;
}
