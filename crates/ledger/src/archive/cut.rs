//! Finds the entries that can be archived: the longest run, from the first entry, whose certificates have all expired.
//! The run is cut into steps, each of which leaves a ledger that can be checked.

use crate::connection::{Cells, Connection};
use addon_signer_core::journal::CertificateState;
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::timestamp::Timestamp;

/// Approximate number of rows in one transaction. The hub waits for it.
const STEP: u64 = 5000;
/// Rows of the index that are read together.
const ROWS: u64 = 5000;

/// Which rows can be archived, and why the rows after them stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    /// The last row of each step.
    pub(super) steps: Vec<u64>,
    /// One sentence.
    pub(super) stays: String,
}

/// Plans to move rows after `through`, up to row `to` at most. With `before`, only rows that were written, and whose
/// certificates expired, before that time.
pub(super) async fn plan(
    connection: &mut Connection,
    through: u64,
    to: u64,
    before: Option<Timestamp>,
) -> Result<Cut, sqlx::Error> {
    let mut stays = format!("row {} is the one that the published checkpoint vouches for", to + 1);
    let mut to = to;
    if let Some(before) = before {
        let older = written_before(connection, through, to, before).await?;
        if older < to {
            (to, stays) = (older, format!("row {} was written on {before} or later", older + 1));
        }
    }
    let mut cuts = Cuts { last_entry: 0, best: through, steps: Vec::new(), begun: through };
    let mut after = through;
    loop {
        let sql = format!(
            "SELECT seq, state, not_after, signed_seq, ended_seq, serial, request FROM certificates \
             WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT {ROWS}"
        );
        let rows = connection.rows(sql, vec![after.into(), to.into()]).await?;
        let Some(last) = rows.last() else { break };
        after = last.count(0);
        for row in &rows {
            cuts.offer(row.count(0) - 1);
            if let Some(reason) = keeps(row, before) {
                return Ok(cuts.plan(reason));
            }
            cuts.last_entry = cuts.last_entry.max(row.count(3)).max(row.count(4));
        }
    }
    cuts.offer(to);
    Ok(cuts.plan(stays))
}

/// Why a certificate stays, if it must.
fn keeps(row: &Cells, before: Option<Timestamp>) -> Option<String> {
    let seq = row.count(0);
    let not_after = Timestamp::from_unix(row.int(2).unwrap_or(i64::MAX));
    let state: Option<CertificateState> = row.str(1).parse().ok(); // unknown: it stays, and `certs verify` reports it
    match state {
        None | Some(CertificateState::Intent | CertificateState::Signed) => Some(format!(
            "row {seq} is about the CSR {}, which is still open; a running hub closes it if it can read its \
             serial number",
            row.str(6)
        )),
        Some(CertificateState::Published | CertificateState::Unpublished)
            if before.is_some_and(|before| not_after >= before) =>
        {
            Some(format!("row {seq} is about the certificate {}, which is valid until {not_after}", row.str(5)))
        }
        Some(_) => None,
    }
}

/// Finds rows at which the ledger can be cut: no later entry is about a certificate with an earlier intent.
struct Cuts {
    /// The last entry about the certificates so far.
    last_entry: u64,
    best: u64,
    steps: Vec<u64>,
    begun: u64,
}

impl Cuts {
    /// Notes a possible cut after row `at`, once all certificates up to it were read.
    fn offer(&mut self, at: u64) {
        if at <= self.best || self.last_entry > at {
            return;
        }
        self.best = at;
        if at - self.begun >= STEP {
            self.steps.push(at);
            self.begun = at;
        }
    }

    fn plan(mut self, stays: String) -> Cut {
        if self.best > self.begun {
            self.steps.push(self.best);
        }
        Cut { steps: self.steps, stays }
    }
}

/// The last row of `after + 1 ..= to` that was written before a time; `after` if none was. The times of entries never
/// decrease.
async fn written_before(
    connection: &mut Connection,
    after: u64,
    to: u64,
    before: Timestamp,
) -> Result<u64, sqlx::Error> {
    let mut older = after;
    let mut newer = to + 1;
    while newer - older > 1 {
        let middle = older + (newer - older) / 2;
        let sql = "SELECT entry FROM entries WHERE seq = $1".to_owned();
        let rows = connection.rows(sql, vec![middle.into()]).await?;
        // An unreadable entry is reported later, when the chain is checked.
        let entry = rows.first().and_then(|row| Entry::parse(row.str(0)).ok());
        let time = entry.and_then(|entry| Timestamp::from_rfc3339(&entry.time));
        if time.is_some_and(|time| time < before) { older = middle } else { newer = middle }
    }
    Ok(older)
}
