//! What a ledger says about its archives is the word of whoever can write to its store. The program and the checker in
//! Python take it only as far as a published checkpoint and the archives that are given bear it out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::entry::{Entry, Hash};
use addon_signer_ledger::FileError;
use addon_signer_ledger::verify::{Check, VerifyError, verify};
use tempfile::TempDir;

use super::checker::check_with;
use super::rows::{self, EntryRow};
use super::tampering::{dump, make_anew, mk_ledger, print};
use test_kit::store::{TestStore, on_store};

/// The last row of an archive and its hash, as the table `archives` has them.
type ArchiveEnd = (u64, Vec<u8>);

/// A ledger whose first rows are said to be in archives, and which of these are given. The checkpoint is of row 9.
struct ClaimedRows {
    name: &'static str,
    archives: fn(&[EntryRow]) -> Vec<ArchiveEnd>,
    left: fn(&[EntryRow]) -> Vec<EntryRow>,
    given: fn(&[EntryRow]) -> Vec<Vec<EntryRow>>,
    /// The first bad row with the checkpoint, and without it.
    bad: (Option<u64>, Option<u64>),
}

const GOOD: (Option<u64>, Option<u64>) = (None, None);
const ANYTHING: [u8; 32] = [7; 32];

const CASES: [ClaimedRows; 24] = [
    ClaimedRows {
        name: "an archive",
        archives: |all| vec![end(all, 5)],
        left: |all| part(all, 6, 11),
        given: none,
        bad: GOOD,
    },
    ClaimedRows {
        name: "an archive that is given",
        archives: |all| vec![end(all, 5)],
        left: |all| part(all, 6, 11),
        given: |all| vec![part(all, 1, 5)],
        bad: GOOD,
    },
    ClaimedRows {
        name: "two archives that are given",
        archives: |all| vec![end(all, 5), end(all, 7)],
        left: |all| part(all, 8, 11),
        given: |all| vec![part(all, 1, 5), part(all, 6, 7)],
        bad: GOOD,
    },
    ClaimedRows {
        name: "two archives, the later one is given",
        archives: |all| vec![end(all, 5), end(all, 7)],
        left: |all| part(all, 8, 11),
        given: |all| vec![part(all, 6, 7)],
        bad: GOOD,
    },
    ClaimedRows {
        name: "two archives, the earlier one is given",
        archives: |all| vec![end(all, 5), end(all, 7)],
        left: |all| part(all, 8, 11),
        given: |all| vec![part(all, 1, 5)],
        bad: (Some(6), Some(6)),
    },
    ClaimedRows {
        name: "the checkpoint's row is in an archive",
        archives: |all| vec![end(all, 5), end(all, 9)],
        left: |all| part(all, 10, 11),
        given: none,
        bad: (Some(9), None),
    },
    ClaimedRows {
        name: "the checkpoint's row is in an archive, all are given",
        archives: |all| vec![end(all, 5), end(all, 9)],
        left: |all| part(all, 10, 11),
        given: |all| vec![part(all, 1, 5), part(all, 6, 9)],
        bad: GOOD,
    },
    ClaimedRows {
        name: "the checkpoint's row is in an archive, which is given",
        archives: |all| vec![end(all, 5), end(all, 9)],
        left: |all| part(all, 10, 11),
        given: |all| vec![part(all, 6, 9)],
        bad: GOOD,
    },
    ClaimedRows {
        name: "the checkpoint's row is in an archive, another one is given",
        archives: |all| vec![end(all, 5), end(all, 9)],
        left: |all| part(all, 10, 11),
        given: |all| vec![part(all, 1, 5)],
        bad: (Some(6), Some(6)),
    },
    ClaimedRows {
        name: "an archive that was made anew",
        archives: |all| vec![end(all, 9)],
        left: |all| part(all, 10, 11),
        given: |all| vec![part(&anew(all), 1, 9)],
        bad: (Some(9), Some(9)),
    },
    ClaimedRows {
        name: "archive and ledger were made anew",
        archives: |all| vec![end(&anew(all), 9)],
        left: |all| part(&anew(all), 10, 11),
        given: |all| vec![part(&anew(all), 1, 9)],
        bad: (Some(9), None),
    },
    ClaimedRows {
        name: "emptied and begun anew after any hash",
        archives: |_| vec![(9, ANYTHING.to_vec())],
        left: |_| begun_after(9, &ANYTHING),
        given: none,
        bad: (Some(9), None),
    },
    ClaimedRows {
        name: "emptied and begun anew, far behind",
        archives: |_| vec![(20, ANYTHING.to_vec())],
        left: |_| begun_after(20, &ANYTHING),
        given: none,
        bad: (Some(9), None),
    },
    ClaimedRows {
        name: "emptied and begun anew after the checkpoint's hash",
        archives: |all| vec![end(all, 9)],
        left: |all| begun_after(9, &all[8].hash),
        given: none,
        bad: (Some(9), None),
    },
    ClaimedRows {
        name: "emptied and begun anew, and the rows are given",
        archives: |_| vec![(9, ANYTHING.to_vec())],
        left: |_| begun_after(9, &ANYTHING),
        given: |all| vec![part(all, 1, 9)],
        bad: (Some(9), Some(9)),
    },
    ClaimedRows {
        name: "emptied",
        archives: |_| vec![(20, ANYTHING.to_vec())],
        left: |_| Vec::new(),
        given: none,
        bad: (Some(21), Some(21)),
    },
    ClaimedRows {
        name: "an archive of the future",
        archives: |_| vec![(100, ANYTHING.to_vec())],
        left: <[EntryRow]>::to_vec,
        given: none,
        bad: (Some(1), Some(1)),
    },
    ClaimedRows {
        name: "an archive of rows that are here",
        archives: |all| vec![end(all, 5)],
        left: |all| part(all, 4, 11),
        given: none,
        bad: (Some(4), Some(4)),
    },
    ClaimedRows {
        name: "an archive with a wrong hash",
        archives: |_| vec![(5, ANYTHING.to_vec())],
        left: |all| part(all, 6, 11),
        given: none,
        bad: (Some(5), Some(5)),
    },
    ClaimedRows {
        name: "an archive with a wrong hash, which is given",
        archives: |_| vec![(5, ANYTHING.to_vec())],
        left: |all| part(all, 6, 11),
        given: |all| vec![part(all, 1, 5)],
        bad: (Some(5), Some(5)),
    },
    ClaimedRows {
        name: "an archive with a hash that is none",
        archives: |_| vec![(5, vec![1, 2])],
        left: |all| part(all, 6, 11),
        given: none,
        bad: (Some(5), Some(5)),
    },
    ClaimedRows {
        name: "an earlier archive with a wrong hash, and the later one is given",
        archives: |all| vec![(5, ANYTHING.to_vec()), end(all, 7)],
        left: |all| part(all, 8, 11),
        given: |all| vec![part(all, 6, 7)],
        bad: (Some(5), Some(5)),
    },
    ClaimedRows {
        name: "rows that nothing says are archived",
        archives: |_| Vec::new(),
        left: |all| part(all, 6, 11),
        given: none,
        bad: (Some(1), Some(1)),
    },
    ClaimedRows {
        name: "an archive that the ledger does not know",
        archives: |_| Vec::new(),
        left: |all| part(all, 6, 11),
        given: |all| vec![part(all, 1, 5)],
        bad: (Some(5), Some(5)),
    },
];

