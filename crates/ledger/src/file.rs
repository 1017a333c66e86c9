//! Reads an archive: the texts of entries, oldest first, each followed by one line feed.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use addon_signer_core::journal::entry::{Entry, Hash};
use addon_signer_core::journal::hash_chain::{Chain, Fault};

/// Why a file cannot be used as an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The system cannot read the file.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The file is empty.
    #[error("it is empty")]
    Empty,
    /// The last line is cut off.
    #[error("it is cut off in line {0}")]
    Cut(u64),
    /// A line is not text.
    #[error("line {0} is not UTF-8")]
    Text(u64),
    /// The first line is not an entry.
    #[error("line 1: {0}")]
    First(String),
    /// The file does not begin with the expected row.
    #[error("it begins with row {found}, and the rows before it are missing; pass their archive before this one")]
    Begins {
        /// The first row in it.
        found: u64,
    },
    /// A row is wrong.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Follows the chain through the file at `path`. `begin` gets the number of the first row and returns the chain before
/// it; `each` gets every good entry. Returns the number of the first row, and the chain after the last row.
///
/// # Errors
/// [`FileError`], which names the first fault.
pub(crate) fn follow(
    path: &Path,
    begin: impl FnOnce(u64) -> Option<Chain>,
    mut each: impl FnMut(&Entry),
) -> Result<(u64, Chain), FileError> {
    let unreadable = |error: std::io::Error| FileError::Unreadable(error.to_string());
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(unreadable)?);
    let mut line = Vec::new();
    let mut number = 1;
    if !next_line(&mut reader, &mut line, number)? {
        return Err(FileError::Empty);
    }
    let first = Entry::parse(text(&line, number)?).map_err(|error| FileError::First(error.to_string()))?.seq;
    let mut chain = begin(first).ok_or(FileError::Begins { found: first })?;
    loop {
        let text = text(&line, number)?;
        let seq = chain.tip().seq + 1;
        each(&chain.follow(seq, text, Hash::of(text).as_bytes())?);
        number += 1;
        if !next_line(&mut reader, &mut line, number)? {
            return Ok((first, chain));
        }
    }
}

/// Reads a line without its end; `false` at the end of the file.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>, number: u64) -> Result<bool, FileError> {
    line.clear();
    let read = reader.read_until(b'\n', line).map_err(|error| FileError::Unreadable(error.to_string()))?;
    if read > 0 && line.pop() != Some(b'\n') {
        return Err(FileError::Cut(number));
    }
    Ok(read > 0)
}

fn text(line: &[u8], number: u64) -> Result<&str, FileError> {
    std::str::from_utf8(line).map_err(|_| FileError::Text(number))
}
