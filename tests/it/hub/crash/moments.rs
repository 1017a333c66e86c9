//! Kills the hub at random moments under load.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::{Instant, sleep};

use super::books;
use super::kit::{Child, CrashWorld};
use super::load::Load;
use test_kit::postgres;
use test_kit::soak::soak;
use test_kit::store::TestStore;

const CLUSTERS: [&str; 5] = ["spoke1", "spoke2", "spoke3", "spoke4", "spoke5"];
/// After this time a hub that shows no activity is killed all the same.
const IDLE: Duration = Duration::from_secs(20);
/// How many milliseconds after its first activity a hub is killed.
const LIVES: std::ops::Range<u64> = 50..900;
/// After how many kills finished CSRs are deleted.
const PRUNE: usize = 10;

/// The number of kills in the short form and in the long one: each takes seconds on a real API server.
const KILLS: [usize; 2] = [10, 200];

fn random() -> u64 {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Waits until the hub is to be killed: half of the hubs some time after they opened the ledger, the other half some
/// time after their first certificate.
async fn live(child: &Child, load: &Load, round: usize) {
    let before = load.issued();
    let deadline = Instant::now() + IDLE;
    let active =
        || if round.is_multiple_of(2) { child.has_logged("Opened the ledger") } else { load.issued() > before };
    while !active() && Instant::now() < deadline {
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_millis(LIVES.start + random() % (LIVES.end - LIVES.start))).await;
}

async fn killed_at_random(store: &TestStore) {
    let world = CrashWorld::start(&CLUSTERS).await;
    let url = store.url();
    let kills = soak(KILLS[1], KILLS[0]);
    let mut load = Load::start(&world, &CLUSTERS).await;
    let mut productive = 0;
    let mut intents = 0;
    for round in 0..kills {
        let child = world.start_hub(&url);
        let before = load.issued();
        live(&child, &load, round).await;
        child.kill();
        load.assert_running();
        productive += usize::from(load.issued() > before);
        intents += books::intents(&url).await;
        world.delete_lease().await;
        if round % PRUNE == PRUNE - 1 {
            load.prune(&world, &books::rows(&url).await).await;
        }
    }
    let (tally, _) = load.conclude(&world, &url).await;
    eprintln!("{kills} kills ({productive} of hubs that had signed; {intents} intents were open), {tally}");
    // Half of them live until they have signed, unless the machine is busy.
    assert!(3 * productive > kills, "too many were killed too soon");
}

#[tokio::test]
async fn random_kills_lose_or_duplicate_no_certificate() {
    killed_at_random(&TestStore::sqlite()).await;
}

#[tokio::test]
async fn random_kills_lose_or_duplicate_no_certificate_on_postgres() {
    if postgres::programs().is_some() {
        killed_at_random(&TestStore::Postgres(postgres::Database::create().await)).await;
    }
}
