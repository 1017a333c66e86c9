//! Rows that somebody altered, deleted, moved, cut off or made anew: the program and the checker in Python find each
//! change and name the same row.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::entry::{Entry, Hash, Tip};
use addon_signer_core::journal::hash_chain::Chain;
use addon_signer_core::journal::record::Record;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::timestamp::Timestamp;
use ring::rand::SystemRandom;
use tempfile::TempDir;

use super::checker::check;
use super::kit::RunningWriter;
use super::rows::{self, EntryRow};
use test_kit::postgres::{Database, programs};
use test_kit::store::{TestStore, on_store};

/// The last row that the published checkpoint covers.
const CHECKPOINT: usize = 9;

/// One change: what it does to the rows, the first bad row after it, and whether that is found without the checkpoint.
struct Tampering {
    name: &'static str,
    change: fn(&mut Vec<EntryRow>),
    bad: u64,
    shows_by_itself: bool,
}

const CASES: [Tampering; 13] = [
    Tampering { name: "text altered", change: |rows| alter(rows, 5), bad: 5, shows_by_itself: true },
    Tampering {
        name: "text and its hash altered",
        change: |rows| alter_and_hash(rows, 5),
        bad: 5,
        shows_by_itself: true,
    },
    Tampering { name: "first row altered", change: |rows| alter_and_hash(rows, 1), bad: 1, shows_by_itself: true },
    Tampering {
        name: "rows put before the first",
        change: |rows| name_another_before(rows),
        bad: 1,
        shows_by_itself: true,
    },
    Tampering {
        name: "earlier epoch, made anew from there",
        change: |rows| go_back(rows),
        bad: 6,
        shows_by_itself: true,
    },
    Tampering { name: "row deleted", change: |rows| drop(rows.remove(5)), bad: 6, shows_by_itself: true },
    Tampering { name: "first row deleted", change: |rows| drop(rows.remove(0)), bad: 1, shows_by_itself: true },
    Tampering { name: "row deleted and the rest moved up", change: move_up, bad: 6, shows_by_itself: true },
    Tampering { name: "rows swapped", change: |rows| swap(rows, 4, 7), bad: 5, shows_by_itself: true },
    Tampering { name: "written in another form", change: |rows| respell(rows), bad: 6, shows_by_itself: true },
    Tampering { name: "tail cut off", change: |rows| rows.truncate(7), bad: 8, shows_by_itself: false },
    Tampering { name: "all rows cut off", change: Vec::clear, bad: 1, shows_by_itself: false },
    Tampering {
        name: "made anew from row 5 on",
        change: |rows| make_anew(rows),
        bad: CHECKPOINT as u64,
        shows_by_itself: false,
    },
];

