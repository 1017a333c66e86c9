//! The one task that writes. Commands that arrive while a transaction is being committed share the next one. A command
//! that arrives alone is written at once.

use std::collections::HashSet;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

mod folding;
mod health;
mod transaction;

use folding::Folding;
use health::QUIET;
use transaction::{Commit, commit, new_id, read_id, read_tip};

use super::batch::{self, Author};
use super::command::{BatchError, LedgerCommand, LedgerOutcome};
use super::connection::Connection;
use super::error::classify;
use super::handle::{Health, Job, Ledger};
use super::lock::{self, FileLock};
use super::{LedgerError, LedgerMetrics, Location, schema};
use addon_signer_core::journal::entry::Tip;
use addon_signer_core::journal::record::Record;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;

/// Largest number of commands in one transaction.
const BATCH: usize = 256;
/// Largest number of waiting commands. Callers with further ones wait.
const QUEUE: usize = 1024;
/// Timeout of a transaction.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How soon a failed store is reopened.
const RETRY: Duration = Duration::from_secs(1);
/// How long a note is held back, so that it can share a transaction.
const NOTES: Duration = Duration::from_millis(500);
/// How far the clock may be behind the last entry without a warning.
const CLOCK_STEP: Duration = Duration::from_secs(60);

/// The settings of the writer.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// The ledger.
    pub location: Location,
    /// The name of this process.
    pub replica: String,
    /// The time.
    pub clock: Clock,
    /// How long transactions take.
    pub metrics: LedgerMetrics,
}

/// The writing task, before it runs.
pub struct LedgerWriter {
    options: WriterOptions,
    /// The epoch of the Lease that this process holds.
    epoch: u64,
    jobs: mpsc::Receiver<Job>,
    health: watch::Sender<Health>,
    store: Option<OpenLedger>,
    /// Held for as long as the writer lives, even while the store does not answer.
    lock: Option<FileLock>,
    /// The ledger that this process has written, to compare with a store that is available again.
    written: Option<DurableTip>,
    retry_at: Instant,
    /// When an open store is tried next.
    dry_run_at: Instant,
    /// When a command was last refused, after a write had failed.
    refused: Option<Instant>,
}

/// A ledger's id, and its last entry that is known to be durable.
#[derive(Debug, Clone)]
struct DurableTip {
    ledger: String,
    tip: Tip,
}

/// An open ledger.
struct OpenLedger {
    connection: Connection,
    ledger: String,
    tip: Tip,
    folding: Folding,
    /// Whether the clock was last seen behind the last entry, so that the warning is logged once.
    clock_behind: bool,
}

impl LedgerWriter {
    /// A writer and its handle. Nothing is opened before it runs.
    pub fn new(options: WriterOptions) -> (Self, Ledger) {
        let (sender, jobs) = mpsc::channel(QUEUE);
        let (health, watched) = watch::channel(Health::Starting);
        let now = Instant::now();
        let writer = Self {
            options,
            epoch: 0,
            jobs,
            health,
            store: None,
            lock: None,
            written: None,
            retry_at: now,
            dry_run_at: now,
            refused: None,
        };
        (writer, Ledger::new(sender, watched))
    }

    /// Where it writes.
    pub fn location(&self) -> Location {
        self.options.location.clone()
    }

    /// Writes as the leader of `epoch` until every handle is dropped. A ledger with a later epoch refuses the writer.
    ///
    /// # Errors
    /// An error that does not resolve by itself: another program's file, a later schema, damage, a later epoch.
    pub async fn run(mut self, epoch: u64) -> Result<(), LedgerError> {
        self.epoch = epoch;
        let mut waiting: Vec<Job> = Vec::new();
        loop {
            if self.store.is_none() && Instant::now() >= self.retry_at {
                self.open().await?;
            }
            if self.store.is_some() && Instant::now() >= self.dry_run_at {
                self.try_to_write().await?;
            }
            let Some(more) = self.gather(&mut waiting).await else { break };
            if !more && waiting.is_empty() {
                continue;
            }
            let batch = take_batch(&mut waiting);
            self.write(batch).await?;
        }
        self.close().await;
        Ok(())
    }

