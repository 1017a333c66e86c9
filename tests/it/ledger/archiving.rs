//! `certs archive` moves entries of expired certificates into files, and the check still follows the chain across them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::record::{Existing, Intended, Record};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::archive::{Archive, ArchiveError, Archived, archive};
use addon_signer_ledger::verify::{Check, VerifyError, VerifyReport, verify};
use addon_signer_ledger::{LedgerWriter, Location};
use addon_signer_platform::clock::Clock;
use ring::rand::SystemRandom;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::checker;
use super::rows;
use super::{Open, fill, mk_intent, mk_serial, mk_signed, options, sqlite};
use test_kit::hub::TIMEOUT;
use test_kit::soak::soak;
use test_kit::store::{TestStore, on_store};
use test_kit::wait_until;

/// A time at which the certificates of `mk_intent` have expired.
const OVER: Timestamp = Timestamp::from_unix(1_795_086_401);

async fn hub(location: &Location, clock: &Clock, epoch: u64) -> Open {
    let mut options = options(location, "hub-a");
    options.clock = clock.clone();
    let (writer, ledger) = LedgerWriter::new(options);
    let open = Open { ledger, writer: tokio::spawn(writer.run(epoch)) };
    open.ledger.append(Record::Leader, "").await.unwrap();
    open
}

/// A clock at whose time the certificates of `mk_intent` are valid.
fn clock() -> Clock {
    let clock = Clock::default();
    let now = clock.now().unix();
    let then = 1_795_040_000;
    match u64::try_from(now - then) {
        Ok(ahead) => clock.set_back(Duration::from_secs(ahead)),
        Err(_) => clock.advance(Duration::from_secs(u64::try_from(then - now).unwrap())),
    }
    clock
}

async fn publish(hub: &Open, numbers: std::ops::Range<u64>) {
    for n in numbers {
        hub.ledger.published(mk_serial(n), OVER).await;
    }
    // An entry is written after all notes that were made before it.
    hub.ledger.append(Record::Leader, "").await.unwrap();
}

/// Records 300 certificates that have expired, one that has not, and nine more after it. Returns how many rows can be
/// archived.
async fn prepare(location: &Location) -> u64 {
    let clock = clock();
    let open = hub(location, &clock, 1).await;
    fill(&open, 0..300).await;
    publish(&open, 0..300).await;
    clock.advance(Duration::from_secs(40_000));
    let mut lasting = mk_intent(300);
    lasting.not_after = OVER.plus(Duration::from_secs(1_000_000));
    open.ledger.intend(lasting).await.unwrap();
    open.ledger.append(mk_signed(300), "").await.unwrap();
    fill(&open, 301..310).await;
    publish(&open, 300..310).await;
    open.close().await;
    1 + 1 + 1 + 600 + 1 // opened, leader, ours, certificates, ours
}

/// A checkpoint of the last row.
async fn mk_checkpoint(location: &Location) -> Checkpoint {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::Ed25519, &rng).unwrap();
    let report = check(location, &[]).await.unwrap();
    Checkpoint::sign(&report.ledger, report.tip, OVER, &key, &rng).unwrap()
}

async fn to(location: &Location, file: &Path) -> Archive {
    Archive {
        location: location.clone(),
        checkpoint: mk_checkpoint(location).await,
        before: OVER,
        to: file.to_owned(),
        now: OVER.plus(Duration::from_secs(60)),
    }
}

async fn move_out(location: &Location, file: &Path) -> Result<Archived, ArchiveError> {
    archive(to(location, file).await, |_, _| ()).await
}

async fn check(location: &Location, archives: &[&Path]) -> Result<VerifyReport, VerifyError> {
    let archives = archives.iter().map(|path| PathBuf::from(*path)).collect();
    verify(Check { location: location.clone(), checkpoint: None, archives }, |_| ()).await
}

