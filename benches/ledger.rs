//! What being durable costs, and whether the ledger stays quick when it has grown: issuing beside appending the same bytes to a
//! plain file, on a ledger of 10 thousand certificates beside one of a million; the first page of a list; the check of everything.
//!
//! `cargo bench --bench ledger [-- --certificates N] [--postgres URL]`. A million certificates take 3 GB of disk. Contestants take
//! turns, so that a busy machine slows them alike.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark fails by panicking")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use addon_signer::ca::authority::Authority;
use addon_signer::ca::bundle::Bundle;
use addon_signer::ca::issuer::{Issuer, Serial};
use addon_signer::clock::Clock;
use addon_signer::identity::AddOnName;
use addon_signer::journal::entry::{Entry, Hash, Tip};
use addon_signer::journal::record::{Intent, Record};
use addon_signer::ledger::query::{Filter, Query, Standing};
use addon_signer::ledger::verify::{Check, verify};
use addon_signer::ledger::view::State;
use addon_signer::ledger::{Health, Intended, Ledger, Location, Reader, Writer, WriterOptions};
use addon_signer::policy::{Approved, evaluate};
use addon_signer::private_key::PrivateKey;
use addon_signer::public_key::KeyKind;
use addon_signer::timestamp::Timestamp;
use clap::Parser;
use ring::rand::SystemRandom;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection};
use tokio::task::JoinHandle;

#[path = "../tests/it/support/rules.rs"]
mod rules;

use rules::{mk_registry, mk_rules, mk_submission};

/// OCM's own agent's request: P-256, two groups, one DNS name.
const REQUEST: &[u8] = include_bytes!("../certs/requests/good/ocm-agent-v1.3.pem");
/// Requests in flight.
const AT_ONCE: u64 = 64;
const ROUNDS: u32 = 5;
const SMALL: u64 = 10_000;

#[derive(Parser)]
struct Args {
    /// Certificates in the large ledger.
    #[arg(long, default_value_t = 1_000_000)]
    certificates: u64,
    /// Certificates per round of issuing.
    #[arg(long, default_value_t = 10_000)]
    issue: u64,
    /// A PostgreSQL database that may be filled.
    #[arg(long, env = "ADDON_SIGNER_POSTGRES_URL")]
    postgres: Option<Location>,
    /// What cargo says.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Everything that signs.
struct Signer {
    approved: Approved,
    issuer: Issuer,
    published: Bundle,
    rng: SystemRandom,
    now: Timestamp,
    serials: AtomicU64,
}

impl Signer {
    fn new() -> Self {
        let (rng, now) = (SystemRandom::new(), Clock::default().now());
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let life = Duration::from_secs(365 * 86_400);
        let authority = Authority::self_signed("addon-signer client CA telemetry", &key, now, life, &rng).unwrap();
        let published = Bundle::new(vec![authority.clone()]).unwrap();
        let (cluster, addon): (_, AddOnName) = ("spoke1".parse().unwrap(), "telemetry".parse().unwrap());
        let rules = mk_rules("example.com/telemetry", [addon.clone()]);
        let registry = mk_registry(&cluster, [addon.clone()]);
        let approved = evaluate(&rules, &mk_submission(&cluster, &addon, REQUEST), &registry).unwrap();
        let issuer = Issuer::new(authority, key).unwrap();
        Self { approved, issuer, published, rng, now, serials: AtomicU64::new(0) }
    }

