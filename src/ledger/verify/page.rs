//! A page of rows and the index's rows beside it, checked at the speed of hashing. It only ever says that all is well; of
//! anything else [`super::rows`] finds out what it is.

use std::hash::RandomState;

use super::tally::{Fate, Tally};
use crate::journal::page::{self, Link};
use crate::journal::scan::{Scanned, utc};
use crate::ledger::connection::{Cells, Connection, Value};

/// Rows `first` to `last`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Range {
    pub(super) fn values(self) -> Vec<Value> {
        vec![self.first.into(), self.last.into()]
    }
}

/// What a good page adds up to.
pub(super) struct Checked {
    pub(super) link: Link,
    pub(super) certificates: u64,
    pub(super) tally: Tally,
}

/// Stands between columns. In an entry it would be escaped, so that a column that has one is never taken for two.
const UNIT: &str = "\u{1f}";
/// Details of an intent that are columns of texts, in their order after `seq`.
const TEXTS: [&str; 8] = ["uid", "request", "signer", "cluster", "addon", "agent", "issuer", "serial"];

/// Reads and checks a page.
pub(super) async fn check(
    connection: &mut Connection,
    range: Range,
    key: &RandomState,
) -> Result<Option<Checked>, sqlx::Error> {
    // One long text per page: per row, the way from the store would cost more than the check.
    let hashes = match connection {
        Connection::Sqlite(_) => "CAST(string_agg(hash, '') AS BLOB)",
        Connection::Postgres(_) => "string_agg(hash, ''::bytea)",
    };
    let entries = format!(
        "SELECT string_agg(entry, $3), {hashes} FROM \
         (SELECT entry, hash FROM entries WHERE seq BETWEEN $1 AND $2 ORDER BY seq) AS page"
    );
    let index = "SELECT COUNT(*), string_agg(concat_ws($4, seq, uid, request, signer, cluster, addon, agent, issuer, serial, \
                 not_before, not_after, state, COALESCE(signed_seq, 0), COALESCE(ended_seq, 0)), $3) FROM \
                 (SELECT * FROM certificates WHERE seq BETWEEN $1 AND $2 ORDER BY seq) AS page";
    let mut values = range.values();
    values.push("\n".into());
    let entries = connection.rows(entries, values.clone()).await?;
    values.push(UNIT.into());
    let index = connection.rows(index.to_owned(), values).await?;
    let (Some(entries), Some(index)) = (entries.first(), index.first()) else { return Ok(None) };
    Ok(judge(range, entries, index, key))
}

fn judge(range: Range, entries: &Cells, index: &Cells, key: &RandomState) -> Option<Checked> {
    let rows = index.str(1);
    let mut rows = rows.split('\n').filter(|_| !rows.is_empty());
    let (mut tally, mut certificates) = (Tally::default(), 0);
    let link = page::check(range.first, entries.str(0), entries.bytes(1), |entry| match entry.kind {
        "intent" => {
            certificates += 1;
            rows.next().is_some_and(|row| is_row_of(entry, row, key, &mut tally).is_some())
        }
        "signed" | "abandoned" | "unpublished" => {
            let whose = entry.plain("uid").zip(entry.plain("serial"));
            whose.is_some_and(|(uid, serial)| {
                tally.entry(key, entry.kind, entry.seq, uid, serial);
                true
            })
        }
        // What these say is remembered, which is done row by row.
        "opened" | "head-key" => false,
        _ => true,
    })?;
    let whole = link.tip.seq == range.last && rows.next().is_none() && index.count(0) == certificates;
    whole.then_some(Checked { link, certificates, tally })
}

/// Whether a row of the index says what its intent says.
fn is_row_of(intent: &Scanned<'_>, row: &str, key: &RandomState, tally: &mut Tally) -> Option<()> {
    let mut columns = row.split(UNIT);
    let same = |expected: bool| expected.then_some(());
    same(columns.next()?.parse() == Ok(intent.seq))?;
    let (mut uid, mut serial) = ("", "");
    for name in TEXTS {
        let column = columns.next()?;
        same(intent.plain(name)? == column)?;
        match name {
            "uid" => uid = column,
            "serial" => serial = column,
            _ => {}
        }
    }
    for name in ["not-before", "not-after"] {
        same(columns.next()?.parse() == Ok(utc(intent.plain(name)?)?.unix()))?;
    }
    let state = columns.next()?.parse().ok()?; // no state: for the check by rows to say
    let mut number = || columns.next()?.parse().ok(); // no number: likewise
    let fate = Fate { uid, serial, state, signed: number()?, ended: number()? };
    same(columns.next().is_none() && tally.row(key, fate))
}
