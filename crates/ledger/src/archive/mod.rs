//! Moves the oldest entries, whose certificates have expired, from the ledger into a file, while its hub runs.
//!
//! The file is complete, on disk and read back before the first row is deleted. Rows are deleted in steps. Each step is
//! one transaction that leaves the ledger whole: no certificate keeps only a part of its rows, and the row of the
//! published checkpoint and all later rows stay. So an auditor with the checkpoint finds its row, and the chain
//! continues from the last archived one. After a crash the same command continues where it stopped.

mod cut;

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::connection::{Connection, PageSize};
use super::error::classify;
use super::evidence::contradiction;
use super::file::{self, FileError};
use super::{LedgerError, Location, schema};
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::entry::{Hash, Tip};
use addon_signer_core::journal::hash_chain::{Chain, Fault, begins};
use addon_signer_core::timestamp::Timestamp;

/// Rows that are read together, if they are not large.
const ROWS: u64 = 1000;

/// What to move, and the destination.
#[derive(Debug, Clone)]
pub struct Archive {
    /// The ledger.
    pub location: Location,
    /// The published checkpoint; its row and all later rows stay.
    pub checkpoint: Checkpoint,
    /// Only what was written and expired before this time.
    pub before: Timestamp,
    /// The file, which is created and never overwritten.
    pub to: PathBuf,
    /// The present time, which is recorded in the ledger.
    pub now: Timestamp,
}

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archived {
    /// The first and the last row in the file; `None` if there was nothing to move, so that no file was made.
    pub rows: Option<(u64, u64)>,
    /// Whether the file was already complete, and only the rest of its rows had to be deleted.
    pub resumed: bool,
    /// Why the rows after it stay.
    pub stays: String,
}

/// Why nothing, or not everything, was moved.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// With a time in the future, certificates that are still valid could be archived.
    #[error("{0} is in the future; give a time in the past")]
    Future(Timestamp),
    /// The file is a finished archive that the ledger knows.
    #[error("{} is a complete archive of the rows {first} to {last}; use another file for later rows", file.display())]
    Done {
        /// The file.
        file: PathBuf,
        /// Its first row.
        first: u64,
        /// Its last row.
        last: u64,
    },
    /// The file is not an archive of the next rows.
    #[error("{} exists, and is not an archive of the next rows of this ledger ({cause}); use another \
             file", file.display())]
    Other {
        /// The file.
        file: PathBuf,
        /// What it contains instead.
        cause: String,
    },
    /// The file is incomplete, and no row depends on it.
    #[error("{} was not finished: {cause}. None of its rows were removed from the ledger: delete it, or use another \
             file", file.display())]
    Unfinished {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        cause: FileError,
    },
    /// The file is damaged, and some rows are nowhere else.
    #[error("{} is damaged: {cause}. Rows up to {through} are nowhere else: restore it from a backup", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        cause: FileError,
        /// The last row that is no longer in the ledger.
        through: u64,
    },
    /// The file cannot be written.
    #[error("{} cannot be written: {cause}; nothing was removed from the ledger", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        cause: String,
    },
    /// The file does not read back as it was written.
    #[error("{} does not read back as it was written: {cause}; nothing was removed from the ledger", file.display())]
    ReadBack {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        cause: FileError,
    },
    /// The ledger does not verify.
    #[error("the ledger does not verify, and nothing was removed from it: {0}")]
    Fault(#[from] Fault),
    /// The ledger is not the one that the checkpoint vouches for.
    #[error(
        "the ledger contradicts the checkpoint, and nothing was removed from it: {0}; see what `certs verify \
         --head FILE` says"
    )]
    Contradiction(String),
    /// Another process archived rows meanwhile.
    #[error("another process archived rows meanwhile; nothing was lost, check both files")]
    Overtaken,
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The store failed. [`archive`] converts this into [`ArchiveError::Ledger`], which names the ledger.
    #[error("the store failed: {0}")]
    Store(#[from] sqlx::Error),
}

/// Moves rows; `progress` gets the number of rows done, and the total.
///
/// # Errors
/// [`ArchiveError`], which tells where the rows are now.
pub async fn archive(archive: Archive, progress: impl Fn(u64, u64)) -> Result<Archived, ArchiveError> {
    if archive.before > archive.now {
        return Err(ArchiveError::Future(archive.before));
    }
    let location = archive.location.clone();
    let mut connection = schema::open_to_archive(&location).await?;
    let moved = archive.run(&mut connection, progress).await;
    moved.map_err(|error| match error {
        ArchiveError::Store(error) => classify(&location, &error).into(),
        other => other,
    })
}

