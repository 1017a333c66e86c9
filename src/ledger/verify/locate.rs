//! The chain is good, the sums of the index are not: which row it is.

use super::VerifyError;
use super::rows::fault;
use crate::ledger::connection::{Cells, Connection};
use addon_signer_core::journal::entry::Entry;

const ROWS: u64 = 1000;

/// Names the first entry that the index does not know as it is, else the first row that names an entry which does not speak of it.
pub(super) async fn first_difference(connection: &mut Connection, first: u64, last: u64) -> Result<(), VerifyError> {
    let mut from = first;
    while from <= last {
        let to = from + ROWS - 1;
        let sql = "SELECT entry FROM entries WHERE seq BETWEEN $1 AND $2 ORDER BY seq";
        for row in connection.rows(sql.to_owned(), vec![from.into(), to.min(last).into()]).await? {
            let Ok(entry) = Entry::parse(row.str(0)) else { continue }; // the chain was followed through it
            if matches!(entry.kind.as_str(), "signed" | "abandoned" | "unpublished") {
                check_entry(connection, &entry).await?;
            }
        }
        from = to + 1;
    }
    check_rows(connection).await
}

async fn check_entry(connection: &mut Connection, entry: &Entry) -> Result<(), VerifyError> {
    let sql = "SELECT uid, state, signed_seq, ended_seq FROM certificates WHERE serial = $1";
    let serial = entry.detail("serial");
    let rows = connection.rows(sql.to_owned(), vec![serial.into()]).await?;
    let Some(row) = rows.first() else {
        return Err(fault(entry.seq, format!("it has no certificate {serial}")));
    };
    let at = if entry.kind == "signed" { row.count(2) } else { row.count(3) };
    let state_differs = entry.kind != "signed" && row.str(1) != entry.kind;
    if row.str(0) != entry.detail("uid") || at != entry.seq || state_differs {
        let (state, kind) = (row.str(1), &entry.kind);
        return Err(fault(
            entry.seq,
            format!("the certificate {serial} is {state} by entry {at}, and here it is {kind}"),
        ));
    }
    Ok(())
}

async fn check_rows(connection: &mut Connection) -> Result<(), VerifyError> {
    let mut after = 0;
    loop {
        let sql = format!(
            "SELECT c.seq, c.serial, c.state, c.signed_seq, c.ended_seq, s.entry, e.entry FROM certificates c \
             LEFT JOIN entries s ON s.seq = c.signed_seq LEFT JOIN entries e ON e.seq = c.ended_seq \
             WHERE c.seq > $1 ORDER BY c.seq LIMIT {ROWS}"
        );
        let rows = connection.rows(sql, vec![after.into()]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.count(0);
        for row in &rows {
            check_named(row, 3, row.str(5), "signed")?;
            check_named(row, 4, row.str(6), row.str(2))?;
        }
    }
}

fn check_named(row: &Cells, at: usize, text: &str, kind: &str) -> Result<(), VerifyError> {
    let Some(named) = row.int(at) else { return Ok(()) };
    let speaks = |entry: Entry| entry.kind == kind && entry.detail("serial") == row.str(1);
    if Entry::parse(text).is_ok_and(speaks) {
        return Ok(());
    }
    Err(fault(
        row.count(0),
        format!("the certificate {} is {kind} by entry {named}, which does not say so", row.str(1)),
    ))
}
