//! Checks a whole ledger without a hub: the chain, the published checkpoint, the archives, and the index of
//! certificates.
//!
//! One transaction sees a snapshot of the ledger, while its hub may continue to write. Entries and rows of the index
//! are read in the order of their numbers; the error names the first wrong one.

mod index;
mod latest_values;
mod lists;
mod rows;
mod schema_check;

use std::path::PathBuf;

use super::connection::Connection;
use super::error::classify;
use super::file::{self, FileError};
use super::{LedgerError, Location, schema as versions};
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::entry::{Entry, Tip};
use addon_signer_core::journal::hash_chain::{Chain, ChainProblem, Fault};
use index::Index;
use latest_values::LatestValues;
use rows::{Pages, RowPage, Snapshot};
pub use schema_check::SchemaChanges;

/// What to check.
#[derive(Debug, Clone)]
pub struct Check {
    /// The ledger.
    pub location: Location,
    /// The checkpoint that it must contain; its signature was checked when it was read.
    pub checkpoint: Option<Checkpoint>,
    /// Files with the rows that were moved out of it, oldest first.
    pub archives: Vec<PathBuf>,
}

/// The progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Rows that were checked.
    pub done: u64,
    /// All rows of the ledger.
    pub total: u64,
}

/// The result of a check that found no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// The id of the ledger; empty if nothing has been written to it yet.
    pub ledger: String,
    /// The first row that was checked, in a file or in the ledger.
    pub first: u64,
    /// The last row.
    pub tip: Tip,
    /// Certificates of the index.
    pub certificates: u64,
    /// Rows up to this one are in files and were not checked; 0 for none.
    pub unchecked: u64,
    /// What the checkpoint proves, if one was given.
    pub checkpoint: Option<CheckpointReport>,
}

/// What a checkpoint proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointReport {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Whether the ledger records that this key signs checkpoints; otherwise an auditor must compare the key.
    pub key_is_recorded: bool,
}