impl Archive {
    async fn run(&self, connection: &mut Connection, progress: impl Fn(u64, u64)) -> Result<Archived, ArchiveError> {
        if let Some(why) = contradiction(connection, &self.checkpoint).await? {
            return Err(ArchiveError::Contradiction(why));
        }
        let floor = Floor::read(connection).await?;
        let through = floor.tip().seq;
        begins(through, first_row(connection).await?)?;
        if self.to.exists() {
            return self.resume(connection, &floor, progress).await;
        }
        let plan = cut::plan(connection, through, self.checkpoint.seq.saturating_sub(1), Some(self.before)).await?;
        let Some(end) = plan.steps.last().copied() else {
            return Ok(Archived { rows: None, resumed: false, stays: plan.stays });
        };
        let tip = self.write(connection, floor.tip(), end, &progress).await?;
        self.read_back(floor.tip(), tip)?;
        self.delete(connection, through, &plan.steps, &progress).await?;
        Ok(Archived { rows: Some((through + 1, end)), resumed: false, stays: plan.stays })
    }

    /// Writes rows up to `end` to the new file, following the chain, and returns only when they are on disk.
    async fn write(
        &self,
        connection: &mut Connection,
        from: Tip,
        end: u64,
        progress: &impl Fn(u64, u64),
    ) -> Result<Tip, ArchiveError> {
        let failed = |error: std::io::Error| ArchiveError::File { file: self.to.clone(), cause: error.to_string() };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.to).map_err(failed)?;
        let written = self.write_to(file, connection, from, end, progress).await;
        if written.is_err() && std::fs::remove_file(&self.to).is_err() {
            tracing::warn!(file = %self.to.display(), "An incomplete archive could not be removed");
        }
        written
    }

    async fn write_to(
        &self,
        file: File,
        connection: &mut Connection,
        from: Tip,
        end: u64,
        progress: &impl Fn(u64, u64),
    ) -> Result<Tip, ArchiveError> {
        let failed = |error: std::io::Error| ArchiveError::File { file: self.to.clone(), cause: error.to_string() };
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let mut chain = Chain::after(from, None);
        let mut size = PageSize::at_most(ROWS);
        while chain.tip().seq < end {
            let after = chain.tip().seq;
            let sql = "SELECT seq, entry, hash FROM entries WHERE seq > $1 AND seq <= $2 ORDER BY seq";
            let range = |count: u64| (sql.to_owned(), vec![after.into(), end.min(after + count).into()]);
            let (rows, _) = connection.page(&mut size, range).await?;
            if rows.is_empty() {
                return Err(ArchiveError::Overtaken);
            }
            for row in &rows {
                chain.follow(row.count(0), row.str(1), row.bytes(2))?;
                writeln!(file, "{}", row.str(1)).map_err(failed)?;
            }
            progress((chain.tip().seq - from.seq) / 2, end - from.seq);
        }
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
        let directory = self.to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        Ok(chain.tip())
    }

    fn read_back(&self, from: Tip, written: Tip) -> Result<(), ArchiveError> {
        let failed = |cause| ArchiveError::ReadBack { file: self.to.clone(), cause };
        let begin = |row| (row == from.seq + 1).then(|| Chain::after(from, None));
        let (_, chain) = file::follow(&self.to, begin, |_| ()).map_err(failed)?;
        if chain.tip() == written { Ok(()) } else { Err(failed(FileError::Cut(chain.tip().seq))) }
    }

    /// Removes the rows of the file from the ledger.
    async fn delete(
        &self,
        connection: &mut Connection,
        through: u64,
        steps: &[u64],
        progress: &impl Fn(u64, u64),
    ) -> Result<(), ArchiveError> {
        let mut before = through;
        let end = steps.last().copied().unwrap_or(through);
        for step in steps.iter().copied() {
            connection.begin_to_archive().await?;
            self.delete_step(connection, before, step).await?;
            connection.command("COMMIT").await?;
            before = step;
            progress((end - through + step - through) / 2, end - through);
        }
        Ok(())
    }

    async fn delete_step(&self, connection: &mut Connection, before: u64, step: u64) -> Result<(), ArchiveError> {
        if Floor::read(connection).await?.tip().seq != before {
            return Err(ArchiveError::Overtaken);
        }
        let file = self.name();
        let sql =
            "INSERT INTO archives (through, hash, file, time) SELECT seq, hash, $2, $3 FROM entries WHERE seq = $1";
        let values = vec![step.into(), file.as_str().into(), self.now.to_string().into()];
        if connection.execute(sql.to_owned(), values).await? != 1 {
            return Err(ArchiveError::Overtaken);
        }
        // The table has one row per file: the last entry of the file that was deleted from the ledger.
        let sql = "DELETE FROM archives WHERE file = $2 AND through < $1";
        connection.execute(sql.to_owned(), vec![step.into(), file.into()]).await?;
        for table in ["certificates", "entries"] {
            connection.execute(format!("DELETE FROM {table} WHERE seq <= $1"), vec![step.into()]).await?;
        }
        Ok(())
    }

    /// Handles an existing file: if it is complete, deletes the rest of its rows; otherwise the error explains what the
    /// file is.
    async fn resume(
        &self,
        connection: &mut Connection,
        floor: &Floor,
        progress: impl Fn(u64, u64),
    ) -> Result<Archived, ArchiveError> {
        let through = floor.tip().seq;
        let begin = |row| floor.before(row).map(|tip| Chain::after(tip, None));
        let (first, chain) = file::follow(&self.to, begin, |_| ()).map_err(|cause| self.explain(floor, cause))?;
        let end = chain.tip().seq;
        let file = self.to.clone();
        if end <= through {
            return Err(ArchiveError::Done { file, first, last: end });
        }
        let sql = "SELECT hash FROM entries WHERE seq = $1".to_owned();
        let rows = connection.rows(sql, vec![end.into()]).await?;
        let same = rows.first().is_some_and(|row| row.bytes(0) == chain.tip().hash.as_bytes());
        let plan = cut::plan(connection, through, end, None).await?;
        if !same || end >= self.checkpoint.seq || plan.steps.last() != Some(&end) {
            let cause = format!("row {end} of the ledger is different, or cannot be archived yet");
            return Err(ArchiveError::Other { file, cause });
        }
        self.delete(connection, through, &plan.steps, &progress).await?;
        let stays = format!("row {} was not in the file", end + 1);
        Ok(Archived { rows: Some((first, end)), resumed: true, stays })
    }

    fn explain(&self, floor: &Floor, cause: FileError) -> ArchiveError {
        let file = self.to.clone();
        let through = floor.tip().seq;
        if floor.files.contains(&self.name()) {
            return ArchiveError::Damaged { file, cause, through };
        }
        match cause {
            FileError::Empty | FileError::Cut(_) => ArchiveError::Unfinished { file, cause },
            other => ArchiveError::Other { file, cause: other.to_string() },
        }
    }

    /// The file's name, as the ledger records it.
    fn name(&self) -> String {
        std::path::absolute(&self.to).unwrap_or_else(|_| self.to.clone()).display().to_string()
    }
}

