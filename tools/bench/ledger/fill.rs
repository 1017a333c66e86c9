//! Fills a ledger with a million certificates in minutes.

use std::time::Duration;

use addon_signer_core::journal::entry::{Entry, Hash, Tip};
use addon_signer_core::journal::record::{Intent, Record};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::Location;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, SqliteConnection};

use super::Store;
use super::signer::{Signer, mk_text};

/// The lifetime of a certificate.
const LIFE: Duration = Duration::from_secs(86_400);
/// The number of certificates in one statement.
const ROWS: usize = 100;
/// The number of certificates in one transaction.
const COMMIT: u64 = 50_000;

enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

macro_rules! on {
    ($raw:expr, $inner:ident => $body:expr) => {
        match $raw {
            Raw::Sqlite($inner) => $body,
            Raw::Postgres($inner) => $body,
        }
    };
}

/// Fills a ledger without the writer, many rows at a time, with a chain as the writer makes it.
pub(crate) struct Filler {
    raw: Raw,
    now: Timestamp,
    tip: Tip,
    entries: Vec<(u64, String)>,
    rows: Vec<(u64, Intent)>,
}

impl Filler {
    /// Fills the ledger. The newest tenth of the certificates is valid. Every second certificate was used until it
    /// expired, the others never. The oldest certificate has rare names. An SQLite file of an earlier run stays as it
    /// is.
    pub(crate) async fn fill(location: &Location, signer: &Signer, count: u64) {
        let is_there = matches!(location, Location::Sqlite(path) if path.exists());
        Store::open(location.clone()).await.close().await;
        if is_there {
            return;
        }
        let mut filler = Self::open(location, signer.now).await;
        let certificate = signer.certificate();
        filler.command("BEGIN").await;
        for n in 0..count {
            let age = Duration::from_secs((count - n) * LIFE.as_secs() * 10 / count);
            let (intent, signed) = signer.records(n, signer.now.minus(age), &certificate);
            filler.rows.push((filler.tip.seq + 1, intent.clone()));
            filler.add(&Record::Intent(Box::new(intent)));
            filler.add(&signed);
            if filler.rows.len() == ROWS || n + 1 == count {
                filler.write().await;
            }
            if (n + 1).is_multiple_of(COMMIT) {
                filler.command("COMMIT").await;
                filler.command("BEGIN").await;
            }
        }
        filler.command("COMMIT").await;
        filler.close().await;
    }

    async fn open(location: &Location, now: Timestamp) -> Self {
        let mut raw = match location {
            Location::Sqlite(path) => {
                let options = SqliteConnectOptions::new().filename(path).journal_mode(SqliteJournalMode::Wal);
                let options = options.synchronous(SqliteSynchronous::Off).pragma("cache_size", "-1048576");
                Raw::Sqlite(options.connect().await.unwrap())
            }
            Location::Postgres(options) => Raw::Postgres(options.connect().await.unwrap()),
        };
        let sql = "SELECT seq, entry FROM entries ORDER BY seq DESC LIMIT 1";
        let (seq, entry): (i64, String) = on!(&mut raw, inner => sqlx::query_as(sql).fetch_one(inner).await.unwrap());
        let time = Timestamp::from_rfc3339(&Entry::parse(&entry).unwrap().time).unwrap();
        let tip = Tip { seq: seq as u64, hash: Hash::of(&entry), time };
        Self { raw, now, tip, entries: Vec::new(), rows: Vec::new() }
    }

    /// Brings the store into the state after some days of a hub: the log is folded in, the planner has statistics, and
    /// nothing waits for the disk.
    async fn close(mut self) {
        match &self.raw {
            Raw::Sqlite(_) => self.command("PRAGMA synchronous = FULL; PRAGMA wal_checkpoint(TRUNCATE)").await,
            Raw::Postgres(_) => {
                self.command("VACUUM ANALYZE").await;
                self.command("CHECKPOINT").await;
            }
        }
        on!(self.raw, inner => inner.close().await.unwrap());
    }

    async fn command(&mut self, sql: &'static str) {
        on!(&mut self.raw, inner => drop(sqlx::raw_sql(sql).execute(inner).await.unwrap()));
    }

    fn add(&mut self, record: &Record) {
        let seq = self.tip.seq + 1;
        let text = mk_text(self.tip, record);
        self.tip = Tip { seq, hash: Hash::of(&text), time: self.tip.time };
        self.entries.push((seq, text));
    }

    async fn write(&mut self) {
        let sql = format!("INSERT INTO entries (seq, entry, hash) VALUES {}", tuples(3, self.entries.len()));
        let entries = std::mem::take(&mut self.entries);
        on!(&mut self.raw, inner => {
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for (seq, text) in entries {
                let hash = Hash::of(&text).as_bytes().to_vec();
                query = query.bind(seq as i64).bind(text).bind(hash);
            }
            query.execute(inner).await.unwrap();
        });
        let columns = "seq, requested, uid, request, signer, cluster, addon, agent, issuer, serial, \
                       not_before, not_after, signed_seq, state, published_at, last_seen";
        let sql = format!("INSERT INTO certificates ({columns}) VALUES {}", tuples(16, self.rows.len()));
        let rows = std::mem::take(&mut self.rows);
        on!(&mut self.raw, inner => {
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for (seq, intent) in rows {
                let seen = (seq / 2).is_multiple_of(2).then(|| self.now.min(intent.not_after).unix());
                let [cluster, addon, agent] = intent.names().map(str::to_owned);
                let Intent { uid, request, signer, issuer, serial, .. } = intent;
                query = query.bind(seq as i64).bind(intent.requested.unix()).bind(uid.to_string()).bind(request);
                query = query.bind(signer).bind(cluster).bind(addon).bind(agent).bind(issuer.to_string());
                query = query.bind(serial.to_string());
                query = query.bind(intent.not_before.unix()).bind(intent.not_after.unix());
                query = query.bind(seq as i64 + 1).bind("published").bind(intent.prepared.unix()).bind(seen);
            }
            query.execute(inner).await.unwrap();
        });
    }
}

/// Placeholders of SQL such as `($1, $2), ($3, $4)`.
fn tuples(columns: usize, rows: usize) -> String {
    let tuple = |row: usize| {
        let numbers: Vec<_> = (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", numbers.join(", "))
    };
    (0..rows).map(tuple).collect::<Vec<_>>().join(", ")
}