/// Why a ledger does not verify, or could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A row of the ledger is wrong.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// An archive is wrong.
    #[error("the archive {}: {cause}", file.display())]
    File {
        /// The archive.
        file: PathBuf,
        /// What is wrong with it.
        cause: FileError,
    },
    /// The checkpoint does not belong to this ledger.
    #[error("the checkpoint proves nothing about this ledger: {0}")]
    Checkpoint(String),
    /// The schema is not the one that the migrations make.
    #[error(
        "its schema is not the one that addon-signer makes, so lists may leave certificates out: {changes}; make these \
         parts what they were (\"An altered schema\" in docs/ledger.md), then check again{}",
        rows.as_ref().map_or_else(String::new, |rows| format!(". With this schema: {rows}"))
    )]
    Schema {
        /// What was changed.
        changes: SchemaChanges,
        /// What is wrong with the rows, if they could be read.
        rows: Option<Box<VerifyError>>,
    },
    /// The store's indexes, or its file, contradict its tables.
    #[error("its store is not sound: {0}; rebuild its indexes with REINDEX or restore a backup, then check again")]
    Unsound(String),
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The store failed. [`verify`] converts this into [`VerifyError::Ledger`], which names the ledger.
    #[error("the store failed: {0}")]
    Store(#[from] sqlx::Error),
    /// The check did not finish.
    #[error("the ledger was not checked: {0}")]
    Unfinished(&'static str),
}

/// What the check itself needs from the entries.
struct Recorded {
    latest: LatestValues,
    ledger: Option<String>,
    /// Keys that sign checkpoints, each with the entry from which it applies.
    keys: Vec<(u64, String)>,
}

impl Recorded {
    fn take(&mut self, entry: &Entry) {
        self.latest.follow(entry);
        match entry.kind.as_str() {
            "opened" if entry.seq == 1 => self.ledger = Some(entry.detail("ledger").to_owned()),
            "head-key" => self.keys.push((entry.seq, entry.detail("key").to_owned())),
            _ => {}
        }
    }
}

/// Checks everything; `progress` is called after each page.
///
/// # Errors
/// [`VerifyError`] names the first bad row.
pub async fn verify(check: Check, progress: impl Fn(VerifyProgress)) -> Result<VerifyReport, VerifyError> {
    let location = check.location.clone();
    let checked = run(check, progress).await;
    // The ledger is known here, so its name is added to the store's error.
    checked.map_err(|error| match error {
        VerifyError::Store(error) => classify(&location, &error).into(),
        other => other,
    })
}

async fn run(check: Check, progress: impl Fn(VerifyProgress)) -> Result<VerifyReport, VerifyError> {
    let mut connection = Snapshot::begin(&check.location).await?;
    // Check this first: the tables of another schema may run code that changes what later statements of the session
    // mean.
    let changes = schema_check::changes(&mut connection).await?;
    let checked = check_rows(connection, check, progress).await;
    let Some(changes) = changes else { return checked };
    let rows = match checked.err() {
        // Not a ledger, or that of a newer version.
        Some(error @ VerifyError::Ledger(LedgerError::Foreign { .. } | LedgerError::Newer { .. })) => {
            return Err(error);
        }
        // Another schema is itself why the store may have failed.
        Some(VerifyError::Store(_) | VerifyError::Ledger(_) | VerifyError::Schema { .. }) | None => None,
        Some(error) => Some(Box::new(error)),
    };
    Err(VerifyError::Schema { changes, rows })
}

async fn check_rows(
    mut connection: Connection,
    check: Check,
    progress: impl Fn(VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let Check { checkpoint, archives, location } = check;
    let path = schema_check::path(&mut connection).await?;
    versions::refuse_other_version(&location, &mut connection).await?;
    let snapshot = Snapshot::take(connection).await?;
    let mut notes = Recorded { latest: LatestValues::of_table(&snapshot.latest), ledger: None, keys: Vec::new() };
    let (chain, first) = begin(&snapshot, checkpoint.as_ref(), &archives, &mut notes)?;
    let from = chain.tip().seq + 1;
    let last = snapshot.last;
    let fence = snapshot.fence;
    let counted = snapshot.counted;
    let mut walk = Walk { chain, notes, index: Index::new(last) };
    let mut pages = snapshot.read(from);
    let found = walk
        .follow(&mut pages, |seq| {
            progress(VerifyProgress { done: (seq + 1).saturating_sub(from), total: (last + 1).saturating_sub(from) })
        })
        .await;
    let mut connection = pages.end().await?;
    if let Some(entry) = found? {
        return Err(index::unexpected(&mut connection, &entry).await?.into());
    }
    let tip = walk.chain.end()?;
    walk.chain.is_fenced(fence)?;
    walk.index.end()?;
    walk.notes.latest.compare(first - 1)?;
    index::check_unfinished(&mut connection).await?;
    let Walk { notes, index, .. } = walk;
    check_store(&mut connection, &index, counted, (last + 1).saturating_sub(from)).await?;
    if let Some(changes) = path.changes(&schema_check::path(&mut connection).await?) {
        return Err(VerifyError::Schema { changes, rows: None });
    }
    let ledger = notes.ledger.clone().unwrap_or_else(|| notes.latest.ledger.clone());
    let unchecked = first - 1;
    let checkpoint =
        checkpoint.map(|checkpoint| judge_checkpoint(checkpoint, &ledger, &notes, unchecked)).transpose()?;
    Ok(VerifyReport { ledger, first, tip, certificates: index.certificates, unchecked, checkpoint })
}

/// Checks that no index hides a row: as many rows were read as exist, and lists return all of them.
async fn check_store(
    connection: &mut Connection,
    index: &Index,
    counted: Option<[u64; 2]>,
    entries: u64,
) -> Result<(), VerifyError> {
    let read = [entries, index.certificates];
    if let Some(there) = counted.filter(|there| *there != read) {
        return Err(VerifyError::Unsound(format!(
            "it has {} entries and {} certificates, and its primary keys lead to {} and {}",
            there[0], there[1], read[0], read[1]
        )));
    }
    index.lists.compare(connection).await?;
    if let Connection::Sqlite(_) = connection {
        let rows = connection.rows("PRAGMA integrity_check(1)".to_owned(), Vec::new()).await?;
        let verdict = rows.first().map_or("", |row| row.str(0));
        if verdict != "ok" {
            return Err(VerifyError::Unsound(format!("SQLite's integrity_check says {verdict:?}")));
        }
    }
    Ok(())
}

/// The state of a check on its way through the ledger.
struct Walk {
    chain: Chain,
    notes: Recorded,
    index: Index,
}

impl Walk {
    /// Checks all pages. Returns the first entry, if any, that signs or ends a certificate although no index row
    /// records that.
    async fn follow(&mut self, pages: &mut Pages, progress: impl Fn(u64)) -> Result<Option<Entry>, Fault> {
        while let Some(page) = pages.next().await {
            if let Some(entry) = self.follow_page(page)? {
                return Ok(Some(entry));
            }
            progress(self.chain.tip().seq);
        }
        Ok(None)
    }

    fn follow_page(&mut self, page: RowPage) -> Result<Option<Entry>, Fault> {
        self.index.add(page.index);
        for row in &page.entries {
            let entry = self.chain.follow(row.count(0), row.str(1), row.bytes(2))?;
            self.notes.take(&entry);
            if !self.index.follow(&entry)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// Checks the archives. Returns the chain before the first row of the ledger, and the number of the first row that is
/// checked.
fn begin(
    snapshot: &Snapshot,
    checkpoint: Option<&Checkpoint>,
    archives: &[PathBuf],
    notes: &mut Recorded,
) -> Result<(Chain, u64), VerifyError> {
    snapshot.check_archives()?;
    let through = snapshot.through();
    let start = |row: u64| Some(Chain::after(snapshot.tip_before(row)?, checkpoint.cloned()));
    let mut chain: Option<Chain> = None;
    let mut first = through + 1;
    for path in archives {
        let failed = |cause| VerifyError::File { file: path.clone(), cause };
        let begin = |row| chain.clone().or_else(|| start(row));
        let (began, followed) = file::follow(path, begin, |entry| notes.take(entry)).map_err(failed)?;
        let tip = followed.tip();
        if snapshot.archived(tip.seq) != Some(tip.hash) {
            return Err(failed(ChainProblem::NoArchive.at(tip.seq).into()));
        }
        first = first.min(began);
        chain = Some(followed);
    }
    // Without archives, the ledger itself records where it begins.
    let chain = chain.or_else(|| start(through + 1)).unwrap_or_else(|| Chain::after(Tip::EMPTY, checkpoint.cloned()));
    match chain.tip().seq {
        seq if seq < through => Err(ChainProblem::Later(through).at(seq + 1).into()),
        _ => Ok((chain, first)),
    }
}

fn judge_checkpoint(
    checkpoint: Checkpoint,
    ledger: &str,
    notes: &Recorded,
    unchecked: u64,
) -> Result<CheckpointReport, VerifyError> {
    let nothing = |why: String| Err(VerifyError::Checkpoint(why));
    if checkpoint.ledger != ledger {
        return nothing(format!("it belongs to the ledger {}, and this is {ledger}", checkpoint.ledger));
    }
    let key = &checkpoint.key;
    match notes.keys.iter().rev().find(|(seq, _)| *seq <= checkpoint.seq) {
        Some((seq, named)) if named != key => {
            nothing(format!("it is signed with the key {key}, and since row {seq} checkpoints are signed with {named}"))
        }
        None if unchecked == 0 => nothing(format!("it is signed with the key {key}, which the ledger does not name")),
        named => Ok(CheckpointReport { key_is_recorded: named.is_some(), checkpoint }),
    }
}