#[tokio::test]
async fn what_is_over_goes_and_the_chain_is_checked_across() {
    on_store(async |store| across(store, &store.url().parse().unwrap()).await).await;
}

async fn across(store: &TestStore, location: &Location) {
    let over = prepare(location).await;
    let whole = check(location, &[]).await.unwrap();
    let dir = TempDir::new().unwrap();
    let first = dir.path().join("1.jsonl");
    let second = dir.path().join("2.jsonl");
    let moved = move_out(location, &first).await.unwrap();
    assert_eq!((moved.rows, moved.resumed), (Some((1, over)), false));
    assert!(moved.stays.contains("valid until"), "{}", moved.stays);
    assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o600);

    let rest = check(location, &[]).await.unwrap();
    assert_eq!((rest.unchecked, rest.first, rest.certificates, rest.tip), (over, over + 1, 10, whole.tip));
    let all = check(location, &[&first]).await.unwrap();
    assert_eq!((all.unchecked, all.first, all.tip, &all.ledger), (0, 1, whole.tip, &whole.ledger));
    if let TestStore::Sqlite(dir) = store {
        let (good, message) = checker::check(&[&first, &dir.path().join("ledger.db")], None).await;
        assert!(good, "{message}");
    }

    // The hub still writes, and still has what was not archived.
    let clock = clock();
    let open = hub(location, &clock, 2).await;
    let again = open.ledger.intend(mk_intent(300)).await.unwrap();
    assert!(matches!(again, Intended::Existing(Existing::Signed { .. })), "{again:?}");
    open.close().await;
    let later = Archive {
        before: OVER.plus(Duration::from_secs(1_000_001)),
        now: OVER.plus(Duration::from_secs(2_000_000)),
        ..to(location, &second).await
    };
    let moved = archive(later, |_, _| ()).await.unwrap();
    assert_eq!(moved.rows, Some((over + 1, rest.tip.seq + 1)));
    let all = check(location, &[&first, &second]).await.unwrap();
    assert_eq!((all.unchecked, all.first, all.certificates), (0, 1, 0));
    assert_eq!(rows::number(store, "(SELECT COUNT(*) FROM archives)").await, 2);
    assert_eq!(rows::number(store, "(SELECT COUNT(*) FROM entries)").await, 1);

    assert_eq!(check(location, &[&second]).await.unwrap().unchecked, over);
    let error = check(location, &[&first]).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("row {}: ", over + 1)), "{error}");
    assert!(error.contains("later archive"), "{error}");
    let error = check(location, &[&second, &first]).await.unwrap_err().to_string();
    assert!(error.contains("1.jsonl"), "{error}");
    let altered = fs::read_to_string(&first).unwrap().replacen("cluster1", "cluster2", 1);
    fs::write(&first, altered).unwrap();
    let error = check(location, &[&first, &second]).await.unwrap_err().to_string();
    assert!(error.contains("1.jsonl: row "), "{error}");
    assert!(error.contains("it was altered"), "{error}");
}

#[tokio::test]
async fn the_row_of_the_published_checkpoint_stays_with_all_after_it() {
    on_store(async |store| {
        let location: Location = store.url().parse().unwrap();
        let open = hub(&location, &clock(), 1).await;
        fill(&open, 0..3).await;
        publish(&open, 0..3).await;
        open.ledger.append(Record::Leader, "").await.unwrap();
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("a.jsonl");
        let whole = to(&location, &file).await;
        let seq = whole.checkpoint.seq;
        open.ledger.append(Record::Leader, "").await.unwrap();
        open.close().await;

        let other = Checkpoint { hash: "0".repeat(64), ..whole.checkpoint.clone() };
        let error = archive(Archive { checkpoint: other, ..whole.clone() }, |_, _| ()).await.unwrap_err();
        assert!(matches!(error, ArchiveError::Contradiction(_)), "{error}");
        assert!(!file.exists(), "{error}");

        let moved = archive(whole.clone(), |_, _| ()).await.unwrap();
        assert_eq!(moved.rows, Some((1, seq - 1)));
        assert_eq!(moved.stays, format!("row {seq} is the one that the published checkpoint vouches for"));
        assert_eq!(location.contradicts(&whole.checkpoint).await, Ok(None));
        let check = Check { location, checkpoint: Some(whole.checkpoint), archives: Vec::new() };
        assert_eq!(verify(check, |_| ()).await.unwrap().unchecked, seq - 1);
    })
    .await;
}

