//! Compares the schema of a ledger with the one that the migrations make. A partial index, a view, a rule or a policy
//! hides rows from statements, and no row shows that.

use std::collections::HashMap;
use std::fmt;

use crate::connection::{Cells, Connection, Value};
use crate::schema::in_memory;

/// Largest number of parts that are named.
const NAMED: usize = 5;
/// A file's whole schema but the tables of ANALYZE, which only help to choose the fastest index.
const SQLITE: &str = "SELECT type || ' ' || name, tbl_name || ': ' || COALESCE(sql, '') FROM sqlite_schema \
                      WHERE sql IS NULL OR sql NOT IN ('CREATE TABLE sqlite_stat1(tbl,idx,stat)', \
                      'CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)')";
const POSTGRES: &str = include_str!("catalog.sql");
/// Leaves only PostgreSQL's own tables, functions and operators to a statement. If another schema were on the path, an
/// operator there could be a better match than PostgreSQL's.
const ONLY_POSTGRES: &str = "SET LOCAL search_path = pg_catalog, pg_temp";
/// The session's path, and its schema in the forms of the catalog and of PostgreSQL's definitions.
const PATH: &str = "SELECT pg_catalog.current_setting('search_path'), CAST(pg_catalog.current_schema() AS TEXT), \
                    pg_catalog.quote_ident(pg_catalog.current_schema())";
/// What [`POSTGRES`] finds after the migrations, with `SCHEMA` for the ledger's. The servers from version 15 to 18
/// write it the same way.
const POSTGRES_EXPECTED: &str = include_str!("catalog.txt");

/// How a schema differs from the one that the migrations make. It prints as a part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaChanges(Vec<(String, &'static str)>);

impl fmt::Display for SchemaChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (part, change)) in self.0.iter().take(NAMED).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            // An account that may alter the schema chooses the names.
            write!(f, "{comma}{} {change}", part.escape_debug())?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Where a session of PostgreSQL resolves names; empty in SQLite, which has no such path.
#[derive(Default, PartialEq, Eq)]
pub(super) struct SearchPath {
    path: String,
    schema: String,
    quoted: String,
}

impl SearchPath {
    /// How this path was changed, if the session now has the other.
    pub(super) fn changes(&self, now: &Self) -> Option<SchemaChanges> {
        (self != now).then(|| SchemaChanges(vec![("the search_path of the session".to_owned(), "was altered")]))
    }
}

/// The path of a session.
pub(super) async fn path(connection: &mut Connection) -> Result<SearchPath, sqlx::Error> {
    if let Connection::Sqlite(_) = connection {
        return Ok(SearchPath::default());
    }
    let rows = connection.rows(PATH.to_owned(), Vec::new()).await?;
    let path = |row: &Cells| SearchPath { path: row.text(0), schema: row.text(1), quoted: row.text(2) };
    Ok(rows.first().map(path).unwrap_or_default())
}

/// How the schema of a ledger was changed; `None` if it was not. In PostgreSQL it reads the catalog and nothing else.
pub(super) async fn changes(connection: &mut Connection) -> Result<Option<SchemaChanges>, sqlx::Error> {
    let (expected, found) = match connection {
        Connection::Sqlite(_) => {
            let expected = parts(&mut in_memory().await?, SQLITE, Vec::new()).await?;
            (expected, parts(connection, SQLITE, Vec::new()).await?)
        }
        Connection::Postgres(_) => {
            let SearchPath { path, schema, quoted } = path(connection).await?;
            connection.command(ONLY_POSTGRES).await?;
            let found = parts(connection, POSTGRES, vec![schema.into()]).await?;
            let again = "SELECT pg_catalog.set_config('search_path', $1, true)";
            connection.rows(again.to_owned(), vec![path.into()]).await?;
            (postgres_parts(&quoted), found)
        }
    };
    let changes = compare(expected, found);
    Ok((!changes.0.is_empty()).then_some(changes))
}

/// The parts of a schema, each with its definition.
type Parts = Vec<(String, String)>;

async fn parts(connection: &mut Connection, sql: &str, values: Vec<Value>) -> Result<Parts, sqlx::Error> {
    let rows = connection.rows(sql.to_owned(), values).await?;
    let part = |row: &Cells| (row.text(0), row.text(1));
    Ok(rows.iter().map(part).collect())
}

fn postgres_parts(schema: &str) -> Parts {
    let parts = POSTGRES_EXPECTED.lines().filter_map(|line| line.split_once(": "));
    parts.map(|(part, definition)| (part.to_owned(), definition.replace("SCHEMA", schema))).collect()
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
        let message = "table b was altered, index c was added, view x\\ny was added, table a is missing";
        assert_eq!(changed(&expected, &found), message);
        let many: Vec<_> = ["1", "2", "3", "4", "5", "6", "7"].map(|part| (part, "")).to_vec();
        assert!(changed(&[], &many).ends_with("5 was added and 2 more"), "{}", changed(&[], &many));
    }
}
