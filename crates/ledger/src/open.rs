//! Open rows: certificates that were decided on but not signed, or signed but not known to be published.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::command::{BatchError, LedgerCommand, OpenRow, OpenState};
use super::connection::{Cells, Connection};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::journal::record::Record;
use addon_signer_core::journal::uid::CsrUid;
use addon_signer_core::timestamp::Timestamp;

/// Rows in one answer.
const PAGE: usize = 256;

/// What a batch needs to know about open rows.
#[derive(Default)]
pub(crate) struct Open {
    /// The requested page.
    pub(crate) page: Vec<OpenRow>,
    /// States of the rows that a command wants to settle, by serial number.
    states: HashMap<Serial, OpenState>,
}

impl Open {
    /// Reads what `commands` need. If several ask for a page, all get the page of the first; only one task asks.
    pub(crate) async fn read(connection: &mut Connection, commands: &[LedgerCommand]) -> Result<Self, BatchError> {
        let mut open = Self::default();
        for command in commands {
            match command {
                LedgerCommand::Open { after, before } if open.page.is_empty() => {
                    open.page = page(connection, *after, *before).await?;
                }
                LedgerCommand::Settle(
                    Record::Abandoned { serial, .. }
                    | Record::Unpublished { serial, .. }
                    | Record::Signed { serial, .. },
                ) => {
                    let sql = "SELECT state FROM certificates WHERE serial = $1".to_owned();
                    let rows = connection.rows(sql, vec![serial.to_string().into()]).await?;
                    let state = rows.first().and_then(|row| state(&row.text(0)));
                    open.states.extend(state.map(|state| (*serial, state)));
                }
                _ => {}
            }
        }
        Ok(open)
    }

    /// Whether the record follows from the state that its row has now.
    pub(crate) fn follows(&self, record: &Record) -> bool {
        match record {
            Record::Abandoned { serial, .. } | Record::Signed { serial, .. } => {
                self.states.get(serial) == Some(&OpenState::Intent)
            }
            Record::Unpublished { serial, .. } => self.states.get(serial) == Some(&OpenState::Signed),
            _ => false,
        }
    }
}

/// Open rows after the entry `after` whose intent was recorded before `before`.
async fn page(connection: &mut Connection, after: u64, before: Timestamp) -> Result<Vec<OpenRow>, BatchError> {
    let sql = format!(
        "SELECT c.seq, c.uid, c.request, c.serial, c.state, e.entry FROM unfinished u \
         JOIN certificates c ON c.seq = u.seq LEFT JOIN entries e ON e.seq = u.seq \
         WHERE u.seq > $1 AND c.state IN ('intent', 'signed') ORDER BY u.seq LIMIT {PAGE}"
    );
    let rows = connection.rows(sql, vec![after.into()]).await?;
    // Entries are in the order of their times.
    Ok(rows.iter().take_while(|row| is_before(row, before)).filter_map(read).collect())
}

/// Whether the intent of a row was recorded before `before`. An entry that is in an archive is old.
fn is_before(row: &Cells, before: Timestamp) -> bool {
    // An entry that cannot be read counts as old; `certs verify` reports it.
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

/// The CSRs that a task of this process works on now.
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
