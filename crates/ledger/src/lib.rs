//! The ledger's store: SQLite or PostgreSQL. Nothing is signed unless it is durable here first.
//!
//! One task writes (`writer`), and commands that wait share a transaction. Every transaction confirms the epoch of the
//! Lease, so that a replica that lost the Lease writes nothing. Readers have connections of their own.
//! [`addon_signer_core::journal`] says what an entry is.

pub mod answer;
pub mod archive;
mod batch;
mod command;
mod connection;
mod error;
mod evidence;
mod file;
mod handle;
mod latest;
mod location;
mod lock;
mod metrics;
mod open;
mod questions;
mod reader;
mod schema;
mod search;
pub mod verify;
pub mod view;
mod writer;

pub use command::CertificateUse;
pub use error::LedgerError;
pub use file::FileError;
pub use handle::{Health, Ledger};
pub use location::Location;
pub use lock::{FileLock, hold_alone};
pub use metrics::LedgerMetrics;
pub use open::{CsrLock, OpenRow, OpenState};
pub use reader::Reader;
pub use writer::{LedgerWriter, WriterOptions};
