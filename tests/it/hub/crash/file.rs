//! Kills the hub at each boundary on SQLite, under load. The test reads the file as another program would, to find the
//! boundary, and holds the hub there by the file's own lock, so the program has no code for this. What counts is how
//! far CSRs are after the kill.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use kube::api::ListParams;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::time::{Instant, sleep};

use super::books::{CertificateRow, der, rows};
use super::kit::{Child, CrashWorld};
use super::load::Load;
use test_kit::hub::{TIMEOUT, certificate};
use test_kit::store::TestStore;
use test_kit::wait_until;

const CLUSTERS: [&str; 3] = ["spoke1", "spoke2", "spoke3"];
/// How often each boundary must be hit.
const HITS: usize = 3;
/// How many kills the test may need.
const KILLS: usize = 40;
/// How long it takes until a blocked hub has done all that it can, and until a write from before a kill has arrived.
const SETTLED: Duration = Duration::from_millis(250);

/// Where a hub is killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum FileBoundary {
    BeforeTheIntent,
    IntentDurable,
    SignedInMemory,
    SignedDurable,
    Published,
}

const BOUNDARIES: [FileBoundary; 5] = [
    FileBoundary::BeforeTheIntent,
    FileBoundary::IntentDurable,
    FileBoundary::SignedInMemory,
    FileBoundary::SignedDurable,
    FileBoundary::Published,
];

/// How far a CSR is: the state of its row, and whether it has its certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    NoRow,
    Intent,
    Signed,
    /// The certificate is published, and the row does not say so yet.
    Published,
    Done,
}

impl FileBoundary {
    fn stand(self) -> Stand {
        match self {
            Self::BeforeTheIntent => Stand::NoRow,
            Self::IntentDurable | Self::SignedInMemory => Stand::Intent,
            Self::SignedDurable => Stand::Signed,
            Self::Published => Stand::Published,
        }
    }
}

/// The ledger's file, opened by another program.
struct File {
    connection: SqliteConnection,
    /// The CSRs whose rows earlier hubs left open.
    old: HashSet<String>,
}

impl File {
    async fn open(url: &str, old: HashSet<String>) -> Self {
        let path = url.strip_prefix("sqlite://").unwrap();
        Self { connection: SqliteConnectOptions::new().filename(path).connect().await.unwrap(), old }
    }

    async fn run(&mut self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.connection).await.unwrap();
    }

    /// Locks the file: nobody else writes from now on.
    async fn lock(&mut self) {
        self.run("BEGIN IMMEDIATE").await;
    }

    async fn unlock(&mut self) {
        self.run("ROLLBACK").await;
    }

    /// The CSRs that this hub has brought to this state.
    async fn in_state(&mut self, state: &str) -> Vec<String> {
        let sql = "SELECT uid FROM certificates WHERE state = $1 AND signer = 'telemetry'";
        let uids: Vec<String> = sqlx::query_scalar(sql).bind(state).fetch_all(&mut self.connection).await.unwrap();
        uids.into_iter().filter(|uid| !self.old.contains(uid)).collect()
    }

    /// Looks without pauses, because a row is in a state only for milliseconds.
    async fn wait(&mut self, state: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while self.in_state(state).await.is_empty() {
            assert!(Instant::now() < deadline, "waited {TIMEOUT:?} in vain for a row that is {state}");
        }
    }

    /// Locks the file while there is a CSR that has no row yet.
    async fn lock_before_a_row(&mut self, world: &CrashWorld) {
        // The load makes no more CSRs while those that earlier kills interrupted are unanswered.
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.lock().await;
            let all = sqlx::query_scalar("SELECT uid FROM certificates").fetch_all(&mut self.connection).await;
            let rows: HashSet<String> = all.unwrap().into_iter().collect();
            if world.ours().await.iter().any(|csr| !rows.contains(&csr.uid().unwrap())) {
                return;
            }
            self.unlock().await;
            assert!(Instant::now() < deadline, "waited {TIMEOUT:?} in vain for a CSR without a row");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Locks the file while rows are in this state; returns their CSRs.
    async fn lock_in(&mut self, state: &str) -> Vec<String> {
        loop {
            self.wait(state).await;
            self.lock().await;
            let there = self.in_state(state).await;
            if !there.is_empty() {
                return there;
            }
            self.unlock().await;
        }
    }
}

/// Kills the hub at the boundary, as well as that can be seen from outside.
async fn kill_at(boundary: FileBoundary, child: Child, file: &mut File, world: &CrashWorld) {
    let locked = match boundary {
        FileBoundary::BeforeTheIntent => {
            file.lock_before_a_row(world).await;
            sleep(SETTLED).await;
            true
        }
        FileBoundary::IntentDurable => {
            file.lock_in("intent").await;
            true
        }
        FileBoundary::SignedInMemory => {
            file.lock_in("intent").await;
            sleep(SETTLED).await; // it cannot record what it has signed
            true
        }
        FileBoundary::SignedDurable => {
            file.wait("signed").await;
            false
        }
        FileBoundary::Published => {
            let uids = file.lock_in("signed").await;
            wait_until(TIMEOUT, "one of them to be published", async || {
                let there = world.ours().await;
                there.iter().any(|csr| uids.contains(&csr.uid().unwrap()) && certificate(csr).is_some()).then_some(())
            })
            .await;
            true
        }
    };
    child.kill();
    if locked {
        file.unlock().await;
    }
    sleep(SETTLED).await;
}

