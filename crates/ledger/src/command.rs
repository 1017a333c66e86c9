//! The commands for the writer, and its answers.

use std::collections::BTreeMap;

use super::connection::{Cells, Value};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::record::{Existing, Intent, Record};
use addon_signer_core::journal::uid::CsrUid;
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
    /// Appends an entry, whatever was recorded before.
    Append { record: Record, actor: String },
    /// Appends an entry, unless its value is already the latest one of its topic ([`Record::topic`]).
    Change { record: Record, actor: String },
    /// Notes that certificates were published.
    Published { serials: Vec<Serial>, at: Timestamp },
    /// Notes that certificates were used.
    Seen(Vec<CertificateUse>),
    /// Writes nothing; asks for the latest values of a topic ([`Record::topic`]).
    Latest { topic: &'static str },
    /// Writes nothing; asks for a page of open rows.
    Open { after: u64, before: Timestamp },
    /// Ends an open row, or records the certificate of an intent, unless the row's state has changed meanwhile.
    Settle(Record),
    /// Writes nothing; asks for the rows of a query, without those that the same transaction writes.
    Ask { sql: String, values: Vec<Value> },
}

/// The answer to a command.
#[derive(Debug, Clone)]
pub(crate) enum LedgerOutcome {
    Done,
    Existing(Existing),
    Latest(BTreeMap<String, String>),
    Open(Vec<OpenRow>),
    Rows(Vec<Cells>),
}

/// The state of an open row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenState {
    /// The intent is recorded, but nothing is signed yet.
    Intent,
    /// The certificate is signed, but not known to be published.
    Signed,
}

/// A row whose certificate is decided on but not signed, or signed but not known to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRow {
    /// The entry of its intent.
    pub seq: u64,
    /// The UID of the CSR.
    pub uid: CsrUid,
    /// The name of the CSR.
    pub request: String,
    /// The serial number of the intent; `None` if it cannot be read, because the ledger was altered.
    pub serial: Option<Serial>,
    /// SHA-256 over the bytes to be signed, in hexadecimal; empty if the entry of the intent cannot be read.
    pub tbs: String,
    /// Its state.
    pub state: OpenState,
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
