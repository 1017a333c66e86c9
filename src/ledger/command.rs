//! What the writer is asked for, and what it answers.

use std::collections::BTreeMap;

use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::record::{Existing, Intent, Record};
use addon_signer_core::timestamp::Timestamp;

/// A use of a certificate at the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateUse {
    /// The certificate's serial number.
    pub serial: Serial,
    /// When.
    pub at: Timestamp,
    /// The address that it came from.
    pub from: String,
}

/// One thing to write.
#[derive(Debug, Clone)]
pub(crate) enum LedgerCommand {
    /// Unless the request has an intent already.
    Intend(Box<Intent>),
    /// An entry, whatever was recorded before.
    Append { record: Record, actor: String },
    /// An entry, unless it says what is known already ([`Record::topic`]).
    Change { record: Record, actor: String },
    /// Certificates that were handed over.
    Published { serials: Vec<Serial>, at: Timestamp },
    /// Certificates that were used.
    Seen(Vec<CertificateUse>),
    /// Nothing: what is known of a topic ([`Record::topic`]).
    Latest { topic: &'static str },
    /// Nothing: a page of the rows that have not come to an end.
    Open { after: u64, before: Timestamp },
    /// The end of such a row, unless it has gone on meanwhile.
    Settle(Record),
}

/// What became of a command.
#[derive(Debug, Clone)]
pub(crate) enum LedgerOutcome {
    Done,
    Existing(Existing),
    Latest(BTreeMap<String, String>),
    Open(Vec<OpenRow>),
}

/// How far an open row has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenState {
    /// It was decided to sign.
    Intent,
    /// It was signed.
    Signed,
}

/// A row that has not come to an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRow {
    /// The entry of its intent.
    pub seq: u64,
    /// The UID of the CSR.
    pub uid: String,
    /// The name of the CSR.
    pub request: String,
    /// The serial number of the intent.
    pub serial: Serial,
    /// How far it has come.
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