/// How far a CSR is. Panics if a step was taken before the step that precedes it was durable.
fn stand(csr: &CertificateSigningRequest, row: Option<&CertificateRow>) -> Stand {
    let given = certificate(csr).map(|pem| der(&pem));
    match (row.map(|row| row.state.as_str()), &given) {
        (None, None) => Stand::NoRow,
        (Some("intent"), None) => Stand::Intent,
        (Some("signed"), None) => Stand::Signed,
        (Some("signed" | "published"), Some(_)) => {
            let row = row.unwrap();
            assert_eq!(given, row.certificate, "{} has another certificate than its row", csr.name_any());
            if row.state == "signed" { Stand::Published } else { Stand::Done }
        }
        (row, _) => panic!("{} has a certificate: {}; its row: {row:?}", csr.name_any(), given.is_some()),
    }
}

/// The CSRs that kills interrupted.
#[derive(Default)]
struct Caught {
    hits: BTreeMap<FileBoundary, usize>,
    rows: Vec<CertificateRow>,
}

impl Caught {
    /// The CSRs that earlier kills interrupted.
    fn old(&self) -> HashSet<String> {
        self.rows.iter().map(|row| row.uid.clone()).collect()
    }

    fn missing(&self) -> Option<FileBoundary> {
        let hits = |boundary: &FileBoundary| self.hits.get(boundary).copied().unwrap_or(0);
        BOUNDARIES.into_iter().filter(|boundary| hits(boundary) < HITS).min_by_key(hits)
    }

    async fn inspect(&mut self, boundary: FileBoundary, world: &CrashWorld, url: &str) {
        // Read the CSRs first: no hub writes rows now, and newer CSRs have none.
        let requests = world.ours().await;
        let rows: HashMap<_, _> = live(rows(url).await);
        let old = self.old();
        let mut hit = false;
        for csr in &requests {
            let row = rows.get(&csr.uid().unwrap());
            let stand = stand(csr, row);
            hit |= stand == boundary.stand() && !old.contains(&csr.uid().unwrap());
            self.rows.extend(row.filter(|_| stand != Stand::Done).cloned());
        }
        *self.hits.entry(boundary).or_default() += usize::from(hit);
    }

    /// Checks that the hub signed what it had decided, and signed it once.
    fn assert_kept(&self, rows: Vec<CertificateRow>) {
        let now = live(rows);
        for before in &self.rows {
            let now = now.get(&before.uid).unwrap_or_else(|| panic!("the row is gone: {before:?}"));
            assert_eq!(before.serial, now.serial, "another certificate was decided on");
            assert!(before.certificate.is_none() || before.certificate == now.certificate, "signed twice: {before:?}");
        }
    }
}

/// The rows that were not abandoned, by the UID of their CSR.
fn live(rows: Vec<CertificateRow>) -> HashMap<String, CertificateRow> {
    let live = rows.into_iter().filter(|row| row.state != "abandoned");
    live.map(|row| (row.uid.clone(), row)).collect()
}

impl CrashWorld {
    /// The CSRs of agents.
    async fn ours(&self) -> Vec<CertificateSigningRequest> {
        let all = self.requests().list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|csr| csr.spec.signer_name == "example.com/telemetry").collect()
    }
}

#[tokio::test]
async fn kill_at_each_sqlite_boundary_leaves_one_recorded_certificate() {
    let store = TestStore::sqlite();
    let url = store.url();
    let world = CrashWorld::start(&CLUSTERS).await;
    let mut load = Load::start(&world, &CLUSTERS).await;
    let mut caught = Caught::default();
    let mut kills = 0;
    while let Some(boundary) = caught.missing() {
        assert!(kills < KILLS, "{kills} kills, and too few where they should be: {:?}", caught.hits);
        let child = world.start_hub(&url);
        wait_until(TIMEOUT, "the hub to open its ledger", async || child.has_logged("Opened the ledger").then_some(()))
            .await;
        let mut file = File::open(&url, caught.old()).await;
        kill_at(boundary, child, &mut file, &world).await;
        file.connection.close().await.unwrap();
        kills += 1;
        caught.inspect(boundary, &world, &url).await;
        load.assert_running();
        world.delete_lease().await;
    }
    let (tally, rows) = load.conclude(&world, &url).await;
    eprintln!("{kills} kills, {:?}, {tally}", caught.hits);
    caught.assert_kept(rows);
}
