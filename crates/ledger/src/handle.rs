//! The handle by which the rest of the process sends commands to the writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OnceCell, mpsc, oneshot, watch};

use super::LedgerError;
use super::command::{CertificateUse, LedgerCommand, LedgerOutcome};
use super::open::{CsrLock, CsrLocks};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::CsrUid;
use addon_signer_core::journal::entry::Tip;
use addon_signer_core::journal::record::{Intended, Intent, Record};
use addon_signer_core::timestamp::Timestamp;

/// Whether the ledger can be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It is being opened.
    Starting,
    /// The last transaction is durable.
    Up {
        /// Which ledger it is.
        ledger: String,
        /// Its last entry.
        tip: Tip,
    },
    /// The last attempt failed; earlier entries are kept.
    Down(LedgerError),
}

/// One command, and the receiver of its outcome.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) command: LedgerCommand,
    /// `None` for a note, whose sender does not wait for the outcome.
    pub(crate) reply: Option<oneshot::Sender<Result<LedgerOutcome, LedgerError>>>,
}

/// A handle to write to the ledger. A method returns `Ok` only once its record is durable, unless it is documented
/// otherwise.
#[derive(Debug, Clone)]
pub struct Ledger {
    jobs: mpsc::Sender<Job>,
    health: watch::Receiver<Health>,
    locks: CsrLocks,
    /// The cached result of [`Self::first_ends`].
    pub(super) ends: Arc<OnceCell<BTreeMap<AuthorityId, Timestamp>>>,
}

impl Ledger {
    pub(super) fn new(jobs: mpsc::Sender<Job>, health: watch::Receiver<Health>) -> Self {
        Self { jobs, health, locks: CsrLocks::default(), ends: Arc::default() }
    }

    /// Whether the ledger can be written to.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Records the intent to sign a certificate, unless its CSR already has a certificate or an intent.
    ///
    /// # Errors
    /// [`LedgerError`]; nothing may be signed then.
    pub async fn intend(&self, intent: Intent) -> Result<Intended, LedgerError> {
        match self.ask(LedgerCommand::Intend(Box::new(intent))).await? {
            LedgerOutcome::Existing(existing) => Ok(Intended::Existing(existing)),
            LedgerOutcome::Done | LedgerOutcome::Latest(_) | LedgerOutcome::Rows(_) => Ok(Intended::Recorded),
        }
    }

    /// Records a decision.
    ///
    /// # Errors
    /// [`LedgerError`]; the decision may not take effect then.
    pub async fn append(&self, record: Record, actor: &str) -> Result<(), LedgerError> {
        self.ask(LedgerCommand::Append { record, actor: actor.to_owned() }).await.map(drop)
    }

    /// Records a state, unless it is already the latest recorded one.
    pub async fn change(&self, record: Record, actor: &str) -> Result<(), LedgerError> {
        self.ask(LedgerCommand::Change { record, actor: actor.to_owned() }).await.map(drop)
    }

    /// The latest recorded value of each name of a topic ([`Record::topic`]).
    pub async fn latest(&self, topic: &'static str) -> Result<BTreeMap<String, String>, LedgerError> {
        match self.ask(LedgerCommand::Latest { topic }).await? {
            LedgerOutcome::Latest(latest) => Ok(latest),
            _ => Ok(BTreeMap::new()),
        }
    }

    /// The right to work on a CSR; `None` while another task of this process holds it.
    pub fn lock(&self, uid: CsrUid) -> Option<CsrLock> {
        self.locks.take(uid)
    }

    /// Closes an open row: records that its intent was abandoned, that its certificate could not be published, or the
    /// certificate itself. Does nothing if the state of the row has changed meanwhile.
    pub async fn close(&self, record: Record) -> Result<(), LedgerError> {
        self.ask(LedgerCommand::Close(record)).await.map(drop)
    }

    /// Notes that a certificate was published. Nothing waits for the note: if it is lost, recovery finds the
    /// certificate on the CSR.
    pub async fn published(&self, serial: Serial, at: Timestamp) {
        self.tell(LedgerCommand::Published { serials: vec![serial], at }).await;
    }

    /// Notes which certificates were used. Nothing waits for the note, and the uses of a minute may be lost.
    pub async fn seen(&self, seen: Vec<CertificateUse>) {
        if !seen.is_empty() {
            self.tell(LedgerCommand::Seen(seen)).await;
        }
    }

    pub(super) async fn ask(&self, command: LedgerCommand) -> Result<LedgerOutcome, LedgerError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job { command, reply: Some(reply) }).await.map_err(|_| LedgerError::Stopped)?;
        answer.await.map_err(|_| LedgerError::Stopped)?
    }

    async fn tell(&self, command: LedgerCommand) {
        if self.jobs.send(Job { command, reply: None }).await.is_err() {
            tracing::debug!("A note was lost, because the writer of the ledger has ended");
        }
    }
}
