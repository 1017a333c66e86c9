//! Checks a chain of entries row by row: [`Chain::follow`] takes each row as it is stored, and names the first bad row.

use crate::journal::checkpoint::Checkpoint;
use crate::journal::entry::{Entry, EntryError, Hash, Tip};
use crate::timestamp::Timestamp;

/// The first bad row, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("row {row}: {problem}")]
pub struct Fault {
    /// The first bad row.
    pub row: u64,
    /// What is wrong with it.
    pub problem: ChainProblem,
}

/// What can be wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainProblem {
    /// The row is missing.
    #[error("it is missing; after row {before} comes row {found}")]
    Missing {
        /// The last row before the gap.
        before: u64,
        /// The first row after the gap.
        found: u64,
    },
    /// The number in the text is not the row's number.
    #[error("its text claims to be row {0}")]
    Number(u64),
    /// The text is not an entry.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The text was altered, or the hash that is stored beside it.
    #[error("its text does not have the hash that is stored beside it")]
    Text,
    /// The row and its hash were altered; the next row still has the old hash.
    #[error("it was altered: the row after it holds another hash of it")]
    Rewritten,
    /// The time is not a time, or it is earlier than that of the row before.
    #[error("its time {0:?} is not a time, or is earlier than that of the row before it")]
    Time(String),
    /// The first row has the hash of a row before it.
    #[error("it is the first row, but names a row before it")]
    First,
    /// The epoch is less than that of the row before.
    #[error("its epoch {0} is less than that of the row before it")]
    Epoch(u64),
    /// The published checkpoint has another hash for the row.
    #[error("it is not the row that the checkpoint of {0} vouches for: it or rows before it were rewritten")]
    NotTheCheckpoint(String),
    /// The ledger ends before the row of the checkpoint.
    #[error(
        "it and all later rows are missing: the ledger ends at row {end}, and the checkpoint vouches for row \
         {checkpoint}"
    )]
    Cut {
        /// The last row.
        end: u64,
        /// The row of the checkpoint.
        checkpoint: u64,
    },
    /// The row of the checkpoint is in an archive that was not given, if it exists at all.
    #[error(
        "the checkpoint vouches for it, but it is not here: the ledger says that its rows up to {0} are in archives; \
         pass the archive that has it, and all later ones (--archive)"
    )]
    Archived(u64),
    /// The row is in the ledger, although it is in an archive according to the ledger.
    #[error("it is here, and the ledger says that its rows up to {0} are in archives")]
    Left(u64),
    /// The ledger has no row of its own, and according to it rows are in archives. An archive leaves the last row.
    #[error("it and all later rows are missing: the ledger is empty, and says that its rows up to {0} are in archives")]
    Emptied(u64),
    /// The row after the given archives is in another one.
    #[error("it and the rows up to {0} are in a later archive; pass that one too")]
    Later(u64),
    /// An archive ends with the row, and the ledger has no archive that ends with it.
    #[error(
        "an archive ends with it, and the ledger knows no archive that does; is it of this ledger, and was \
         `certs archive` finished?"
    )]
    NoArchive,
    /// The ledger has no hash for the last row of an archive.
    #[error("an archive ends with it, but what the ledger recorded as the hash of that archive is not a hash")]
    NoHash,
    /// The index contradicts the entries.
    #[error("the index of certificates says something else about it: {0}")]
    Index(String),
    /// The table of latest values contradicts the entries.
    #[error("the table of latest values contradicts the entries: {0}")]
    Latest(String),
    /// A process of an earlier epoch could write.
    #[error("its epoch {0} is not in the table fence, which has {1}: a process that was superseded could write")]
    Fence(u64, u64),
}

impl ChainProblem {
    /// This problem as the fault of a row.
    pub fn at(self, row: u64) -> Fault {
        Fault { row, problem: self }
    }
}

/// Checks that a ledger whose rows up to `through` are in archives begins with the row after them. `first` is its first
/// row.
///
/// # Errors
/// [`ChainProblem::Left`] and [`ChainProblem::Emptied`]. [`Chain::follow`] finds a gap.
pub fn begins(through: u64, first: Option<u64>) -> Result<(), Fault> {
    match first {
        None if through > 0 => Err(ChainProblem::Emptied(through).at(through + 1)),
        Some(first) if first <= through => Err(ChainProblem::Left(through).at(first)),
        _ => Ok(()),
    }
}

/// The part of a chain that was checked so far.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The row after which it began. That row and those before it were not checked.
    begun: u64,
    tip: Tip,
    epoch: u64,
    checkpoint: Option<Checkpoint>,
}

