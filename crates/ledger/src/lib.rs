//! The ledger's store: SQLite or PostgreSQL. Nothing is signed before its intent is durable here.
//!
//! One task writes (`writer`), and commands that wait share a transaction. Every transaction confirms the epoch of the
//! Lease, so that a hub that has lost the Lease writes nothing, even if it has not noticed the loss. Readers have
//! connections of their own. [`addon_signer_core::journal`] defines the entries.

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
