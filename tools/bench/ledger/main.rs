//! Measures what durable writes cost, and whether the ledger stays fast when it has grown. It compares issuing with
//! appending the same bytes to a plain file, on a ledger of 10 thousand certificates and on one of a million. It also
//! measures the first page of a list, and the check of the whole ledger.
//!
//! ```console
//! $ export ADDON_SIGNER_POSTGRES=/usr/lib/postgresql/15/bin   # for PostgreSQL as well
//! $ cargo bench --manifest-path tools/Cargo.toml --bench ledger -- [--certificates N] [--dir DIR] \
//!       [--part lists|verify|issue]... [--store sqlite|postgres]
//! ```
//!
//! A million certificates need 4 GB of disk, and 4 GB more for PostgreSQL. Contestants take turns, so that a busy
//! machine slows them alike.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark fails by panicking"
)]

mod fill;
mod issue;
mod questions;
mod signer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use addon_signer_ledger::{Health, Ledger, LedgerWriter, Location, WriterOptions};
use addon_signer_platform::clock::Clock;
use clap::{Parser, ValueEnum};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;

use fill::Filler;
use signer::Signer;
use test_kit::postgres::{self, Postgres};

/// The number of certificates in the small ledger.
const SMALL: u64 = 10_000;

#[derive(Parser)]
struct Args {
    /// The number of certificates in the large ledger.
    #[arg(long, default_value_t = 1_000_000)]
    certificates: u64,
    /// The number of certificates in a round of issuing.
    #[arg(long, default_value_t = 2_500)]
    issue: u64,
    /// Keep SQLite's files in this directory for the next run; without it they are deleted at the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Run only this part; may be repeated.
    #[arg(long)]
    part: Vec<Part>,
    /// Run only on this store.
    #[arg(long)]
    store: Option<Kind>,
    /// What cargo passes.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Lists,
    Verify,
    Issue,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Sqlite,
    Postgres,
}

/// An open ledger.
struct Store {
    ledger: Ledger,
    writer: JoinHandle<()>,
}

impl Store {
    async fn open(location: Location) -> Self {
        let clock = Clock::default();
        let replica = "bench".to_owned();
        let (writer, ledger) =
            LedgerWriter::new(WriterOptions { location, replica, clock, metrics: Default::default() });
        let writer = tokio::spawn(async move { writer.run(1).await.unwrap() });
        let up = |health: &Health| matches!(health, Health::Up { .. });
        ledger.health().wait_for(up).await.unwrap();
        Self { ledger, writer }
    }

    async fn close(self) {
        drop(self.ledger);
        self.writer.await.unwrap();
    }
}

fn rate(count: u64, started: Instant) -> f64 {
    count as f64 / started.elapsed().as_secs_f64()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn file(dir: &Path, name: &str) -> Location {
    format!("sqlite://{}", dir.join(name).display()).parse().unwrap()
}

/// Where the small ledger is. It is made anew for each measurement, so that it does not grow.
enum Small<'a> {
    File(&'a Path),
    Server(&'a Postgres),
}

impl Small<'_> {
    async fn open(&self, signer: &Signer) -> Store {
        let location: Location = match self {
            Self::File(dir) => {
                let dir = dir.join("small");
                if dir.exists() {
                    std::fs::remove_dir_all(&dir).unwrap();
                }
                std::fs::create_dir(&dir).unwrap();
                file(&dir, "ledger.db")
            }
            Self::Server(server) => {
                let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
                sqlx::raw_sql("DROP DATABASE IF EXISTS small").execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                server.create_database("small").await;
                server.url("small").parse().unwrap()
            }
        };
        Filler::fill(&location, signer, SMALL).await;
        Store::open(location).await
    }
}

/// Runs all requested parts on one kind of store.
async fn measure(args: &Args, dir: &Path, signer: &Arc<Signer>, small: Small<'_>, large: Location) {
    let asked = |part| args.part.is_empty() || args.part.contains(&part);
    let started = Instant::now();
    Filler::fill(&large, signer, args.certificates).await;
    println!("filled with {} certificates in {:.0} s", args.certificates, started.elapsed().as_secs_f64());
    if asked(Part::Lists) {
        questions::lists(&large, signer.now, args.certificates).await;
    }
    if asked(Part::Verify) {
        questions::verifying(&large).await;
    }
    if asked(Part::Issue) {
        let store = Store::open(large).await;
        issue::issuing(dir, signer, &small, &store.ledger, args.issue).await;
        store.close().await;
    }
}

fn main() {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let own = tempfile::tempdir().unwrap();
        let dir = args.dir.as_deref().unwrap_or(own.path());
        std::fs::create_dir_all(dir).unwrap();
        let signer = Arc::new(Signer::new());
        let asked = |kind| args.store.is_none_or(|only| only == kind);
        if asked(Kind::Sqlite) {
            println!("SQLite");
            measure(&args, dir, &signer, Small::File(dir), file(dir, "large.db")).await;
        }
        if postgres::programs().is_some() && asked(Kind::Postgres) {
            println!("\nPostgreSQL");
            let server = Postgres::start().await;
            server.create_database("large").await;
            let large = server.url("large").parse().unwrap();
            measure(&args, dir, &signer, Small::Server(&server), large).await;
        }
    });
}
