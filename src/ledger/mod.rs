//! The ledger's store: SQLite or PostgreSQL. What is not durable here is not signed.
//!
//! One task writes (`writer`), and what waits shares a transaction. Every transaction confirms the epoch of the Lease, so that a
//! replica that lost it writes nothing. Readers have connections of their own. What an entry is: [`addon_signer_core::journal`].

pub mod answer;
pub mod archive;
mod batch;
mod connection;
mod error;
mod evidence;
mod existing;
mod file;
mod handle;
mod location;
mod lock;
mod open;
pub mod query;
mod reader;
mod schema;
mod search;
pub mod verify;
pub mod view;
mod writer;

use std::path::PathBuf;

pub use batch::Seen;
pub use existing::Existing;
pub use file::FileError;
pub use handle::{Intended, Ledger};
pub use location::Location;
pub use open::{Claim, OpenRow, OpenState};
pub use reader::Reader;
pub use writer::{Health, Writer, WriterOptions};

/// Why the ledger did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The URL is not one of a ledger.
    #[error("{0:?} is not the URL of a ledger; use sqlite:///PATH or postgres://USER:PASSWORD@HOST/DATABASE")]
    Url(String),
    /// The store does not answer now; the same may work later.
    #[error("the ledger {ledger} cannot be used now: {cause}")]
    Unavailable {
        /// Which, without its password.
        ledger: String,
        /// In the store's words.
        cause: String,
    },
    /// The directory or the file refuses us.
    #[error("the ledger {path} cannot be opened: {cause}; give this process a directory that it may write in")]
    File {
        /// The file.
        path: PathBuf,
        /// In the system's words.
        cause: String,
    },
    /// Another process writes to the file.
    #[error("the ledger {path} is in use by {holder}; stop that one first, or use PostgreSQL for several replicas")]
    Held {
        /// The file.
        path: PathBuf,
        /// Who has it.
        holder: String,
    },
    /// Not ours.
    #[error("{ledger} is not a ledger of addon-signer: {cause}; name another one, nothing was written to it")]
    Foreign {
        /// Which.
        ledger: String,
        /// What it is.
        cause: String,
    },
    /// Its content is damaged.
    #[error("the ledger {ledger} is damaged: {cause}; restore it from a backup, or move it away to begin a new one")]
    Damaged {
        /// Which.
        ledger: String,
        /// What was found.
        cause: String,
    },
    /// It was written by a later program.
    #[error("the ledger {ledger} has schema {found}, written by a newer addon-signer; use that version or a later one")]
    Newer {
        /// Which.
        ledger: String,
        /// The schema that was found.
        found: i64,
    },
    /// It was written by an earlier program, and is only read here.
    #[error(
        "the ledger {ledger} has schema {found}, older than this program's; start the hub once, it brings it up to date"
    )]
    Older {
        /// Which.
        ledger: String,
        /// The schema that was found.
        found: i64,
    },
    /// A later leader writes.
    #[error("the ledger belongs to {replica} of epoch {theirs}; this process has epoch {ours} and writes nothing more")]
    Fenced {
        /// Our epoch.
        ours: u64,
        /// The epoch in the ledger.
        theirs: u64,
        /// Whose it is.
        replica: String,
    },
    /// The writer has ended.
    #[error("the writer of the ledger has ended")]
    Stopped,
}

impl LedgerError {
    /// Whether trying again can help; otherwise somebody has to do something.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Held { .. })
    }
}