impl Chain {
    /// A chain that continues after `tip`, and that must contain the row of `checkpoint`. The caller must have checked
    /// the signature of the checkpoint.
    pub fn after(tip: Tip, checkpoint: Option<Checkpoint>) -> Self {
        Self { begun: tip.seq, tip, epoch: 0, checkpoint }
    }

    /// The last row that was checked.
    pub fn tip(&self) -> Tip {
        self.tip
    }

    /// Checks that no process may write whose epoch is less than that of the last row.
    ///
    /// # Errors
    /// [`ChainProblem::Fence`].
    pub fn is_fenced(&self, epoch: u64) -> Result<(), Fault> {
        if epoch < self.epoch { Err(ChainProblem::Fence(self.epoch, epoch).at(self.tip.seq)) } else { Ok(()) }
    }

    /// Checks and reads the next row.
    ///
    /// # Errors
    /// The [`Fault`] names the first bad row, which may be the row before.
    pub fn follow(&mut self, seq: u64, text: &str, stored: &[u8]) -> Result<Entry, Fault> {
        let expected = self.tip.seq + 1;
        if seq != expected {
            return Err(ChainProblem::Missing { before: self.tip.seq, found: seq }.at(expected));
        }
        let hash = Hash::of(text);
        if stored != hash.as_bytes() {
            return Err(ChainProblem::Text.at(seq));
        }
        let entry = Entry::parse(text).map_err(|error| ChainProblem::from(error).at(seq))?;
        if entry.seq != seq {
            return Err(ChainProblem::Number(entry.seq).at(seq));
        }
        if Hash::from_hex(entry.previous.as_bytes()) != Some(self.tip.hash) {
            let before = self.tip.seq;
            return Err(if before == 0 { ChainProblem::First.at(seq) } else { ChainProblem::Rewritten.at(before) });
        }
        let time = Timestamp::from_rfc3339(&entry.time).filter(|time| time.to_string() == entry.time);
        let Some(time) = time.filter(|time| *time >= self.tip.time) else {
            return Err(ChainProblem::Time(entry.time).at(seq));
        };
        if entry.epoch < self.epoch {
            return Err(ChainProblem::Epoch(entry.epoch).at(seq));
        }
        if let Some(checkpoint) =
            self.checkpoint.as_ref().filter(|checkpoint| checkpoint.seq == seq && checkpoint.hash != hash.to_string())
        {
            return Err(ChainProblem::NotTheCheckpoint(checkpoint.time.clone()).at(seq));
        }
        self.tip = Tip { seq, hash, time };
        self.epoch = entry.epoch;
        Ok(entry)
    }

