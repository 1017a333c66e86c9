//! The table of latest values. A row is believed only if the entry that it names has the same value: the chain reveals
//! changed entries, but not changes of this table. Of an archived entry only the row remains.

use std::collections::BTreeMap;

use super::command::{BatchError, LedgerCommand};
use super::connection::{Cells, Connection};
use addon_signer_core::journal::entry::Entry;

/// Rows that are read together, each with its entry.
const ROWS: usize = 512;

/// Values by topic and name.
pub(crate) type Latest = BTreeMap<(&'static str, String), String>;

/// The latest values that `commands` need.
pub(crate) async fn latest(connection: &mut Connection, commands: &[LedgerCommand]) -> Result<Latest, BatchError> {
    let mut latest = Latest::new();
    for command in commands {
        match command {
            LedgerCommand::Change { record, .. } => {
                let Some((topic, name, _)) = record.topic() else { continue };
                let value = one(connection, topic, &name).await?;
                latest.extend(value.map(|value| ((topic, name), value)));
            }
            LedgerCommand::Latest { topic } => all(connection, topic, &mut latest).await?,
            _ => {}
        }
    }
    Ok(latest)
}

/// The latest value of a name.
pub(crate) async fn one(
    connection: &mut Connection,
    topic: &'static str,
    name: &str,
) -> Result<Option<String>, BatchError> {
    let rows = read(connection, topic, "l.name = $2", name).await?;
    rows.first().map(|row| borne_out(topic, row)).transpose()
}

/// Adds all values of a topic. None of its names is empty.
async fn all(connection: &mut Connection, topic: &'static str, latest: &mut Latest) -> Result<(), BatchError> {
    let mut last = String::new();
    loop {
        let rows = read(connection, topic, "l.name > $2", &last).await?;
        for row in &rows {
            latest.insert((topic, row.text(0)), borne_out(topic, row)?);
        }
        match rows.last() {
            Some(row) if rows.len() == ROWS => last = row.text(0),
            _ => return Ok(()),
        }
    }
}

async fn read(
    connection: &mut Connection,
    topic: &str,
    condition: &str,
    name: &str,
) -> Result<Vec<Cells>, sqlx::Error> {
    let sql = format!(
        "SELECT l.name, l.value, l.seq, e.entry, (SELECT MAX(through) FROM archives) \
         FROM latest l LEFT JOIN entries e ON e.seq = l.seq \
         WHERE l.topic = $1 AND {condition} ORDER BY l.name LIMIT {ROWS}"
    );
    connection.rows(sql, vec![topic.into(), name.into()]).await
}

/// The value of a row, if its entry is archived or has the same value.
fn borne_out(topic: &str, row: &Cells) -> Result<String, BatchError> {
    let (name, value, seq) = (row.str(0), row.str(1), row.count(2));
    let is_same = |entry: Entry| entry.topic().is_some_and(|(of, its, is)| (of, &*its, &*is) == (topic, name, value));
    let is_archived = (1..=row.count(4)).contains(&seq);
    if is_archived || Entry::parse(row.str(3)).is_ok_and(is_same) {
        return Ok(value.to_owned());
    }
    Err(BatchError::Inconsistent(format!(
        "its table of latest values has a {topic} of {name:?} that row {seq} does not record; `certs verify` compares \
         the whole table"
    )))
}