/// The beginning of the ledger, after its archives.
struct Floor {
    tips: Vec<Tip>,
    files: Vec<String>,
}

impl Floor {
    async fn read(connection: &mut Connection) -> Result<Self, sqlx::Error> {
        let sql = "SELECT through, hash, file FROM archives ORDER BY through".to_owned();
        let rows = connection.rows(sql, Vec::new()).await?;
        let tip = |row: &super::connection::Cells| {
            Some(Tip { seq: row.count(0), hash: Hash::from_bytes(row.bytes(1))?, time: Timestamp::from_unix(0) })
        };
        Ok(Self {
            tips: std::iter::once(Tip::EMPTY).chain(rows.iter().filter_map(tip)).collect(),
            files: rows.iter().map(|row| row.text(2)).collect(),
        })
    }

    fn tip(&self) -> Tip {
        self.tips.last().copied().unwrap_or(Tip::EMPTY)
    }

    fn before(&self, row: u64) -> Option<Tip> {
        self.tips.iter().find(|tip| tip.seq + 1 == row).copied()
    }
}

async fn first_row(connection: &mut Connection) -> Result<Option<u64>, sqlx::Error> {
    let rows = connection.rows("SELECT MIN(seq) FROM entries".to_owned(), Vec::new()).await?;
    Ok(rows.first().filter(|row| row.int(0).is_some()).map(|row| row.count(0)))
}
