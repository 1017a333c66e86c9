//! Checks a whole ledger without any hub: the chain, the published head, the archives, and the index of certificates.
//!
//! All connections see one moment of the ledger, while its hub may go on writing. Pages of rows are read and checked on several
//! connections and joined in order; a page that is not as usual is looked at row by row.

mod locate;
mod page;
mod read;
mod rows;
mod snapshot;
mod tally;

use std::hash::RandomState;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{self, StreamExt};

use super::connection::Connection;
use super::error::classify;
use super::file::{self, FileError};
use super::{LedgerError, Location};
use addon_signer_core::journal::chain::{Chain, Fault};
use addon_signer_core::journal::entry::{Entry, Tip};
use addon_signer_core::journal::head::Head;
use page::{Checked, Range};
use snapshot::Snapshot;
use tally::Tally;

/// Rows of a page, which one connection checks at a time.
const ROWS: u64 = 1024;

/// What to check.
#[derive(Debug, Clone)]
pub struct Check {
    /// The ledger.
    pub location: Location,
    /// The head that it must contain; its signature was checked when it was read.
    pub head: Option<Head>,
    /// Files with the rows that were moved out of it, oldest first.
    pub archives: Vec<PathBuf>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Rows that were checked.
    pub done: u64,
    /// All rows of the ledger.
    pub total: u64,
}

/// What was found to be good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which ledger; empty for one in which nothing was written yet.
    pub ledger: String,
    /// The first row that was checked, in a file or in the ledger.
    pub first: u64,
    /// The last row.
    pub tip: Tip,
    /// Certificates of the index.
    pub certificates: u64,
    /// Rows up to this one are in files and were not checked; 0 for none.
    pub unchecked: u64,
    /// The head, as far as it was looked at.
    pub head: Option<HeadReport>,
}

/// What a head proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadReport {
    /// The head.
    pub head: Head,
    /// Whether the rows that it vouches for were checked: they may be in an archive that was not given.
    pub covers: bool,
    /// Whether the ledger itself says that heads are signed with this key; otherwise somebody has to compare it.
    pub key_is_recorded: bool,
}