    /// Decides, records, signs, checks, records. Without a ledger only what is between.
    async fn issue(&self, ledger: Option<&Ledger>) {
        let serial = Serial::random(&self.rng).unwrap();
        let prepared = self.issuer.prepare(self.approved.clone(), serial, self.now).unwrap();
        let n = self.serials.fetch_add(1, Ordering::Relaxed);
        let uid = format!("{:08x}-0000-4000-8000-{:012x}", std::process::id(), n);
        if let Some(ledger) = ledger {
            let mut intent = mk_intent(n, self.issuer.authority().id(), self.now);
            (intent.uid, intent.serial) = (uid.clone(), prepared.serial().to_string());
            (intent.tbs, intent.not_after) = (prepared.digest(), prepared.not_after());
            assert_eq!(ledger.intend(intent).await.unwrap(), Intended::Recorded);
        }
        let issued = self.issuer.sign(prepared, &self.published, self.now, &self.rng).unwrap();
        if let Some(ledger) = ledger {
            let (serial, certificate) = (issued.serial.to_string(), issued.certificate.to_vec());
            ledger.append(Record::Signed { uid, serial, certificate }, "").await.unwrap();
        }
    }
}

fn mk_intent(n: u64, issuer: &str, now: Timestamp) -> Intent {
    let cluster = format!("cluster{}", n % 2000);
    Intent {
        uid: format!("00000000-0000-4000-8000-{n:012x}"),
        request: format!("addon-{cluster}-telemetry-{n:05}"),
        signer: "telemetry".to_owned(),
        generation: 1,
        signer_name: "example.com/telemetry".to_owned(),
        requester: format!("system:open-cluster-management:{cluster}:agent1"),
        cluster,
        addon: "telemetry".to_owned(),
        agent: "telemetry".to_owned(),
        issuer: issuer.to_owned(),
        serial: format!("{n:032x}"),
        not_before: now.minus(Duration::from_secs(300)),
        not_after: now.plus(Duration::from_secs(86_400)),
        prepared: now,
        tbs: "00".repeat(32),
        csr: String::from_utf8_lossy(REQUEST).into_owned(),
    }
}

/// A ledger that is open.
struct Store {
    location: Location,
    ledger: Ledger,
    writer: JoinHandle<()>,
}

impl Store {
    async fn open(location: Location) -> Self {
        let (clock, replica) = (Clock::default(), "bench".to_owned());
        let (writer, ledger) = Writer::new(WriterOptions { location: location.clone(), replica, clock });
        let writer = tokio::spawn(async move { writer.run(1).await.unwrap() });
        let up = |health: &Health| matches!(health, Health::Up { .. });
        ledger.health().wait_for(up).await.unwrap();
        Self { location, ledger, writer }
    }

