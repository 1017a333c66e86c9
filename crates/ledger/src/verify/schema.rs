//! Compares the schema of a ledger with the one that the migrations make. A partial index, a view, a rule or a policy
//! leaves rows out of what a statement finds, and no row shows it.

use std::collections::HashMap;
use std::fmt;

use crate::connection::{Cells, Connection};
use crate::schema::in_memory;

/// Largest number of parts that are named.
const NAMED: usize = 5;
/// All of a file's schema but the tables of ANALYZE, which only say which index is the fastest.
const SQLITE: &str = "SELECT type || ' ' || name, tbl_name || ': ' || COALESCE(sql, '') FROM sqlite_schema \
                      WHERE sql IS NULL OR sql NOT IN ('CREATE TABLE sqlite_stat1(tbl,idx,stat)', \
                      'CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)')";
const POSTGRES: &str = include_str!("catalog.sql");
/// What [`POSTGRES`] finds after the migrations. The servers from version 15 to 18 write it the same way.
const POSTGRES_EXPECTED: &str = include_str!("catalog.txt");

/// How a schema differs from the one that the migrations make. Printed, it says so in a part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaChanges(Vec<(String, &'static str)>);

impl fmt::Display for SchemaChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (part, change)) in self.0.iter().take(NAMED).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            // Whoever may alter a schema may choose names.
            write!(f, "{comma}{} {change}", part.escape_debug())?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// How the schema of a ledger was changed; `None` if it was not.
pub(super) async fn changes(connection: &mut Connection) -> Result<Option<SchemaChanges>, sqlx::Error> {
    let (expected, found) = match connection {
        Connection::Sqlite(_) => (parts(&mut in_memory().await?, SQLITE).await?, parts(connection, SQLITE).await?),
        Connection::Postgres(_) => (postgres_parts(), parts(connection, POSTGRES).await?),
    };
    let changes = compare(expected, found);
    Ok((!changes.0.is_empty()).then_some(changes))
}

/// The parts of a schema, each with its definition.
type Parts = Vec<(String, String)>;

async fn parts(connection: &mut Connection, sql: &str) -> Result<Parts, sqlx::Error> {
    let rows = connection.rows(sql.to_owned(), Vec::new()).await?;
    let part = |row: &Cells| (row.text(0), row.text(1));
    Ok(rows.iter().map(part).collect())
}

fn postgres_parts() -> Parts {
    let parts = POSTGRES_EXPECTED.lines().filter_map(|line| line.split_once(": "));
    parts.map(|(part, definition)| (part.to_owned(), definition.to_owned())).collect()
}

fn compare(expected: Parts, found: Parts) -> SchemaChanges {
    let mut left: HashMap<String, String> = expected.iter().cloned().collect();
    let mut changes = Vec::new();
    for (part, definition) in found {
        match left.remove(&part) {
            Some(expected) if expected == definition => {}
            Some(_) => changes.push((part, "was altered")),
            None => changes.push((part, "was added")),
        }
    }
    let missing = expected.into_iter().filter(|(part, _)| left.contains_key(part));
    changes.extend(missing.map(|(part, _)| (part, "is missing")));
    SchemaChanges(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(expected: &[(&str, &str)], found: &[(&str, &str)]) -> String {
        let parts = |parts: &[(&str, &str)]| {
            parts.iter().map(|(part, definition)| ((*part).to_owned(), (*definition).to_owned())).collect()
        };
        compare(parts(expected), parts(found)).to_string()
    }

    #[test]
    fn every_change_is_named_and_no_name_can_end_the_line() {
        let expected = [("table a", "1"), ("table b", "1"), ("index c", "1")];
        assert_eq!(changed(&expected, &expected), "");
        let found = [("table b", "2"), ("index c", "1"), ("index c", "1"), ("view x\ny", "1")];
        let said = "table b was altered, index c was added, view x\\ny was added, table a is missing";
        assert_eq!(changed(&expected, &found), said);
        let many: Vec<_> = ["1", "2", "3", "4", "5", "6", "7"].map(|part| (part, "")).to_vec();
        assert!(changed(&[], &many).ends_with("5 was added and 2 more"), "{}", changed(&[], &many));
    }
}