    /// Waits for commands. `None` if every handle was dropped; `Some(false)` when it is time to open or to try the
    /// store.
    async fn gather(&mut self, waiting: &mut Vec<Job>) -> Option<bool> {
        let mut deadline = Instant::now() + NOTES;
        while waiting.iter().all(|job| job.reply.is_none()) {
            let idle = waiting.is_empty();
            let due = if self.store.is_none() { self.retry_at } else { self.dry_run_at };
            let wake = if idle { due } else { deadline.min(due) };
            tokio::select! {
                job = self.jobs.recv() => match job {
                    Some(job) => {
                        if idle { deadline = Instant::now() + NOTES; }
                        waiting.push(job);
                    }
                    None if idle => return None,
                    None => break,
                },
                () = sleep_until(wake) => return Some(!idle),
            }
        }
        while waiting.len() < BATCH {
            match self.jobs.try_recv() {
                Ok(job) => waiting.push(job),
                Err(_) => break,
            }
        }
        Some(true)
    }

    async fn open(&mut self) -> Result<(), LedgerError> {
        match self.try_open().await {
            Ok(store) => {
                self.written = Some(DurableTip { ledger: store.ledger.clone(), tip: store.tip });
                self.store = Some(store);
                self.dry_run_at = self.refused.map_or_else(Instant::now, |refused| refused + QUIET);
                Ok(())
            }
            Err(error) if self.may_pass(&error) => {
                self.fail(error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn try_open(&mut self) -> Result<OpenLedger, LedgerError> {
        let location = self.options.location.clone();
        if let (Location::Sqlite(path), None) = (&location, &self.lock) {
            self.lock = Some(lock::take(path, &self.options.replica)?);
        }
        let mut connection = match self.written {
            None => schema::open(&location, TIMEOUT).await?,
            Some(_) => schema::open_again(&location, TIMEOUT).await?,
        };
        let taken = timeout(TIMEOUT, self.take_over(&mut connection)).await;
        let taken = taken.unwrap_or_else(|_| Err(BatchError::Store(sqlx::Error::PoolTimedOut)));
        let (ledger, tip) = taken.map_err(|error| self.explain(error))?;
        let folding = Folding::new(&location, tip.seq);
        Ok(OpenLedger { connection, ledger, tip, folding, clock_behind: false })
    }

    /// Raises the fence, so that earlier leaders can no longer write, and records in the chain that this process writes
    /// from here on.
    async fn take_over(&self, connection: &mut Connection) -> Result<(String, Tip), BatchError> {
        connection.begin().await?;
        let author = self.author();
        let before = connection.rows("SELECT epoch, replica FROM fence WHERE id = 1".to_owned(), Vec::new()).await?;
        batch::fence(connection, &author).await?;
        let tip = read_tip(connection).await?;
        if let Some(written) = &self.written {
            written.is_kept(connection, tip).await?;
        }
        let mut commands = Vec::new();
        if tip == Tip::EMPTY {
            commands.push(Record::Opened { ledger: new_id()? });
        }
        let continued =
            before.first().is_some_and(|row| (row.count(0), row.text(1)) == (author.epoch, author.replica.clone()));
        if !continued || tip == Tip::EMPTY {
            commands.push(Record::Leader);
        }
        let commands: Vec<_> =
            commands.into_iter().map(|record| LedgerCommand::Change { record, actor: String::new() }).collect();
        let (tip, _) = batch::apply(connection, &author, tip, &commands).await?;
        let ledger = read_id(connection).await?;
        connection.command("COMMIT").await?;
        Ok((ledger, tip))
    }

    fn author(&self) -> Author {
        Author { replica: self.options.replica.clone(), epoch: self.epoch, now: self.options.clock.now() }
    }

    /// Writes one batch and answers its callers, after it is certain whether the batch is durable.
    async fn write(&mut self, jobs: Vec<Job>) -> Result<(), LedgerError> {
        let author = self.author();
        let Some(store) = &mut self.store else {
            self.refused = self.refused.map(|_| Instant::now());
            let error = match &*self.health.borrow() {
                Health::Down(error) => error.clone(),
                Health::Starting | Health::Up { .. } => LedgerError::Stopped,
            };
            answer_all(jobs, &error);
            return Ok(());
        };
        let commands: Vec<_> = jobs.iter().map(|job| job.command.clone()).collect();
        let before = store.tip;
        store.check_clock(author.now);
        let begun = Instant::now();
        match commit(&mut store.connection, &author, before, &commands, &self.options.location).await {
            Commit::Durable(tip, outcomes) => {
                self.options.metrics.committed(begun.elapsed());
                store.tip = tip;
                answer_each(jobs, outcomes);
                store.folding.after_commit(tip.seq, &mut store.connection).await;
                self.succeeded();
                Ok(())
            }
            Commit::Failed(error) => {
                self.refused = Some(Instant::now());
                let error = self.explain(error);
                answer_all(jobs, &error);
                self.failed(error)
            }
            Commit::Unknown { would_be, outcomes, cause } => {
                self.refused = Some(Instant::now()); // before it is opened again
                if self.was_committed(before, would_be, cause.clone()).await? {
                    answer_each(jobs, outcomes);
                    self.succeeded();
                } else {
                    answer_all(jobs, &cause);
                }
                Ok(())
            }
        }
    }

    /// Determines whether a transaction was committed whose response to COMMIT was lost: reopens the ledger, with
    /// retries, and compares its tip.
    async fn was_committed(&mut self, before: Tip, would_be: Tip, cause: LedgerError) -> Result<bool, LedgerError> {
        self.fail(cause);
        while self.store.is_none() {
            sleep_until(self.retry_at).await;
            self.open().await?;
        }
        let found = self.store.as_ref().map_or(Tip::EMPTY, |store| store.tip);
        info!(
            before = before.seq,
            would_be = would_be.seq,
            found = found.seq,
            "Determined whether the transaction was committed"
        );
        // The same leader adds no entry when it opens the ledger again, so the tip must be one of these two.
        match found {
            found if found == would_be => Ok(true),
            found if found == before => Ok(false),
            _ => Err(LedgerError::Damaged {
                ledger: self.options.location.to_string(),
                cause: format!("another process wrote row {} of it", found.seq),
            }),
        }
    }

    fn explain(&self, error: BatchError) -> LedgerError {
        let ledger = self.options.location.to_string();
        match error {
            BatchError::Store(error) => classify(&self.options.location, &error),
            BatchError::Fenced { theirs, replica } => LedgerError::Fenced { ours: self.epoch, theirs, replica },
            BatchError::Inconsistent(cause) => LedgerError::Damaged { ledger, cause },
        }
    }

    async fn close(&mut self) {
        let Some(mut store) = self.store.take() else { return };
        store.folding.end().await;
        if let Err(error) = store.connection.close().await {
            warn!(%error, "Could not close the ledger; everything in it is durable");
        }
    }
}

impl DurableTip {
    /// Checks that a store that was unavailable still has everything that it had confirmed: it may be a copy that lags
    /// behind, as after a failover, or a new file on another disk. This process knows more than such a ledger, so it
    /// must not continue it. A restart compares everything.
    async fn is_kept(&self, connection: &mut Connection, found: Tip) -> Result<(), BatchError> {
        let is_behind = found.seq < self.tip.seq || found.seq == self.tip.seq && found.hash != self.tip.hash;
        if !is_behind && read_id(connection).await? == self.ledger {
            return Ok(());
        }
        Err(BatchError::Inconsistent(format!(
            "it came back as a different ledger or without its last rows: this process wrote row {}, and now it has {}",
            self.tip.seq, found.seq
        )))
    }
}

impl OpenLedger {
    /// Warns if the clock is behind. New entries keep the time of the last one until the clock has passed it
    /// (`batch::apply`).
    fn check_clock(&mut self, now: Timestamp) {
        let behind = now.until(self.tip.time) > CLOCK_STEP;
        if behind && !self.clock_behind {
            warn!(clock = %now, last = %self.tip.time, "The clock is behind the last entry of the ledger");
        }
        self.clock_behind = behind;
    }
}

/// The next commands to write together. A command that depends on an earlier record of its CSR must see that
/// record, so the two do not share a transaction.
fn take_batch(waiting: &mut Vec<Job>) -> Vec<Job> {
    let mut uids = HashSet::new();
    let together = waiting.iter().take_while(|job| match &job.command {
        LedgerCommand::Intend(intent) => uids.insert(intent.uid.clone()),
        LedgerCommand::Close(record) => record.uid().is_some_and(|uid| uids.insert(uid.clone())),
        LedgerCommand::Append { record, .. } => {
            uids.extend(record.uid().cloned());
            true
        }
        _ => true,
    });
    let together = together.count();
    waiting.drain(..together).collect()
}

fn answer_each(jobs: Vec<Job>, outcomes: Vec<LedgerOutcome>) {
    for (job, outcome) in jobs.into_iter().zip(outcomes) {
        // The caller may no longer wait; what was written stays.
        let _ = job.reply.map(|reply| reply.send(Ok(outcome)));
    }
}

fn answer_all(jobs: Vec<Job>, error: &LedgerError) {
    for job in jobs {
        // The caller may no longer wait.
        let _ = job.reply.map(|reply| reply.send(Err(error.clone())));
    }
}
