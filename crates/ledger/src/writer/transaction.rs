//! One transaction, and the reads when a ledger is opened.

use tokio::time::timeout;

use super::TIMEOUT;
use crate::batch::{self, Author};
use crate::command::{BatchError, LedgerCommand, LedgerOutcome};
use crate::connection::Connection;
use crate::error::classify;
use crate::latest;
use crate::{LedgerError, Location};
use addon_signer_core::journal::entry::{Entry, Hash, Tip};
use addon_signer_core::timestamp::Timestamp;

/// How a transaction ended.
pub(super) enum Commit {
    Durable(Tip, Vec<LedgerOutcome>),
    /// Nothing was written.
    Failed(BatchError),
    /// COMMIT got no response: it may have taken effect.
    Unknown {
        would_be: Tip,
        outcomes: Vec<LedgerOutcome>,
        cause: LedgerError,
    },
}

pub(super) async fn commit(
    connection: &mut Connection,
    author: &Author,
    tip: Tip,
    commands: &[LedgerCommand],
    location: &Location,
) -> Commit {
    let late = || BatchError::Store(sqlx::Error::PoolTimedOut);
    let written = timeout(TIMEOUT, async {
        connection.begin().await?;
        batch::fence(connection, author).await?;
        batch::apply(connection, author, tip, commands).await
    });
    let (tip, outcomes) = match written.await.unwrap_or_else(|_| Err(late())) {
        Ok(written) => written,
        Err(error) => return Commit::Failed(error),
    };
    match timeout(TIMEOUT, connection.command("COMMIT")).await {
        Ok(Ok(())) => Commit::Durable(tip, outcomes),
        Ok(Err(error)) => Commit::Unknown { would_be: tip, outcomes, cause: classify(location, &error) },
        Err(_) => Commit::Unknown { would_be: tip, outcomes, cause: classify(location, &sqlx::Error::PoolTimedOut) },
    }
}

/// Writes as much as an issuance does, to a row outside of the chain.
pub(super) async fn dry_run(
    connection: &mut Connection,
    author: &Author,
    location: &Location,
) -> Result<(), BatchError> {
    let sql = "INSERT INTO latest (topic, name, value, seq) VALUES ('trial', '', $1, 0) \
               ON CONFLICT (topic, name) DO UPDATE SET value = EXCLUDED.value";
    // SQLite writes whole pages, one for each index of a certificate; PostgreSQL only what is new in them. It
    // compresses, so the bytes are random.
    let bytes = if matches!(location, Location::Sqlite(_)) { 32 << 10 } else { 4 << 10 };
    let text = random(bytes)?;
    let written = timeout(TIMEOUT, async {
        connection.begin().await?;
        batch::fence(connection, author).await?;
        connection.execute(sql.to_owned(), vec![text.as_str().into()]).await?;
        connection.command("COMMIT").await.map_err(BatchError::from)
    });
    written.await.unwrap_or_else(|_| Err(BatchError::Store(sqlx::Error::PoolTimedOut)))
}

pub(super) async fn read_tip(connection: &mut Connection) -> Result<Tip, BatchError> {
    let sql = "SELECT seq, entry, hash FROM entries ORDER BY seq DESC LIMIT 1";
    let rows = connection.rows(sql.to_owned(), Vec::new()).await?;
    let Some(row) = rows.first() else { return Ok(Tip::EMPTY) };
    let seq = row.count(0);
    let text = row.text(1);
    let hash = Hash::of(&text);
    let entry = Entry::parse(&text).ok().filter(|entry| entry.seq == seq && row.bytes(2) == hash.as_bytes());
    match entry.and_then(|entry| Timestamp::from_rfc3339(&entry.time)) {
        Some(time) => Ok(Tip { seq, hash, time }),
        None => Err(BatchError::Inconsistent(format!("its last row, {seq}, is not what was written there"))),
    }
}

/// The ledger's id, from the table of latest values, which keeps it even when the first entry is archived.
pub(super) async fn read_id(connection: &mut Connection) -> Result<String, BatchError> {
    latest::one(connection, "ledger", "").await?.ok_or_else(|| BatchError::Inconsistent("it has no id".to_owned()))
}

pub(super) fn new_id() -> Result<String, BatchError> {
    random(16)
}

/// This many random bytes as hexadecimal digits.
fn random(bytes: usize) -> Result<String, BatchError> {
    let mut random = vec![0; bytes];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random)
        .map_err(|_| BatchError::Inconsistent("the system has no random bytes".to_owned()))?;
    Ok(data_encoding::HEXLOWER.encode(&random))
}