#[tokio::test]
async fn what_is_open_or_valid_or_last_stays() {
    let dir = TempDir::new().unwrap();
    let location = sqlite(dir.path());
    let clock = clock();
    let open = hub(&location, &clock, 1).await;
    let file = dir.path().join("a.jsonl");
    open.ledger.intend(mk_intent(1)).await.unwrap();
    open.ledger.append(mk_signed(1), "").await.unwrap();
    let moved = move_out(&location, &file).await.unwrap();
    assert_eq!(moved.rows, Some((1, 3)));
    let moved = move_out(&location, &dir.path().join("b.jsonl")).await.unwrap();
    assert_eq!(moved.rows, None);
    assert!(moved.stays.contains("csr-1, which is still open"), "{}", moved.stays);
    assert!(!dir.path().join("b.jsonl").exists());
    let future = Archive { before: OVER.plus(Duration::from_secs(61)), ..to(&location, &file).await };
    assert!(matches!(archive(future, |_, _| ()).await, Err(ArchiveError::Future(_))));
    let early =
        Archive { before: Timestamp::from_unix(1_700_000_000), ..to(&location, &dir.path().join("b.jsonl")).await };
    let moved = archive(early, |_, _| ()).await.unwrap();
    assert!(moved.rows.is_none(), "{}", moved.stays);
    assert!(moved.stays.starts_with("row 4 was written on 2023"), "{}", moved.stays);
    open.close().await;
}

