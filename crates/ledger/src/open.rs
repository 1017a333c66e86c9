//! Open rows: intents without a signed certificate, and signed certificates that are not known to be published.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::command::{BatchError, LedgerCommand};
use super::connection::{Cells, Connection};
use super::{Ledger, LedgerError};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::CsrUid;
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::journal::record::Record;
use addon_signer_core::timestamp::Timestamp;

/// Rows on one page.
const PAGE: usize = 256;

/// The states of the rows that a batch wants to close, by serial number.
pub(crate) struct OpenStates(HashMap<Serial, OpenState>);

impl OpenStates {
    /// Reads what `commands` need.
    pub(crate) async fn read(connection: &mut Connection, commands: &[LedgerCommand]) -> Result<Self, BatchError> {
        let mut states = HashMap::new();
        for command in commands {
            if let LedgerCommand::Close(
                Record::Abandoned { serial, .. } | Record::Unpublished { serial, .. } | Record::Signed { serial, .. },
            ) = command
            {
                let sql = "SELECT state FROM certificates WHERE serial = $1".to_owned();
                let rows = connection.rows(sql, vec![serial.to_string().into()]).await?;
                let state = rows.first().and_then(|row| state(&row.text(0)));
                states.extend(state.map(|state| (*serial, state)));
            }
        }
        Ok(Self(states))
    }

    /// Whether the record may follow the present state of its row.
    pub(crate) fn allow(&self, record: &Record) -> bool {
        match record {
            Record::Abandoned { serial, .. } | Record::Signed { serial, .. } => {
                self.0.get(serial) == Some(&OpenState::Intent)
            }
            Record::Unpublished { serial, .. } => self.0.get(serial) == Some(&OpenState::Signed),
            _ => false,
        }
    }
}

/// The state of an open row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenState {
    /// The intent is recorded, but nothing is signed yet.
    Intent,
    /// The certificate is signed, but not known to be published.
    Signed,
}

/// A row with an intent but no signed certificate, or with a signed certificate that is not known to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRow {
    /// The entry of its intent.
    pub seq: u64,
    /// The UID of the CSR.
    pub uid: CsrUid,
    /// The name of the CSR.
    pub request: String,
    /// The serial number of the intent; `None` if it cannot be read, because the ledger was altered.
    pub serial: Option<Serial>,
    /// SHA-256 over the bytes to be signed, in hexadecimal; empty if the entry of the intent cannot be read.
    pub tbs: String,
    /// Its state.
    pub state: OpenState,
}

impl Ledger {
    /// A page of open rows after the entry `after` whose intent was recorded before `before`, in their order. It is
    /// empty if there are no more.
    pub async fn open_rows(&self, after: u64, before: Timestamp) -> Result<Vec<OpenRow>, LedgerError> {
        let sql = format!(
            "SELECT c.seq, c.uid, c.request, c.serial, c.state, e.entry FROM unfinished u \
             JOIN certificates c ON c.seq = u.seq LEFT JOIN entries e ON e.seq = u.seq \
             WHERE u.seq > $1 AND c.state IN ('intent', 'signed') ORDER BY u.seq LIMIT {PAGE}"
        );
        let rows = self.rows(sql, vec![after.into()]).await?;
        // Entries are ordered by time.
        Ok(rows.iter().take_while(|row| is_before(row, before)).filter_map(read).collect())
    }
}

/// Whether the intent of a row was recorded before `before`. An entry that is in an archive is old.
fn is_before(row: &Cells, before: Timestamp) -> bool {
    // An unreadable entry counts as old; `certs verify` reports it.
    let entry = Entry::parse(&row.text(5)).ok();
    entry.and_then(|entry| Timestamp::from_rfc3339(&entry.time)).is_none_or(|time| time < before)
}

fn read(row: &Cells) -> Option<OpenRow> {
    let state = state(&row.text(4))?;
    let serial = Serial::from_hex(&row.text(3));
    let tbs = Entry::parse(row.str(5)).map(|entry| entry.detail("tbs").to_owned()).unwrap_or_default();
    Some(OpenRow { seq: row.count(0), uid: row.text(1).as_str().into(), request: row.text(2), serial, tbs, state })
}

fn state(name: &str) -> Option<OpenState> {
    match name {
        "intent" => Some(OpenState::Intent),
        "signed" => Some(OpenState::Signed),
        _ => None,
    }
}

/// The CSRs that tasks of this process work on. The signer and recovery lock a CSR here, so that neither judges it by
/// what the other is just changing.
#[derive(Debug, Clone, Default)]
pub(crate) struct CsrLocks(Arc<Mutex<HashSet<CsrUid>>>);

/// The right to work on a CSR; one task has it at a time.
#[derive(Debug)]
pub struct CsrLock {
    locks: CsrLocks,
    uid: CsrUid,
}

impl CsrLocks {
    /// `None` while another task holds the CSR.
    pub(crate) fn take(&self, uid: CsrUid) -> Option<CsrLock> {
        let taken = self.0.lock().insert(uid.clone());
        taken.then(|| CsrLock { locks: self.clone(), uid })
    }
}

impl Drop for CsrLock {
    fn drop(&mut self) {
        self.locks.0.lock().remove(&self.uid);
    }
}
