//! A page of rows and the index's rows beside it, checked at the speed of hashing. It only ever says that all is well; of
//! anything else [`super::rows`] finds out what it is.

use std::hash::RandomState;
use std::iter;

use super::tally::{Fate, Tally};
use crate::journal::page::{self, Link};
use crate::journal::scan::{Scanned, utc};
use crate::ledger::connection::{Connection, Shown, Value};
use crate::ledger::view::State;
use crate::timestamp::Timestamp;

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

    fn chunks(self) -> impl Iterator<Item = Self> {
        let ends = move |first: u64| Self { first, last: self.last.min(first + CHUNK - 1) };
        (self.first..=self.last).step_by(CHUNK as usize).map(ends)
    }
}

/// What a good page adds up to.
pub(super) struct Checked {
    pub(super) link: Link,
    pub(super) certificates: u64,
    pub(super) tally: Tally,
}

impl Checked {
    /// Goes on by what follows; `None` if it does not.
    fn add(&mut self, next: Self) -> Option<()> {
        self.link.join(&next.link)?;
        self.certificates += next.certificates;
        self.tally.add(next.tally);
        Some(())
    }
}

/// Stands between columns. In an entry it would be escaped, so that a column that has one is never taken for two.
const UNIT: char = '\u{1f}';
/// Details of an intent that are columns, in the order of their names.
const DETAILS: [&str; 11] = [
    "addon",
    "agent",
    "cluster",
    "issuer",
    "not-after",
    "not-before",
    "request",
    "requested",
    "serial",
    "signer",
    "uid",
];

/// Rows that come from the store as one text: row by row the way would cost more than the check, and much more at a time is memory
/// that is got from the system and given back each time.
const CHUNK: u64 = 64;

/// Reads and checks a page.
pub(super) async fn check(
    connection: &mut Connection,
    range: Range,
    key: &RandomState,
) -> Result<Option<Checked>, sqlx::Error> {
    let chunks: Vec<_> = range.chunks().collect();
    let sql = select(connection, chunks.len());
    let bounds = chunks.iter().flat_map(|chunk| chunk.values());
    let values = [Value::from("\n"), UNIT.to_string().into()].into_iter().chain(bounds).collect();
    let mut chunks = chunks.into_iter();
    let mut page: Option<Checked> = None;
    let good = |row: &Shown<'_>| {
        let checked = judge(chunks.next()?, *row, key)?;
        match &mut page {
            None => page = Some(checked),
            Some(page) => page.add(checked)?,
        }
        Some(())
    };
    let all_good = connection.each(sql, values, good).await?;
    Ok(page.filter(|page| all_good && page.link.tip.seq == range.last))
}

/// A row for each chunk: its entries and their hashes, how many rows the index has of it, these, and how many are unfinished.
fn select(connection: &Connection, chunks: usize) -> String {
    let fate = ["state", "COALESCE(signed_seq, 0)", "COALESCE(ended_seq, 0)", "released"].map(str::to_owned);
    let details = DETAILS.map(|name| name.replace('-', "_"));
    let columns: Vec<_> = iter::once("seq".to_owned()).chain(details).chain(fate).collect();
    // PostgreSQL looks up how to write each value anew in its concat_ws, which took it half as long again.
    let (hashes, row) = match connection {
        Connection::Sqlite(_) => {
            ("CAST(string_agg(hash, '') AS BLOB)", format!("concat_ws($2, {})", columns.join(", ")))
        }
        Connection::Postgres(_) => ("string_agg(hash, ''::bytea)", columns.join(" || $2::text || ")),
    };
    let select = |chunk: usize| {
        let within = format!("seq BETWEEN ${} AND ${}", 2 * chunk + 3, 2 * chunk + 4);
        format!(
            "SELECT e.texts, e.hashes, i.many, i.texts, (SELECT COUNT(*) FROM unfinished WHERE {within}) FROM \
             (SELECT string_agg(entry, $1) AS texts, {hashes} AS hashes FROM \
             (SELECT entry, hash FROM entries WHERE {within} ORDER BY seq) AS rows) AS e, \
             (SELECT COUNT(*) AS many, string_agg({row}, $1) AS texts FROM \
             (SELECT * FROM certificates WHERE {within} ORDER BY seq) AS rows) AS i"
        )
    };
    (0..chunks).map(select).collect::<Vec<_>>().join(" UNION ALL ")
}

fn judge(range: Range, row: Shown<'_>, key: &RandomState) -> Option<Checked> {
    let rows = row.str(3);
    let mut rows = rows.split('\n').filter(|_| !rows.is_empty());
    let (mut tally, mut certificates, mut unfinished) = (Tally::default(), 0, 0);
    let link = page::check(range.first, row.str(0), row.bytes(1), |entry| match entry.kind {
        "intent" => {
            certificates += 1;
            let state = rows.next().and_then(|row| is_row_of(entry, row, key, &mut tally));
            unfinished += u64::from(state.is_some_and(|state| !state.is_final()));
            state.is_some()
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
    let whole = link.tip.seq == range.last && rows.next().is_none();
    let counted = row.count(2) == certificates && row.count(4) == unfinished;
    (whole && counted).then_some(Checked { link, certificates, tally })
}

/// What the certificate has come to, if a row of the index says what its intent says.
fn is_row_of(intent: &Scanned<'_>, row: &str, key: &RandomState, tally: &mut Tally) -> Option<State> {
    let (mut columns, mut details) = (row.split(UNIT), intent.in_order());
    let same = |expected: bool| expected.then_some(());
    same(columns.next()?.parse() == Ok(intent.seq))?;
    let (mut uid, mut serial) = ("", "");
    for name in DETAILS {
        let (column, detail) = (columns.next()?, details.plain(name));
        match name {
            // Versions of before had none.
            "requested" => same(column.parse() == Ok(detail.and_then(utc).map_or(0, Timestamp::unix)))?,
            "not-after" | "not-before" => same(column.parse() == Ok(utc(detail?)?.unix()))?,
            _ => same(detail? == column)?,
        }
        match name {
            "uid" => uid = column,
            "serial" => serial = column,
            _ => {}
        }
    }
    let state = columns.next()?.parse().ok()?; // no state: for the check by rows to say
    let mut number = || columns.next()?.parse().ok(); // no number: likewise
    let (signed, ended, released) = (number()?, number()?, number()?);
    let fate = Fate { uid, serial, state, signed, ended, released };
    (columns.next().is_none() && tally.row(key, fate)).then_some(state)
}
