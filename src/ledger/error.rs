//! From the stores' errors to ours: what passes by itself, and what somebody has to mend.

use sqlx::error::DatabaseError;
use sqlx::sqlite::SqliteError;

use super::{LedgerError, Location};

// https://www.sqlite.org/rescode.html: the low byte is the primary code.
const SQLITE_READONLY: i32 = 8;
const SQLITE_IOERR: i32 = 10;
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_FULL: i32 = 13;
const SQLITE_CANTOPEN: i32 = 14;
const SQLITE_NOTADB: i32 = 26;

/// What an error of a store means for the ledger at `location`.
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
    match (location, primary_code(database)) {
        (Location::Sqlite(path), Some(SQLITE_CANTOPEN)) => LedgerError::File { path: path.clone(), cause: words },
        (_, Some(SQLITE_NOTADB)) => {
            LedgerError::Foreign { ledger, cause: "the file is not a SQLite database".to_owned() }
        }
        (_, Some(SQLITE_CORRUPT)) => LedgerError::Damaged { ledger, cause: words },
        (_, Some(SQLITE_FULL)) => {
            LedgerError::Unavailable { ledger, cause: "the disk is full; make room, nothing is lost".to_owned() }
        }
        (_, Some(SQLITE_READONLY)) => {
            let cause = "it is on a read-only disk, or this process may not write to it".to_owned();
            LedgerError::Unavailable { ledger, cause }
        }
        (_, Some(SQLITE_IOERR)) => {
            LedgerError::Unavailable { ledger, cause: format!("the disk does not work ({words})") }
        }
        _ => LedgerError::Unavailable { ledger, cause: words },
    }
}

fn primary_code(error: &dyn DatabaseError) -> Option<i32> {
    error.try_downcast_ref::<SqliteError>()?;
    error.code()?.parse::<i32>().ok().map(|code| code & 0xff)
}