/// Threads of their own close connections, later than the code that used them ends. Until then, data may still be in
/// the journal, and SQLite would not expect that a test replaces the database's file.
async fn wait_until_closed(database: &Path) {
    let name = database.to_string_lossy().into_owned();
    wait_until(TIMEOUT, "every connection to the database to be closed", async || {
        // Skip a descriptor that was closed in between.
        let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        let mut of_database = open.filter(|path| path.to_string_lossy().starts_with(&name));
        of_database.next().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn crash_leaves_all_in_place_or_same_command_finishes_it() {
    let dir = TempDir::new().unwrap();
    let location = sqlite(dir.path());
    let over = prepare(&location).await;
    let database = dir.path().join("ledger.db");
    let copy = dir.path().join("copy.db");
    wait_until_closed(&database).await;
    fs::copy(&database, &copy).unwrap();
    let back = async || {
        wait_until_closed(&database).await;
        for suffix in ["-wal", "-shm"] {
            // The file does not exist if the last connection was closed properly.
            let _ = fs::remove_file(dir.path().join(format!("ledger.db{suffix}")));
        }
        fs::copy(&copy, &database).unwrap();
    };
    let file = dir.path().join("a.jsonl");
    move_out(&location, &file).await.unwrap();
    let error = move_out(&location, &file).await.unwrap_err().to_string();
    assert!(error.contains(&format!("is a complete archive of the rows 1 to {over}")), "{error}");
    let whole = fs::read(&file).unwrap();

    // The file is written, and nothing is deleted from the ledger yet.
    back().await;
    let error = check(&location, &[&file]).await.unwrap_err().to_string();
    assert!(error.contains("was `certs archive` finished?"), "{error}");
    let moved = move_out(&location, &file).await.unwrap();
    assert_eq!((moved.rows, moved.resumed), (Some((1, over)), true));
    check(&location, &[&file]).await.unwrap();

    // The file is written in part.
    back().await;
    for length in [0, 20, whole.len() / 2] {
        fs::write(&file, &whole[..length]).unwrap();
        let error = move_out(&location, &file).await.unwrap_err().to_string();
        assert!(error.contains("was not finished"), "{error}");
        assert!(error.contains("delete it"), "{error}");
        assert_eq!(fs::metadata(&file).unwrap().len(), length as u64);
    }
    check(&location, &[]).await.unwrap();

    // The file has other content.
    for other in ["# my notes\n".to_owned(), String::from_utf8(whole.clone()).unwrap().replacen("hub-a", "hub-b", 1)] {
        fs::write(&file, &other).unwrap();
        let error = move_out(&location, &file).await.unwrap_err().to_string();
        assert!(error.contains("use another file"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), other);
    }

    // The rows were moved, and the file was damaged after that.
    fs::write(&file, &whole).unwrap();
    move_out(&location, &file).await.unwrap();
    fs::write(&file, &whole[..whole.len() - 5]).unwrap();
    let error = move_out(&location, &file).await.unwrap_err().to_string();
    assert!(error.contains("restore it from a backup"), "{error}");
}

#[tokio::test]
async fn an_archive_that_is_killed_at_any_moment_loses_nothing() {
    let dir = TempDir::new().unwrap();
    let location = sqlite(dir.path());
    let open = hub_with_expired(EXPIRED, &location).await;
    let file = dir.path().join("a.jsonl");
    let before = Clock::default().now().minus(Duration::from_secs(86_400)).to_string();
    let checkpoint = dir.path().join("head.json");
    fs::write(&checkpoint, mk_checkpoint(&location).await.json()).unwrap();
    let mut kills = 0;
    let mut finished = false;
    let mut wait = Duration::from_millis(20);
    while !finished {
        let mut child = start_archive(&before, &file, &location, &checkpoint);
        match tokio::time::timeout(wait, child.wait()).await.map(|status| status.unwrap().success()) {
            // Nothing was moved, and the command says to delete the file; or the last kill came after the last step.
            Ok(false) if check(&location, &[]).await.unwrap().unchecked == 0 => fs::remove_file(&file).unwrap(),
            Ok(false) => finished = true,
            Ok(true) => finished = true,
            Err(_) => {
                child.kill().await.unwrap();
                kills += 1;
            }
        }
        wait += wait / soak(8, 2);
        let left = check(&location, &[]).await.unwrap();
        if left.unchecked == 0 {
            assert_eq!(left.certificates, EXPIRED);
        } else if finished {
            assert_eq!(check(&location, &[&file]).await.unwrap().unchecked, 0);
        }
    }
    assert!(kills > 0);
    open.close().await;
}

/// Several pages of what the command reads and deletes at once.
const EXPIRED: u64 = 1_500;

/// Starts a hub and records this many certificates that have expired since.
async fn hub_with_expired(count: u64, location: &Location) -> Open {
    let clock = Clock::default();
    clock.set_back(Duration::from_secs(400 * 86_400));
    let open = hub(location, &clock, 1).await;
    for n in 0..count / 250 {
        let numbers = n * 250..(n + 1) * 250;
        let work = numbers.clone().map(|n| {
            let ledger = open.ledger.clone();
            let mut intent = mk_intent(n);
            intent.not_after = clock.now();
            tokio::spawn(async move {
                ledger.intend(intent).await.unwrap();
                ledger.append(mk_signed(n), "").await.unwrap();
            })
        });
        for done in work.collect::<Vec<_>>() {
            done.await.unwrap();
        }
        publish(&open, numbers).await;
    }
    open
}

/// Starts `addon-signer certs archive`.
fn start_archive(before: &str, file: &Path, location: &Location, checkpoint: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_addon-signer"))
        .args(["certs", "archive", "--before", before, "--to"])
        .arg(file)
        .arg("--head")
        .arg(checkpoint)
        .args(["--ledger", &location.to_string()])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}
