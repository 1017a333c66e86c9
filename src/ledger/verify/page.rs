//! A page of rows and the index's rows beside it, checked at the speed of hashing. It only ever says that all is well; of
//! anything else [`super::rows`] finds out what it is.

use std::hash::RandomState;

use super::read::{self, UNIT};
use super::tally::{Fate, Tally};
use crate::ledger::connection::{Connection, Value};
use crate::ledger::view::State;
use addon_signer_core::journal::page::{self, Link};
use addon_signer_core::journal::scan::{Scanned, utc};
use addon_signer_core::timestamp::Timestamp;

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

/// Reads and checks a page.
pub(super) async fn check(
    connection: &mut Connection,
    range: Range,
    key: &RandomState,
) -> Result<Option<Checked>, sqlx::Error> {
    let mut judge = Judge {
        next: range.first,
        key,
        link: None,
        certificates: 0,
        unfinished: String::new(),
        tally: Tally::default(),
    };
    let unfinished = read::page(connection, range, |texts, hashes, rows| judge.follow(texts, hashes, rows)).await?;
    Ok(unfinished.and_then(|unfinished| judge.end(range.last, &unfinished)))
}

/// Goes through the entries of a page and the index's rows of it.
struct Judge<'k> {
    next: u64,
    key: &'k RandomState,
    link: Option<Link>,
    certificates: u64,
    /// As [`read::page`] has them.
    unfinished: String,
    tally: Tally,
}

impl Judge<'_> {
    /// Goes on by some entries; `None` if they are not as usual.
    fn follow(&mut self, texts: &str, hashes: &[u8], rows: &mut dyn Iterator<Item = &str>) -> Option<()> {
        let followed = page::check(self.next, texts, hashes, |entry| self.take(entry, rows).is_some())?;
        self.next = followed.tip.seq + 1;
        match &mut self.link {
            None => self.link = Some(followed),
            Some(link) => link.join(&followed)?,
        }
        Some(())
    }

    fn take(&mut self, entry: &Scanned<'_>, rows: &mut dyn Iterator<Item = &str>) -> Option<()> {
        match entry.kind {
            "intent" => {
                let state = is_row_of(entry, rows.next()?, self.key, &mut self.tally)?;
                self.certificates += 1;
                if !state.is_final() {
                    self.unfinished.push_str(&format!("{}\n", entry.seq));
                }
            }
            "signed" | "abandoned" | "unpublished" => {
                let (uid, serial) = entry.plain("uid").zip(entry.plain("serial"))?;
                self.tally.entry(self.key, entry.kind, entry.seq, uid, serial);
            }
            // What these say is remembered, which is done row by row.
            "opened" | "head-key" => return None,
            _ => {}
        }
        Some(())
    }

    fn end(self, last: u64, unfinished: &str) -> Option<Checked> {
        let link = self.link.filter(|link| link.tip.seq == last && self.unfinished == unfinished)?;
        Some(Checked { link, certificates: self.certificates, tally: self.tally })
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::iter;

    use super::*;
    use addon_signer_core::journal::entry::{Entry, Hash};

    #[test]
    fn a_page_goes_on_to_its_last_row() {
        let key = RandomState::new();
        let judged = |last: u64, unfinished: &str| {
            let mut judge = Judge {
                next: 1,
                key: &key,
                link: None,
                certificates: 0,
                unfinished: String::new(),
                tally: Tally::default(),
            };
            let mut previous = Hash::ZERO;
            for seq in 1..=3 {
                let entry = Entry {
                    seq,
                    previous: previous.to_string(),
                    time: "2026-11-18T10:00:00Z".to_owned(),
                    kind: "note".to_owned(),
                    epoch: 1,
                    replica: "r".to_owned(),
                    actor: String::new(),
                    details: BTreeMap::new(),
                };
                let text = entry.text();
                previous = Hash::of(&text);
                judge.follow(&text, previous.as_bytes(), &mut iter::empty()).unwrap();
            }
            judge.end(last, unfinished).is_some()
        };
        assert!(judged(3, ""));
        assert!(!judged(4, ""), "one is missing");
        assert!(!judged(3, "2\n"), "one is unfinished that no intent is of");
    }
}