fn none(_: &[EntryRow]) -> Vec<Vec<EntryRow>> {
    Vec::new()
}

fn part(rows: &[EntryRow], from: usize, to: usize) -> Vec<EntryRow> {
    rows[from - 1..to].to_vec()
}

fn end(rows: &[EntryRow], seq: usize) -> ArchiveEnd {
    (u64::try_from(seq).unwrap(), rows[seq - 1].hash.clone())
}

fn anew(rows: &[EntryRow]) -> Vec<EntryRow> {
    let mut rows = rows.to_vec();
    make_anew(&mut rows);
    rows
}

/// The row of a ledger that somebody began after a row of any hash.
fn begun_after(seq: u64, hash: &[u8]) -> Vec<EntryRow> {
    let entry = Entry {
        seq: seq + 1,
        previous: Hash::from_bytes(hash).unwrap().to_string(),
        time: "2026-11-24T00:00:00Z".to_owned(),
        kind: "leader".to_owned(),
        epoch: 1,
        replica: "hub-0".to_owned(),
        actor: String::new(),
        details: BTreeMap::from([("version".to_owned(), "0.1.0".to_owned())]),
    };
    let entry = entry.text();
    let hash = Hash::of(&entry).as_bytes().to_vec();
    vec![EntryRow { seq: i64::try_from(seq + 1).unwrap(), entry, hash }]
}

