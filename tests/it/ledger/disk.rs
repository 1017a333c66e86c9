//! Disks that are full or read-only. Each test mounts a small file system, which only root can do; without that right
//! it passes at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use addon_signer_ledger::{Health, LedgerError};
use tempfile::TempDir;
use tokio::time::timeout;

use super::kit::RunningWriter;
use super::recorded::Recorded;
use super::{mk_intent, mk_signed};
use test_kit::hub::TIMEOUT;
use test_kit::needed::{Needed, has};
use test_kit::quick::pass;

/// A file system of 1 MiB in memory.
struct Disk {
    dir: TempDir,
}

impl Disk {
    /// Mounts the file system; `None` if this process may not mount.
    fn mount() -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs"], dir.path());
        has(Needed::Mount, mounted).then_some(Self { dir })
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.file("ledger.db").display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn remount(&self, option: &str) {
        assert!(mount(&["-o", &format!("remount,{option}")], self.dir.path()));
    }

    /// Uses all space that is left.
    fn fill(&self) {
        let rest = std::fs::write(self.file("filler"), vec![0; 1 << 20]);
        rest.expect_err("a disk of 1 MiB has no room for as much beside the ledger");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // With `--lazy` the directory is unmounted even if a process still has a file open there.
        let done = Command::new("umount").arg("--lazy").arg(self.dir.path()).status();
        assert!(done.is_ok_and(|status| status.success()), "{} stays mounted", self.dir.path().display());
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    Command::new("mount").args(arguments).arg(at).output().is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn full_disk_is_reported_and_loses_nothing() {
    let Some(disk) = Disk::mount() else { return };
    let running = RunningWriter::start(&disk.url());
    running.issue(0).await;
    disk.fill();
    let mut written = 0;
    let error = loop {
        written += 1;
        assert!(written < 1_000, "the disk is not full");
        let intended = timeout(Duration::from_secs(5), running.ledger.intend(mk_intent(written))).await;
        match intended {
            Ok(Ok(_)) => running.ledger.append(mk_signed(written), "").await.map_or((), drop),
            Ok(Err(error)) => break error,
            Err(_) => break running.down().await,
        }
    };
    assert!(matches!(error, LedgerError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("the disk is full; free some space"), "{error}");

    std::fs::remove_file(disk.file("filler")).unwrap();
    running.writes(9_999).await;
    timeout(TIMEOUT, running.issue(10_000)).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_file_that_is_gone_for_a_while_does_not_end_the_writer() {
    let Some(disk) = Disk::mount() else { return };
    let running = RunningWriter::start(&disk.url());
    running.issue(0).await;
    disk.fill();
    let mut written = 0;
    while running.ledger.intend(mk_intent(written)).await.is_ok() {
        written += 1;
        assert!(written < 1_000, "the disk is not full");
    }
    let database = disk.file("ledger.db");
    let elsewhere = disk.file("elsewhere");
    std::fs::rename(&database, &elsewhere).unwrap();
    // A store that was opened again in between fails at a later write, whose answer may come when it is back.
    let ledger = running.ledger.clone();
    let more = tokio::spawn(async move {
        while ledger.intend(mk_intent(written)).await.is_ok() {
            written += 1;
        }
    });
    let gone = |error: &LedgerError| matches!(error, LedgerError::File { .. });
    running.down_by(gone).await;
    assert!(!database.exists(), "no second ledger was made");
    std::fs::rename(&elsewhere, &database).unwrap();
    std::fs::remove_file(disk.file("filler")).unwrap();
    more.abort();
    running.writes(9_999).await;
    timeout(TIMEOUT, running.issue(10_000)).await.unwrap();
}

/// Opening a ledger on a full disk succeeds, so it says nothing.
#[tokio::test]
async fn a_full_disk_is_up_in_no_sample_until_a_write_succeeds() {
    let Some(disk) = Disk::mount() else { return };
    let running = RunningWriter::start(&disk.url());
    running.issue(0).await;
    running.up().await;
    let mut recorded = Recorded::default();
    recorded.sample(&running);
    recorded.assert_fires(&[("LedgerAway", false)]);
    disk.fill();
    // The store is tried every 30 s while nobody asks.
    pass(Duration::from_secs(31)).await;
    let error = running.down().await;
    assert!(error.to_string().contains("the disk is full; free some space"), "{error}");
    let is_up = || matches!(*running.ledger.health().borrow(), Health::Up { .. });
    for number in 1..40 {
        running.ledger.intend(mk_intent(number)).await.unwrap_err();
        recorded.sample(&running);
        assert!(!is_up(), "after {number} requests");
        pass(Duration::from_millis(250)).await; // it is opened again every second
        assert!(!is_up(), "after {number} requests");
    }
    recorded.assert_fires(&[("LedgerAway", true), ("LedgerDiskFillsUp", true)]);
    std::fs::remove_file(disk.file("filler")).unwrap();
    running.writes(1).await;
    recorded.sample(&running);
    recorded.assert_fires(&[("LedgerAway", false)]);
    running.stop().await;
}

/// Whoever asked in vain has given up: the store is tried again all the same.
#[tokio::test]
async fn a_disk_with_room_again_is_seen_while_nobody_asks() {
    let Some(disk) = Disk::mount() else { return };
    let running = RunningWriter::start(&disk.url());
    running.issue(0).await;
    disk.fill();
    let mut number = 1;
    while running.ledger.intend(mk_intent(number)).await.is_ok() {
        number += 1;
    }
    std::fs::remove_file(disk.file("filler")).unwrap();
    pass(Duration::from_secs(93)).await;
    running.up().await;
    running.stop().await;
}

#[tokio::test]
async fn disk_that_becomes_read_only_is_said_and_waited_for() {
    let Some(disk) = Disk::mount() else { return };
    let running = RunningWriter::start(&disk.url());
    running.issue(0).await;
    running.stop().await;
    disk.remount("ro");
    let error = RunningWriter::start(&disk.url()).ended().await;
    assert!(matches!(error, LedgerError::File { .. }), "{error}");
    assert!(error.to_string().contains("give this process a directory that it may write in"), "{error}");
    disk.remount("rw");
    let running = RunningWriter::start(&disk.url());
    running.issue(1).await;
    running.stop().await;
}
