//! Allows one writer per SQLite file, and one signer per file, even while that waits for the Lease. A lock file beside
//! the database names the holder; the system releases the lock when the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{LedgerError, Location};

/// The end of the names of lock files.
const OF_WRITER: &str = ".lock";
const OF_SIGNER: &str = ".signer.lock";

/// A lock, held until this is dropped.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

/// Takes the writer's lock of `database`; the error names its current holder.
pub(crate) fn take(database: &Path, holder: &str) -> Result<FileLock, LedgerError> {
    take_file(database, OF_WRITER, holder)
}

/// Takes the lock of a signer that must be the only one with this ledger, even while it waits for the Lease; `None` for
/// a database, which several signers may use in turn.
///
/// # Errors
/// [`LedgerError::Held`] names the other signer; [`LedgerError::File`].
pub fn hold_alone(location: &Location, holder: &str) -> Result<Option<FileLock>, LedgerError> {
    match location {
        Location::Sqlite(database) => take_file(database, OF_SIGNER, holder).map(Some),
        Location::Postgres(_) => Ok(None),
    }
}

fn take_file(database: &Path, suffix: &str, holder: &str) -> Result<FileLock, LedgerError> {
    let failed = |error: std::io::Error| LedgerError::File { path: database.to_owned(), cause: error.to_string() };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false) // it names the current holder
        .mode(0o600)
        .open(lock_path(database, suffix))
        .map_err(failed)?;
    let mut locked = file.try_lock();
    // A process that is being started has the descriptors of the one that starts it, until its program begins.
    for _ in 0..10 {
        if !matches!(locked, Err(TryLockError::WouldBlock)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        locked = file.try_lock();
    }
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            file.read_to_string(&mut holder).map_err(failed)?;
            return Err(LedgerError::Held { path: database.to_owned(), holder: holder.trim().to_owned() });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let named = file.set_len(0).and_then(|()| file.rewind());
    // The lock counts; the name is for who asks for it, and a disk without room for it is reported by the ledger.
    let _ = named.and_then(|()| writeln!(file, "{holder} (process {})", std::process::id()));
    Ok(FileLock { _file: file })
}

fn lock_path(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

/// Creates the file of a new database, readable by its owner alone. SQLite gives its journals the same mode. A file
/// that exists is not opened: closing it would drop the locks that SQLite has on it in this process.
pub(crate) fn create_private(database: &Path) -> Result<(), LedgerError> {
    if database.exists() {
        return Ok(());
    }
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(database);
    made.map(drop).map_err(|error| LedgerError::File { path: database.to_owned(), cause: error.to_string() })
}
