//! Converts the stores' errors to ours: some resolve by themselves, for others an administrator must act.

use std::path::PathBuf;

use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

use super::Location;

/// Why a call of the ledger failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The URL does not name a ledger. It may contain a password anywhere, so no part of it is shown.
    #[error(
        "the ledger's URL (--ledger, ADDON_SIGNER_LEDGER) cannot be used: {0}; write sqlite:///PATH or \
         postgres://USER:PASSWORD@HOST/DATABASE"
    )]
    Url(&'static str),
    /// The store is not available; a retry may succeed.
    #[error("the ledger {ledger} cannot be used now: {cause}")]
    Unavailable {
        /// The ledger, without its password.
        ledger: String,
        /// The store's error.
        cause: String,
    },
    /// This process cannot use the file or its directory.
    #[error("the ledger {path} cannot be opened: {cause}; give this process a directory that it may write in")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: String,
    },
    /// Another process writes to the file.
    #[error("the ledger {path} is in use by {holder}; stop it first, or use PostgreSQL for several replicas")]
    Held {
        /// The file.
        path: PathBuf,
        /// The process that has it.
        holder: String,
    },
    /// The store belongs to another program.
    #[error("{ledger} is not a ledger of addon-signer: {cause}; use another one, nothing was written to it")]
    Foreign {
        /// The ledger.
        ledger: String,
        /// What it is instead.
        cause: String,
    },
    /// Its content is damaged.
    #[error("the ledger {ledger} is damaged: {cause}; restore it from a backup, or move it aside to begin a new one")]
    Damaged {
        /// The ledger.
        ledger: String,
        /// What was found.
        cause: String,
    },
    /// Row-level security could hide rows from this reader.
    #[error(
        "the ledger {ledger} is not read, because rows may be hidden: {cause}; ask who made this policy, and remove it \
         (\"An altered schema\" in docs/ledger.md)"
    )]
    RowSecurity {
        /// The ledger.
        ledger: String,
        /// PostgreSQL's error.
        cause: String,
    },
    /// A newer addon-signer wrote it.
    #[error("the ledger {ledger} has schema {found}, written by a newer addon-signer; use that version or a later one")]
    Newer {
        /// The ledger.
        ledger: String,
        /// The schema that was found.
        found: i64,
    },
    /// A leader of a later epoch writes.
    #[error("the ledger belongs to {replica} of epoch {theirs}; this process has epoch {ours} and writes nothing more")]
    Fenced {
        /// Our epoch.
        ours: u64,
        /// The epoch in the ledger.
        theirs: u64,
        /// The replica of that epoch.
        replica: String,
    },
    /// The writer has ended.
    #[error("the writer of the ledger has ended")]
    Stopped,
}

impl LedgerError {
    /// Whether a retry can help; otherwise an administrator must act.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Held { .. })
    }
}

// https://www.sqlite.org/rescode.html: the low byte is the primary code.
const SQLITE_READONLY: i32 = 8;
const SQLITE_IOERR: i32 = 10;
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_FULL: i32 = 13;
const SQLITE_CANTOPEN: i32 = 14;
const SQLITE_NOTADB: i32 = 26;

/// The error of the ledger at `location` that a store's error means.
pub(crate) fn classify(location: &Location, error: &sqlx::Error) -> LedgerError {
    let ledger = location.to_string();
    let Some(database) = error.as_database_error() else {
        let cause = match error {
            sqlx::Error::PoolTimedOut => "it did not answer in time".to_owned(),
            other => other.to_string(),
        };
        return LedgerError::Unavailable { ledger, cause };
    };
    let words = database.message().to_owned();
    if is_row_security(database) {
        return LedgerError::RowSecurity { ledger, cause: words };
    }
    match (location, primary_code(database)) {
        (Location::Sqlite(path), Some(SQLITE_CANTOPEN)) => LedgerError::File { path: path.clone(), cause: words },
        (_, Some(SQLITE_NOTADB)) => {
            LedgerError::Foreign { ledger, cause: "the file is not a SQLite database".to_owned() }
        }
        (_, Some(SQLITE_CORRUPT)) => LedgerError::Damaged { ledger, cause: words },
        (_, Some(SQLITE_FULL)) => {
            LedgerError::Unavailable { ledger, cause: "the disk is full; free some space, nothing is lost".to_owned() }
        }
        (_, Some(SQLITE_READONLY)) => {
            let cause = "it is on a read-only disk, or this process has no permission to write to it".to_owned();
            LedgerError::Unavailable { ledger, cause }
        }
        (_, Some(SQLITE_IOERR)) => {
            LedgerError::Unavailable { ledger, cause: format!("the disk has an error ({words})") }
        }
        _ => LedgerError::Unavailable { ledger, cause: words },
    }
}

/// Whether PostgreSQL refuses to apply a policy. Its code is that of any missing right, and its text may be in another
/// language.
fn is_row_security(error: &dyn DatabaseError) -> bool {
    let error = error.try_downcast_ref::<PgDatabaseError>();
    error.and_then(PgDatabaseError::routine) == Some("check_enable_rls")
}

fn primary_code(error: &dyn DatabaseError) -> Option<i32> {
    error.try_downcast_ref::<SqliteError>()?;
    error.code()?.parse::<i32>().ok().map(|code| code & 0xff)
}