fn alter(rows: &mut [EntryRow], seq: usize) {
    let row = &mut rows[seq - 1];
    let altered = row.entry.replace(r#""replica":"hub-0""#, r#""replica":"hub-1""#);
    assert_ne!(altered, row.entry);
    row.entry = altered;
}

fn rehash(row: &mut EntryRow) {
    row.hash = Hash::of(&row.entry).as_bytes().to_vec();
}

fn alter_and_hash(rows: &mut [EntryRow], seq: usize) {
    alter(rows, seq);
    rehash(&mut rows[seq - 1]);
}

fn swap(rows: &mut [EntryRow], one: usize, other: usize) {
    rows.swap(one, other);
    (rows[one].seq, rows[other].seq) = (rows[other].seq, rows[one].seq);
}

fn move_up(rows: &mut Vec<EntryRow>) {
    rows.remove(5);
    for (index, row) in rows.iter_mut().enumerate() {
        row.seq = i64::try_from(index + 1).unwrap();
    }
}

fn respell(rows: &mut [EntryRow]) {
    rows[5].entry = rows[5].entry.replace("telemetry", "tel\\u0065metry");
    rehash(&mut rows[5]);
    chain_on(rows, 6);
}

pub(super) fn make_anew(rows: &mut [EntryRow]) {
    alter_and_hash(rows, 5);
    chain_on(rows, 5);
}

fn name_another_before(rows: &mut [EntryRow]) {
    rows[0].entry = rows[0].entry.replacen("00000000", "12345678", 1);
    rehash(&mut rows[0]);
    chain_on(rows, 1);
}

fn go_back(rows: &mut [EntryRow]) {
    rows[5].entry = rows[5].entry.replace(r#""epoch":1"#, r#""epoch":0"#);
    rehash(&mut rows[5]);
    chain_on(rows, 6);
}

/// Makes `previous` and the hash of each row from this index on consistent with the row before it.
fn chain_on(rows: &mut [EntryRow], from: usize) {
    for at in from..rows.len() {
        let mut entry = Entry::parse(&rows[at].entry).unwrap();
        entry.previous = Hash::of(&rows[at - 1].entry).to_string();
        rows[at].entry = entry.text();
        rehash(&mut rows[at]);
    }
}

/// Makes a ledger with eleven entries; returns its rows and a checkpoint of the ninth.
pub(super) async fn mk_ledger(store: &TestStore) -> (Vec<EntryRow>, String) {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::Ed25519, &rng).unwrap();
    let running = RunningWriter::start(&store.url());
    running.ledger.change(Record::CheckpointKey { key: key.public_key_der().to_vec() }, "").await.unwrap();
    for number in 1..=4 {
        running.issue(number).await;
    }
    running.stop().await;

    let rows = rows::read(store).await;
    let opened = Entry::parse(&rows[0].entry).unwrap();
    let published = Entry::parse(&rows[CHECKPOINT - 1].entry).unwrap();
    let time = Timestamp::from_rfc3339(&published.time).unwrap();
    let tip = Tip { seq: published.seq, hash: Hash::of(&rows[CHECKPOINT - 1].entry), time };
    let checkpoint = Checkpoint::sign(opened.detail("ledger"), tip, time, &key, &rng).unwrap();
    (rows, checkpoint.json())
}

/// The first bad row that the program finds.
async fn ours(store: &TestStore, checkpoint: Option<&str>) -> Option<u64> {
    let mut chain = Chain::after(Tip::EMPTY, checkpoint.map(|checkpoint| Checkpoint::read(checkpoint).unwrap()));
    for EntryRow { seq, entry, hash } in rows::read(store).await {
        if let Err(fault) = chain.follow(u64::try_from(seq).unwrap(), &entry, &hash) {
            return Some(fault.row);
        }
    }
    chain.end().err().map(|fault| fault.row)
}

/// The first bad row that the checker in Python finds.
async fn theirs(store: &TestStore, checkpoint: Option<&str>) -> Option<u64> {
    let dir = TempDir::new().unwrap();
    let checkpoint = checkpoint.map(|checkpoint| {
        let file = dir.path().join("head.json");
        fs::write(&file, checkpoint).unwrap();
        file
    });
    let ledger = match store {
        TestStore::Sqlite(dir) => dir.path().join("ledger.db"),
        TestStore::Postgres(database) => dump(database, dir.path()),
    };
    let (good, message) = check(&[&ledger], checkpoint.as_deref()).await;
    let row = message.strip_prefix("bad: row ").and_then(|rest| rest.split(':').next()?.parse().ok());
    assert_eq!(good, row.is_none(), "{message}");
    row
}

/// Writes the entries into a file, by the command in docs/ledger-format.md.
pub(super) fn dump(database: &Database, dir: &Path) -> PathBuf {
    print(database, "SELECT entry FROM entries ORDER BY seq", dir.join("entries.txt"))
}

/// Writes what psql prints into a file.
pub(super) fn print(database: &Database, sql: &str, file: PathBuf) -> PathBuf {
    let psql = programs().unwrap().join("psql");
    let output = Command::new(psql).args(["-AtX", "-c", sql, &database.url]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(&file, output.stdout).unwrap();
    file
}

#[tokio::test]
async fn changed_rows_are_found_and_both_checkers_name_the_same_one() {
    on_store(async |store| {
        let (rows, checkpoint) = mk_ledger(store).await;
        assert_eq!(rows.len(), 11);
        assert_eq!((ours(store, Some(&checkpoint)).await, theirs(store, Some(&checkpoint)).await), (None, None));
        rows::disarm(store).await;
        for Tampering { name, change, bad, shows_by_itself } in CASES {
            let mut changed = rows.clone();
            change(&mut changed);
            rows::replace(store, &changed).await;
            let found = (ours(store, Some(&checkpoint)).await, theirs(store, Some(&checkpoint)).await);
            assert_eq!(found, (Some(bad), Some(bad)), "{name}");
            let by_itself = shows_by_itself.then_some(bad);
            let found = (ours(store, None).await, theirs(store, None).await);
            assert_eq!(found, (by_itself, by_itself), "{name}, without the checkpoint");
        }
    })
    .await;
}

#[tokio::test]
async fn index_that_says_something_else_than_the_entries_is_found() {
    const CHANGES: [(&str, u64); 11] = [
        ("UPDATE certificates SET cluster = 'c2' WHERE seq = 6", 6),
        ("UPDATE certificates SET uid = 'uid-9' WHERE seq = 8", 8),
        ("UPDATE certificates SET not_after = not_after + 1 WHERE seq = 10", 10),
        ("UPDATE certificates SET state = 'abandoned' WHERE seq = 4", 4),
        ("UPDATE certificates SET state = 'intent', signed_seq = NULL WHERE seq = 4", 4),
        ("UPDATE certificates SET signed_seq = 9 WHERE seq = 6", 6),
        ("DELETE FROM certificates WHERE seq = 8", 8),
        ("UPDATE certificates SET seq = 9 WHERE seq = 8", 8),
        ("UPDATE certificates SET requested = 0 WHERE seq = 6", 6),
        ("DELETE FROM unfinished WHERE seq = 6", 6),
        ("INSERT INTO unfinished VALUES (4)", 4),
    ];
    for (change, bad) in CHANGES {
        let store = TestStore::sqlite();
        mk_ledger(&store).await;
        rows::run(&store, "UPDATE certificates SET state = 'published', published_at = 1, last_seen = 2 WHERE seq = 4")
            .await;
        rows::run(&store, "DELETE FROM unfinished WHERE seq = 4").await;
        assert_eq!(theirs(&store, None).await, None);
        rows::run(&store, change).await;
        assert_eq!(theirs(&store, None).await, Some(bad), "{change}");
    }
}
