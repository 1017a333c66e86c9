//! Compares the table of latest values with the entries: each name must have the value that its last entry sets.

use std::collections::BTreeMap;

use crate::connection::Cells;
use addon_signer_core::journal::entry::{Entry, Hash};
use addon_signer_core::journal::hash_chain::{ChainProblem, Fault};

/// The topic of the row that the hub writes in dry runs.
const DRY_RUN: &str = "trial";

/// The entry that set the value of a name, and the hash of the value.
type Origin = (u64, Hash);

/// Sources by topic and name.
pub(super) struct LatestValues {
    /// The id of the ledger.
    pub(super) ledger: String,
    table: BTreeMap<(String, String), Origin>,
    entries: BTreeMap<(String, String), Origin>,
}

impl LatestValues {
    /// From the rows of the table: topic, name, value, number of the entry.
    pub(super) fn of_table(rows: &[Cells]) -> Self {
        let source = |row: &Cells| (row.count(3), Hash::of(row.str(2)));
        let ledger = rows.iter().find(|row| row.str(0) == "ledger").map(|row| row.text(2)).unwrap_or_default();
        let rows = rows.iter().filter(|row| row.str(0) != DRY_RUN);
        let table = rows.map(|row| ((row.text(0), row.text(1)), source(row))).collect();
        Self { ledger, table, entries: BTreeMap::new() }
    }

    /// Follows the next entry.
    pub(super) fn follow(&mut self, entry: &Entry) {
        if let Some((topic, name, value)) = entry.topic() {
            self.entries.insert((topic.to_owned(), name), (entry.seq, Hash::of(&value)));
        }
    }

    /// Compares both. Entries up to `unchecked` were not followed.
    pub(super) fn compare(&self, unchecked: u64) -> Result<(), Fault> {
        for ((topic, name), source) in &self.entries {
            let key = (topic.clone(), name.clone());
            let what = match self.table.get(&key) {
                Some(found) if found == source => continue,
                Some((row, _)) if *row != source.0 => {
                    format!("it sets the {topic} of {name:?}, and there row {row} does")
                }
                Some(_) => format!("it sets the {topic} of {name:?}, which is another there"),
                None => format!("it sets the {topic} of {name:?}, which is missing there"),
            };
            return Err(ChainProblem::Latest(what).at(source.0));
        }
        let unfounded = |(key, (row, _)): &(&(String, String), &Origin)| {
            !self.entries.contains_key(*key) && (*row > unchecked || *row == 0)
        };
        match self.table.iter().find(unfounded) {
            Some(((topic, name), (row, _))) => {
                Err(ChainProblem::Latest(format!("it does not set the {topic} of {name:?}, as is said there")).at(*row))
            }
            None => Ok(()),
        }
    }
}
