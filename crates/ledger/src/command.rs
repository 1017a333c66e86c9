//! The commands for the writer, and their outcomes.

use std::collections::BTreeMap;

use super::connection::{Cells, Value};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::record::{Existing, Intent, Record};
use addon_signer_core::timestamp::Timestamp;

/// A use of a certificate at the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateUse {
    /// The certificate's serial number.
    pub serial: Serial,
    /// When it was used.
    pub at: Timestamp,
    /// The address from which it was used.
    pub from: String,
}

/// A command for the writer.
#[derive(Debug, Clone)]
pub(crate) enum LedgerCommand {
    /// Appends an intent, unless the ledger already has a row for the CSR.
    Intend(Box<Intent>),
    /// Appends an entry unconditionally.
    Append { record: Record, actor: String },
    /// Appends an entry, unless its value is already the latest one of its topic ([`Record::topic`]).
    Change { record: Record, actor: String },
    /// Notes that certificates were published.
    Published { serials: Vec<Serial>, at: Timestamp },
    /// Notes that certificates were used.
    Seen(Vec<CertificateUse>),
    /// Writes nothing; asks for the latest values of a topic ([`Record::topic`]).
    Latest { topic: &'static str },
    /// Ends an open row, or records the certificate of an intent, unless the row's state has changed meanwhile.
    Close(Record),
    /// Writes nothing; asks for the rows of a query, without those that the same transaction writes.
    Ask { sql: String, values: Vec<Value> },
}

/// The outcome of a command.
#[derive(Debug, Clone)]
pub(crate) enum LedgerOutcome {
    Done,
    Existing(Existing),
    Latest(BTreeMap<String, String>),
    Rows(Vec<Cells>),
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    #[error(transparent)]
    Store(#[from] sqlx::Error),
    #[error("the epoch {theirs} of {replica} is later")]
    Fenced { theirs: u64, replica: String },
    #[error("{0}")]
    Inconsistent(String),
}
