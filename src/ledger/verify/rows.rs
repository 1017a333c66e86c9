//! Row by row: what is wrong, and with which row.

use std::collections::BTreeMap;
use std::hash::RandomState;

use super::page::Range;
use super::tally::{Fate, Tally};
use super::{Notes, VerifyError};
use crate::ledger::connection::{Cells, Connection};
use crate::ledger::view::State;
use addon_signer_core::journal::chain::{Chain, Fault, Problem};
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::timestamp::Timestamp;

const COLUMNS: &str = "seq, uid, request, signer, cluster, addon, agent, issuer, serial, not_before, not_after, state, \
                       signed_seq, ended_seq, released, requested, \
                       (SELECT COUNT(*) FROM unfinished WHERE unfinished.seq = certificates.seq)";
/// Columns of texts and where they are.
const TEXTS: [(usize, &str); 8] = [
    (1, "uid"),
    (2, "request"),
    (3, "signer"),
    (4, "cluster"),
    (5, "addon"),
    (6, "agent"),
    (7, "issuer"),
    (8, "serial"),
];

/// Follows the chain through a page. Returns how many certificates are in it.
pub(super) async fn follow(
    connection: &mut Connection,
    range: Range,
    chain: &mut Chain,
    notes: &mut Notes,
    key: &RandomState,
    tally: &mut Tally,
) -> Result<u64, VerifyError> {
    let sql = "SELECT seq, entry, hash FROM entries WHERE seq BETWEEN $1 AND $2 ORDER BY seq";
    let rows = connection.rows(sql.to_owned(), range.values()).await?;
    let sql = format!("SELECT {COLUMNS} FROM certificates WHERE seq BETWEEN $1 AND $2");
    let index = connection.rows(sql, range.values()).await?;
    let mut index: BTreeMap<u64, Cells> = index.into_iter().map(|row| (row.count(0), row)).collect();
    let mut certificates = 0;
    for row in &rows {
        let entry = chain.follow(row.count(0), row.str(1), row.bytes(2))?;
        notes.take(&entry);
        match entry.kind.as_str() {
            "intent" => {
                let row = index.remove(&entry.seq);
                let row = row.ok_or_else(|| fault(entry.seq, "it has no row for it".to_owned()))?;
                compare(&entry, &row, key, tally).map_err(|what| fault(entry.seq, what))?;
                certificates += 1;
            }
            "signed" | "abandoned" | "unpublished" => {
                tally.entry(key, &entry.kind, entry.seq, entry.detail("uid"), entry.detail("serial"));
            }
            _ => {}
        }
    }
    match index.first_key_value() {
        Some((seq, row)) => Err(no_intent(*seq, row.str(8))),
        None => Ok(certificates),
    }
}

/// What a row says otherwise than its intent.
fn compare(intent: &Entry, row: &Cells, key: &RandomState, tally: &mut Tally) -> Result<(), String> {
    let differs =
        |name: &str, index: &str, entry: &str| format!("{name} is {index:?} there and {entry:?} in the entry");
    for (at, name) in TEXTS {
        if row.str(at) != intent.detail(name) {
            return Err(differs(name, row.str(at), intent.detail(name)));
        }
    }
    for (at, name) in [(9, "not-before"), (10, "not-after")] {
        let index = Timestamp::from_unix(row.int(at).unwrap_or(i64::MAX));
        if Timestamp::from_rfc3339(intent.detail(name)) != Some(index) {
            return Err(differs(name, &index.to_string(), intent.detail(name)));
        }
    }
    let requested = Timestamp::from_rfc3339(intent.detail("requested")).unwrap_or(Timestamp::from_unix(0));
    if row.int(15) != Some(requested.unix()) {
        let index = Timestamp::from_unix(row.int(15).unwrap_or(i64::MAX));
        return Err(differs("requested", &index.to_string(), &requested.to_string()));
    }
    let state = row.str(11);
    let contradiction = || format!("its state is {state:?}, which does not go with the entries that it names");
    let known: State = state.parse().map_err(|()| contradiction())?;
    if known.is_final() == (row.count(16) != 0) {
        let is = if known.is_final() { "one of" } else { "none of" };
        return Err(format!("its state is {state:?}, and it is {is} the unfinished"));
    }
    let (signed, ended, released) = (row.count(12), row.count(13), row.count(14));
    let fate = Fate { uid: row.str(1), serial: row.str(8), state: known, signed, ended, released };
    if tally.row(key, fate) { Ok(()) } else { Err(contradiction()) }
}

pub(super) fn fault(row: u64, what: String) -> VerifyError {
    Fault { row, problem: Problem::Index(what) }.into()
}

/// A row that nothing in the chain explains.
pub(super) fn no_intent(seq: u64, serial: &str) -> VerifyError {
    fault(seq, format!("it has the certificate {serial}, which no entry decided on"))
}