/// Why a ledger is not good, or could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A row of the ledger.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A file.
    #[error("the archive {}: {cause}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        cause: FileError,
    },
    /// The files are good, and not those of this ledger.
    #[error("{0}")]
    Archives(String),
    /// The head is of something else.
    #[error("the head proves nothing about this ledger: {0}")]
    Head(String),
    /// The store.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The store, before its ledger is named.
    #[error("the store failed: {0}")]
    Store(#[from] sqlx::Error),
    /// The check did not come to its end.
    #[error("the ledger was not checked: {0}")]
    Unfinished(&'static str),
}

/// What entries say that the check itself needs.
#[derive(Debug, Default)]
struct Notes {
    ledger: Option<String>,
    /// Keys of heads, and from which entry on.
    keys: Vec<(u64, String)>,
}

impl Notes {
    fn take(&mut self, entry: &Entry) {
        match entry.kind.as_str() {
            "opened" if entry.seq == 1 => self.ledger = Some(entry.detail("ledger").to_owned()),
            "head-key" => self.keys.push((entry.seq, entry.detail("key").to_owned())),
            _ => {}
        }
    }
}

/// Checks everything; `progress` is told after each page.
///
/// # Errors
/// [`VerifyError`] names the first bad row.
pub async fn verify(check: Check, progress: impl Fn(Progress)) -> Result<Report, VerifyError> {
    let location = check.location.clone();
    let checked = run(check, progress).await;
    // A store's error is explained where the ledger is known.
    checked.map_err(|error| match error {
        VerifyError::Store(error) => classify(&location, &error).into(),
        other => other,
    })
}

async fn run(check: Check, progress: impl Fn(Progress)) -> Result<Report, VerifyError> {
    let Check { location, head, archives } = check;
    let mut snapshot = Snapshot::take(&location).await?;
    let mut notes = Notes::default();
    let (mut chain, first) = begin(&snapshot, head.as_ref(), &archives, &mut notes)?;
    let from = chain.tip().seq + 1;
    let mut workers = Workers::new(std::mem::take(&mut snapshot.connections));
    let (certificates, tally) = workers.walk(&mut chain, from, snapshot.last, &mut notes, progress).await?;
    let tip = chain.end()?;
    let connection = workers.one()?;
    outside(connection, from, tip.seq).await?;
    if !tally.agrees() {
        locate::first_difference(connection, from, tip.seq).await?;
        return Err(VerifyError::Unfinished("index and entries differ, and no row was found that does"));
    }
    let ledger = notes.ledger.clone().unwrap_or_else(|| snapshot.ledger.clone());
    let unchecked = first - 1;
    let head = head.map(|head| judge_head(head, &ledger, &notes, unchecked)).transpose()?;
    Ok(Report { ledger, first, tip, certificates, unchecked, head })
}

/// The chain before the first row of the ledger, and the first row that is checked at all.
fn begin(
    snapshot: &Snapshot,
    head: Option<&Head>,
    archives: &[PathBuf],
    notes: &mut Notes,
) -> Result<(Chain, u64), VerifyError> {
    let through = snapshot.through();
    let start = |row: u64| {
        let tip = snapshot.tip_before(row)?;
        Some(Chain::after(tip, head.filter(|head| head.seq > tip.seq).cloned()))
    };
    let mut chain: Option<Chain> = None;
    let mut first = through + 1;
    for path in archives {
        let failed = |cause| VerifyError::File { file: path.clone(), cause };
        let begin = |row| chain.clone().or_else(|| start(row));
        let (began, followed) = file::follow(path, begin, |entry| notes.take(entry)).map_err(failed)?;
        let tip = followed.tip();
        match snapshot.archives.iter().find(|archive| archive.0 == tip.seq) {
            Some((_, hash)) if *hash == tip.hash => {}
            _ => {
                return Err(VerifyError::Archives(format!(
                    "the archive {} ends with row {} of hash {}, and the ledger knows no archive that does; is it of this \
                     ledger, and was `certs archive` finished?",
                    path.display(),
                    tip.seq,
                    tip.hash
                )));
            }
        }
        first = first.min(began);
        chain = Some(followed);
    }
    if let Some(chain) = &chain
        && chain.tip().seq != through
    {
        let next = chain.tip().seq + 1;
        return Err(VerifyError::Archives(format!(
            "rows {next} to {through} are in a later archive; give that one too"
        )));
    }
    // Without files the ledger's own word counts for where it begins.
    match chain.or_else(|| start(through + 1)) {
        Some(chain) => Ok((chain, first)),
        None => Err(VerifyError::Archives("the ledger does not say where its archives end".to_owned())),
    }
}

fn judge_head(head: Head, ledger: &str, notes: &Notes, unchecked: u64) -> Result<HeadReport, VerifyError> {
    if head.ledger != ledger {
        return Err(VerifyError::Head(format!("it is of the ledger {}, and this is {ledger}", head.ledger)));
    }
    let known = notes.keys.iter().rev().find(|(seq, _)| *seq <= head.seq);
    match known {
        Some((seq, key)) if *key != head.key => Err(VerifyError::Head(format!(
            "it is signed with the key {}, and since row {seq} heads are signed with {key}",
            head.key
        ))),
        known => Ok(HeadReport { covers: head.seq > unchecked, key_is_recorded: known.is_some(), head }),
    }
}

/// No row of the index is of a time that the ledger does not have.
async fn outside(connection: &mut Connection, first: u64, last: u64) -> Result<(), VerifyError> {
    let sql = "SELECT seq, serial FROM certificates WHERE seq < $1 OR seq > $2 ORDER BY seq LIMIT 1";
    if let Some(row) = connection.rows(sql.to_owned(), vec![first.into(), last.into()]).await?.first() {
        return Err(rows::no_intent(row.count(0), row.str(1)));
    }
    let sql = "SELECT seq FROM unfinished WHERE NOT EXISTS \
               (SELECT 1 FROM certificates WHERE certificates.seq = unfinished.seq) ORDER BY seq LIMIT 1";
    match connection.rows(sql.to_owned(), Vec::new()).await?.first() {
        Some(row) => Err(rows::fault(row.count(0), "it is one of the unfinished, and has no certificate".to_owned())),
        None => Ok(()),
    }
}

const NO_CONNECTION: VerifyError = VerifyError::Unfinished("it has no connection");

/// Connections, and who checks on them.
struct Workers {
    idle: Arc<Mutex<Vec<Connection>>>,
    count: usize,
    /// For what is looked at row by row.
    own: Option<Connection>,
    key: RandomState,
}

impl Workers {
    fn new(mut connections: Vec<Connection>) -> Self {
        let own = connections.pop();
        let count = connections.len();
        Self { idle: Arc::new(Mutex::new(connections)), count, own, key: RandomState::new() }
    }

    fn one(&mut self) -> Result<&mut Connection, VerifyError> {
        self.own.as_mut().ok_or(NO_CONNECTION)
    }

    async fn walk(
        &mut self,
        chain: &mut Chain,
        from: u64,
        last: u64,
        notes: &mut Notes,
        progress: impl Fn(Progress),
    ) -> Result<(u64, Tally), VerifyError> {
        let ranges = (from..=last).step_by(usize::try_from(ROWS).unwrap_or(usize::MAX));
        let ranges = ranges.map(|first| Range { first, last: last.min(first + ROWS - 1) });
        let (idle, key) = (Arc::clone(&self.idle), self.key.clone());
        let check = move |range| {
            let (idle, key) = (Arc::clone(&idle), key.clone());
            async move { (range, tokio::spawn(check_on_one(idle, range, key)).await) }
        };
        let mut pages = stream::iter(ranges).map(check).buffered(self.count);
        let (mut certificates, mut tally) = (0, Tally::default());
        while let Some((range, checked)) = pages.next().await {
            let checked = checked.map_err(|_| VerifyError::Unfinished("a page's check broke off"))??;
            match checked.filter(|checked| chain.join(&checked.link)) {
                Some(checked) => {
                    certificates += checked.certificates;
                    tally.add(checked.tally);
                }
                None => {
                    let connection = self.own.as_mut().ok_or(NO_CONNECTION)?;
                    certificates += rows::follow(connection, range, chain, notes, &self.key, &mut tally).await?;
                }
            }
            progress(Progress { done: range.last + 1 - from, total: last + 1 - from });
        }
        Ok((certificates, tally))
    }
}

/// At most as many of these run as there are connections. The check itself takes a millisecond of a core that does nothing else.
async fn check_on_one(
    idle: Arc<Mutex<Vec<Connection>>>,
    range: Range,
    key: RandomState,
) -> Result<Option<Checked>, sqlx::Error> {
    let connection = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut connection = connection.ok_or(sqlx::Error::PoolTimedOut)?;
    let checked = page::check(&mut connection, range, &key).await;
    idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    checked
}