    /// Checks, after the last row, that the row of the checkpoint was one of those that were checked.
    ///
    /// # Errors
    /// [`ChainProblem::Cut`] with the first missing row, [`ChainProblem::Archived`] with the row of the checkpoint.
    pub fn end(&self) -> Result<Tip, Fault> {
        let end = self.tip.seq;
        match self.checkpoint.as_ref().map(|checkpoint| checkpoint.seq) {
            Some(checkpoint) if checkpoint > end => Err(ChainProblem::Cut { end, checkpoint }.at(end + 1)),
            Some(checkpoint) if checkpoint <= self.begun => Err(ChainProblem::Archived(self.begun).at(checkpoint)),
            _ => Ok(self.tip),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Row = (u64, String, Vec<u8>);

    fn mk_rows(count: u64) -> Vec<Row> {
        let mut tip = Tip::EMPTY;
        let rows = (1..=count).map(|seq| {
            let entry = Entry {
                seq,
                previous: tip.hash.to_string(),
                time: Timestamp::from_unix(1_795_000_000 + i64::try_from(seq).unwrap()).to_string(),
                kind: "note".to_owned(),
                epoch: 1,
                replica: "r".to_owned(),
                actor: String::new(),
                details: BTreeMap::from([("n".to_owned(), seq.to_string())]),
            };
            let text = entry.text();
            tip = Tip { seq, hash: Hash::of(&text), time: Timestamp::from_rfc3339(&entry.time).unwrap() };
            (seq, text, tip.hash.as_bytes().to_vec())
        });
        rows.collect()
    }

    fn mk_checkpoint(rows: &[Row], seq: u64) -> Checkpoint {
        let (_, text, _) = rows.iter().find(|row| row.0 == seq).unwrap();
        Checkpoint {
            ledger: "l".to_owned(),
            seq,
            hash: Hash::of(text).to_string(),
            time: "2026-11-20T00:00:00Z".to_owned(),
            key: String::new(),
            signature: String::new(),
        }
    }

    fn check(rows: &[Row], checkpoint: Option<Checkpoint>) -> Result<Tip, Fault> {
        let mut chain = Chain::after(Tip::EMPTY, checkpoint);
        for (seq, text, hash) in rows {
            chain.follow(*seq, text, hash)?;
        }
        chain.end()
    }

    /// Alters the text of row 3. `own_hash` corrects the hash beside it, and `all_after` corrects all rows after it.
    fn alter(rows: &mut [Row], own_hash: bool, all_after: bool) {
        rows[2].1 = rows[2].1.replace(r#""n":"3""#, r#""n":"4""#);
        if own_hash {
            rows[2].2 = Hash::of(&rows[2].1).as_bytes().to_vec();
        }
        for at in 3..if all_after { rows.len() } else { 0 } {
            let mut entry = Entry::parse(&rows[at].1).unwrap();
            entry.previous = Hash::of(&rows[at - 1].1).to_string();
            rows[at].1 = entry.text();
            rows[at].2 = Hash::of(&rows[at].1).as_bytes().to_vec();
        }
    }

    #[test]
    fn an_untouched_chain_is_valid() {
        let rows = mk_rows(9);
        assert_eq!(check(&rows, Some(mk_checkpoint(&rows, 7))).unwrap().seq, 9);
        assert_eq!(check(&[], None), Ok(Tip::EMPTY));
    }

    #[test]
    fn an_altered_row_is_named() {
        let mut rows = mk_rows(9);
        alter(&mut rows, false, false);
        assert_eq!(check(&rows, None), Err(ChainProblem::Text.at(3)));
        alter(&mut rows, true, false);
        assert_eq!(check(&rows, None), Err(ChainProblem::Rewritten.at(3)));
    }

    #[test]
    fn a_chain_that_was_made_anew_is_found_by_the_checkpoint() {
        let mut rows = mk_rows(9);
        let checkpoint = mk_checkpoint(&rows, 7);
        alter(&mut rows, true, true);
        assert!(check(&rows, None).is_ok());
        assert_eq!(check(&rows, Some(checkpoint.clone())), Err(ChainProblem::NotTheCheckpoint(checkpoint.time).at(7)));
    }

    #[test]
    fn missing_moved_and_cut_rows_are_named() {
        let mut rows = mk_rows(9);
        rows.remove(3);
        assert_eq!(check(&rows, None), Err(ChainProblem::Missing { before: 3, found: 5 }.at(4)));
        let mut rows = mk_rows(9);
        let third = rows[2].clone();
        let fifth = rows[4].clone();
        (rows[2].1, rows[2].2) = (fifth.1, fifth.2);
        (rows[4].1, rows[4].2) = (third.1, third.2);
        assert_eq!(check(&rows, None), Err(ChainProblem::Number(5).at(3)));
        let mut rows = mk_rows(9);
        let checkpoint = mk_checkpoint(&rows, 7);
        rows.truncate(5);
        assert!(check(&rows, None).is_ok());
        assert_eq!(check(&rows, Some(checkpoint)), Err(ChainProblem::Cut { end: 5, checkpoint: 7 }.at(6)));
    }

    #[test]
    fn a_checkpoint_of_a_row_that_was_not_checked_proves_nothing() {
        let rows = mk_rows(9);
        let follow_after = |through: usize, seq| {
            let hash = Hash::of(&rows[through - 1].1);
            let tip = Tip { seq: u64::try_from(through).unwrap(), hash, time: Timestamp::from_unix(0) };
            let mut chain = Chain::after(tip, Some(mk_checkpoint(&rows, seq)));
            for (seq, text, hash) in &rows[through..] {
                chain.follow(*seq, text, hash).unwrap();
            }
            chain.end().map(|tip| tip.seq)
        };
        assert_eq!(follow_after(4, 5), Ok(9));
        assert_eq!(follow_after(5, 5), Err(ChainProblem::Archived(5).at(5)));
        assert_eq!(follow_after(6, 5), Err(ChainProblem::Archived(6).at(5)));
    }

    #[test]
    fn a_ledger_begins_after_its_archives() {
        assert_eq!(begins(0, None), Ok(()));
        assert_eq!(begins(5, Some(6)), Ok(()));
        assert_eq!(begins(5, None), Err(ChainProblem::Emptied(5).at(6)));
        assert_eq!(begins(5, Some(5)), Err(ChainProblem::Left(5).at(5)));
        assert_eq!(begins(100, Some(1)), Err(ChainProblem::Left(100).at(1)));
    }

    #[test]
    fn time_does_not_go_back() {
        let mut rows = mk_rows(2);
        let mut entry = Entry::parse(&rows[1].1).unwrap();
        entry.time = "2026-11-18T11:06:40Z".to_owned();
        rows[1].1 = entry.text();
        rows[1].2 = Hash::of(&rows[1].1).as_bytes().to_vec();
        assert_eq!(check(&rows, None), Err(ChainProblem::Time(entry.time).at(2)));
    }
}