/// The first bad row that the program finds.
async fn ours(store: &TestStore, archives: &[PathBuf], checkpoint: Option<&str>) -> Option<u64> {
    let checkpoint = checkpoint.map(|text| Checkpoint::read(text).unwrap());
    let check = Check { location: store.url().parse().unwrap(), checkpoint, archives: archives.to_vec() };
    match rows::of_rows(verify(check, |_| ()).await) {
        Ok(()) => None,
        Err(VerifyError::Fault(fault) | VerifyError::File { cause: FileError::Fault(fault), .. }) => Some(fault.row),
        Err(other) => panic!("{other}"),
    }
}

/// The first bad row that the checker in Python finds.
async fn theirs(store: &TestStore, archives: &[PathBuf], checkpoint: Option<&Path>) -> Option<u64> {
    let dir = TempDir::new().unwrap();
    let (ledger, table) = match store {
        TestStore::Sqlite(dir) => (dir.path().join("ledger.db"), None),
        TestStore::Postgres(database) => {
            let sql = "SELECT through, encode(hash, 'hex') FROM archives ORDER BY through";
            (dump(database, dir.path()), Some(print(database, sql, dir.path().join("archives.txt"))))
        }
    };
    let files: Vec<&Path> = archives.iter().chain([&ledger]).map(PathBuf::as_path).collect();
    let (good, message) = check_with(&files, checkpoint, table.as_deref()).await;
    let row = message.strip_prefix("bad: row ").and_then(|rest| rest.split(':').next()?.parse().ok());
    assert_eq!(good, row.is_none(), "{message}");
    row
}

#[tokio::test]
async fn neither_checker_trusts_archive_claims_over_a_checkpoint() {
    on_store(async |store| {
        let (all, text) = mk_ledger(store).await;
        rows::disarm(store).await;
        let dir = TempDir::new().unwrap();
        let checkpoint = dir.path().join("head.json");
        fs::write(&checkpoint, &text).unwrap();
        for ClaimedRows { name, archives, left, given, bad } in CASES {
            rows::replace(store, &left(&all)).await;
            rows::replace_archives(store, &archives(&all)).await;
            let write = |(at, rows): (usize, Vec<EntryRow>)| {
                let file = dir.path().join(format!("{at}.jsonl"));
                fs::write(&file, rows.iter().map(|row| format!("{}\n", row.entry)).collect::<String>()).unwrap();
                file
            };
            let files: Vec<PathBuf> = given(&all).into_iter().enumerate().map(write).collect();
            let found = (ours(store, &files, Some(&text)).await, theirs(store, &files, Some(&checkpoint)).await);
            assert_eq!(found, (bad.0, bad.0), "{name}");
            let found = (ours(store, &files, None).await, theirs(store, &files, None).await);
            assert_eq!(found, (bad.1, bad.1), "{name}, without the checkpoint");
        }
    })
    .await;
}