    async fn close(self) {
        drop(self.ledger);
        self.writer.await.unwrap();
    }
}

/// Certificates per second.
async fn issue(signer: &Arc<Signer>, ledger: Option<&Ledger>, count: u64) -> f64 {
    let started = Instant::now();
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (signer, ledger) = (Arc::clone(signer), ledger.cloned());
            tokio::spawn(async move {
                for _ in 0..count / AT_ONCE {
                    signer.issue(ledger.as_ref()).await;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    rate(count / AT_ONCE * AT_ONCE, started)
}

fn rate(count: u64, started: Instant) -> f64 {
    count as f64 / started.elapsed().as_secs_f64()
}

/// Plain appending: the bytes of 64 entries, then the disk, twice for 64 certificates.
fn append(dir: &Path, intent: usize, signed: usize, count: u64) -> f64 {
    let mut file = File::create(dir.join("floor")).unwrap();
    let groups = [vec![b'i'; intent * AT_ONCE as usize], vec![b's'; signed * AT_ONCE as usize]];
    let started = Instant::now();
    for _ in 0..count / AT_ONCE {
        for group in &groups {
            file.write_all(group).unwrap();
            file.sync_data().unwrap();
        }
    }
    rate(count / AT_ONCE * AT_ONCE, started)
}

/// Fills a ledger by hand, thousands of rows at a time: a chain as the writer makes it.
struct Filler {
    connection: SqliteConnection,
    tip: Tip,
    entries: Vec<(u64, String)>,
    rows: Vec<(u64, Intent)>,
}

impl Filler {
    async fn fill(path: &Path, signer: &Signer, count: u64, life: Duration) -> (usize, usize) {
        let options = SqliteConnectOptions::new().filename(path).journal_mode(SqliteJournalMode::Wal);
        let mut connection = options.synchronous(SqliteSynchronous::Off).connect().await.unwrap();
        let sql = "SELECT seq, entry FROM entries ORDER BY seq DESC LIMIT 1";
        let (seq, entry): (i64, String) = sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
        let time = Timestamp::from_rfc3339(&Entry::parse(&entry).unwrap().time).unwrap();
        let tip = Tip { seq: seq as u64, hash: Hash::of(&entry), time };
        let mut filler = Self { connection, tip, entries: Vec::new(), rows: Vec::new() };
        let approved = signer.approved.clone();
        let prepared = signer.issuer.prepare(approved, Serial::random(&signer.rng).unwrap(), signer.now).unwrap();
        let certificate = signer.issuer.sign(prepared, &signer.published, signer.now, &signer.rng).unwrap().certificate;
        let (mut intent_bytes, mut signed_bytes) = (0, 0);
        for n in 0..count {
            // The newest tenth is valid; of the others each lived as long.
            let age = Duration::from_secs((count - n) * life.as_secs() * 10 / count);
            let intent = mk_intent(n, signer.issuer.authority().id(), signer.now.minus(age));
            let (uid, serial) = (intent.uid.clone(), intent.serial.clone());
            filler.rows.push((filler.tip.seq + 1, intent.clone()));
            intent_bytes = filler.add(&Record::Intent(Box::new(intent)));
            signed_bytes = filler.add(&Record::Signed { uid, serial, certificate: certificate.to_vec() });
            if n % 50_000 == 0 {
                sqlx::raw_sql(if n == 0 { "BEGIN" } else { "COMMIT; BEGIN" })
                    .execute(&mut filler.connection)
                    .await
                    .unwrap();
            }
            if filler.rows.len() == 100 || n + 1 == count {
                filler.write().await;
            }
        }
        sqlx::raw_sql("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut filler.connection).await.unwrap();
        filler.connection.close().await.unwrap();
        (intent_bytes, signed_bytes)
    }

    fn add(&mut self, record: &Record) -> usize {
        let seq = self.tip.seq + 1;
        let entry = Entry {
            seq,
            previous: self.tip.hash.to_string(),
            time: self.tip.time.to_string(),
            kind: record.kind().to_owned(),
            epoch: 1,
            replica: "bench".to_owned(),
            actor: String::new(),
            details: record.details(),
        };
        let text = entry.text();
        self.tip = Tip { seq, hash: Hash::of(&text), time: self.tip.time };
        let length = text.len();
        self.entries.push((seq, text));
        length
    }

    async fn write(&mut self) {
        let tuples = |columns: &str, rows: usize| vec![columns; rows].join(", ");
        let sql = format!("INSERT INTO entries (seq, entry, hash) VALUES {}", tuples("(?, ?, ?)", self.entries.len()));
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for (seq, text) in self.entries.drain(..) {
            let hash = Hash::of(&text).as_bytes().to_vec();
            query = query.bind(seq as i64).bind(text).bind(hash);
        }
        query.execute(&mut self.connection).await.unwrap();
        let sql = format!(
            "INSERT INTO certificates (seq, uid, request, signer, cluster, addon, agent, issuer, serial, not_before, not_after, \
             state, signed_seq) VALUES {}",
            tuples("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'published', ?)", self.rows.len())
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for (seq, intent) in self.rows.drain(..) {
            let Intent { uid, request, signer, cluster, addon, agent, issuer, serial, .. } = intent;
            query = query.bind(seq as i64).bind(uid).bind(request).bind(signer).bind(cluster).bind(addon).bind(agent);
            query = query.bind(issuer).bind(serial).bind(intent.not_before.unix()).bind(intent.not_after.unix());
            query = query.bind(seq as i64 + 1);
        }
        query.execute(&mut self.connection).await.unwrap();
    }
}

async fn filled(dir: &Path, name: &str, signer: &Signer, count: u64) -> (Location, (usize, usize)) {
    let path = dir.join(name);
    let location: Location = format!("sqlite://{}", path.display()).parse().unwrap();
    Store::open(location.clone()).await.close().await;
    let started = Instant::now();
    let sizes = Filler::fill(&path, signer, count, Duration::from_secs(86_400)).await;
    println!("filled {name} with {count} certificates, {:.0}/s", rate(count, started));
    (location, sizes)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Issuing on the two ledgers, without any, and the floor, in turn.
async fn issuing(dir: &Path, signer: &Arc<Signer>, stores: [&Store; 2], sizes: (usize, usize), count: u64) {
    let mut rates: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        rates[0].push(issue(signer, None, count).await);
        rates[1].push(append(dir, sizes.0, sizes.1, count));
        rates[2].push(issue(signer, Some(&stores[0].ledger), count).await);
        rates[3].push(issue(signer, Some(&stores[1].ledger), count).await);
    }
    let [unrecorded, floor, small, large] = rates.map(median);
    println!(
        "\nissuing, {AT_ONCE} at once, medians of {ROUNDS} rounds of {count} in turn, certificates/s; entries of {} and {} bytes:",
        sizes.0, sizes.1
    );
    println!("  signing alone, not recorded            {unrecorded:9.0}");
    println!("  appending and waiting for the disk     {floor:9.0}   (floor)");
    println!("  durable, 10 thousand in the ledger     {small:9.0}   {:.2} of the floor; goal 5000", small / floor);
    println!("  durable, the large ledger              {large:9.0}   {:.3} of the small one; goal 0.95", large / small);
}

async fn lists(location: &Location, now: Timestamp) {
    let reader = Reader::open(location.clone()).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let all = Filter::default;
    let filters = [
        ("no filter", all()),
        ("signer", Filter { signer: text("telemetry"), ..all() }),
        ("signer without any", Filter { signer: text("nobody"), ..all() }),
        ("cluster", Filter { cluster: text("cluster7"), ..all() }),
        ("cluster and addon", Filter { cluster: text("cluster7"), addon: text("telemetry"), ..all() }),
        ("addon without any", Filter { addon: text("nobody"), ..all() }),
        ("agent without any", Filter { agent: text("nobody"), ..all() }),
        ("issuer without any", Filter { issuer: text("0123"), ..all() }),
        ("state published", Filter { state: Some(Standing::Recorded(State::Published)), ..all() }),
        ("state unpublished, none", Filter { state: Some(Standing::Recorded(State::Unpublished)), ..all() }),
        ("state intent, none", Filter { state: Some(Standing::Recorded(State::Intent)), ..all() }),
        ("valid", Filter { state: Some(Standing::Valid), ..all() }),
        ("expired", Filter { state: Some(Standing::Expired), ..all() }),
        ("expiring within an hour", Filter { expiring_within: Some(Duration::from_secs(3600)), ..all() }),
        ("expiring within 0 s", Filter { expiring_within: Some(Duration::ZERO), ..all() }),
        ("not seen since", Filter { not_seen_since: Some(now), ..all() }),
        ("not seen since 1970, none", Filter { not_seen_since: Some(Timestamp::from_unix(0)), ..all() }),
    ];
    println!("\nfirst page of 100, median of 9, ms; goal 50:");
    for (name, filter) in filters {
        let query = Query { filter, ..Query::default() };
        let mut times = Vec::new();
        let mut found = 0;
        for _ in 0..9 {
            let started = Instant::now();
            found = reader.list(&query, now).await.unwrap().len();
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        println!("  {name:<28}{:8.2}   {found} found", median(times));
    }
    let started = Instant::now();
    assert!(reader.show("nobody").await.unwrap().is_none());
    println!("  {:<28}{:8.2}", "show, a name without any", started.elapsed().as_secs_f64() * 1e3);
}

/// Seconds of all cores that this process has used (proc(5), in hundredths).
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

async fn verifying(location: &Location) {
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (started, before) = (Instant::now(), cpu());
        let check = Check { location: location.clone(), head: None, archives: Vec::new() };
        let report = verify(check, |_| ()).await.unwrap();
        rates.push(rate(report.tip.seq, started));
        costs.push((cpu() - before) * 1e6 / report.tip.seq as f64);
    }
    println!(
        "\nverify, median of 3, rows/s; goal 500000:\n  {:.0}, {:.2} µs of CPU per row",
        median(rates),
        median(costs)
    );
}

async fn postgres(location: Location, signer: &Arc<Signer>, count: u64) {
    let store = Store::open(location).await;
    let mut rates = Vec::new();
    for _ in 0..3 {
        rates.push(issue(signer, Some(&store.ledger), count).await);
    }
    println!(
        "\nPostgreSQL, durable, {AT_ONCE} at once, median of 3 rounds of {count}, certificates/s:\n  {:.0}",
        median(rates)
    );
    lists(&store.location, signer.now).await;
    verifying(&store.location).await;
    store.close().await;
}

fn main() {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let signer = Arc::new(Signer::new());
        let (small, sizes) = filled(dir.path(), "small.db", &signer, SMALL).await;
        let (large, _) = filled(dir.path(), "large.db", &signer, args.certificates).await;
        lists(&large, signer.now).await;
        verifying(&large).await;
        let stores = [Store::open(small).await, Store::open(large).await];
        issuing(dir.path(), &signer, [&stores[0], &stores[1]], sizes, args.issue).await;
        for store in stores {
            store.close().await;
        }
        if let Some(location) = args.postgres {
            postgres(location, &signer, args.issue).await;
        }
    });
}
