//! Why a reconciler could not do its work.

use crate::authorities::store::StoreError;
use crate::lease::NotLeading;
use addon_signer_core::ca::authority::AuthorityError;
use addon_signer_core::ca::lineage::WaitsFor;
use addon_signer_core::keys::private::KeyError;
use addon_signer_ledger::LedgerError;

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// Another hub may lead.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// A step that was persisted could not be recorded; it has no effect before it is recorded.
    #[error("a step of the authorities could not be recorded: {0}")]
    Ledger(#[from] LedgerError),
    /// The Secret could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A new authority could not be created.
    #[error("a new authority could not be created: {0}")]
    Authority(#[from] AuthorityError),
    /// A new key could not be generated.
    #[error("a new key could not be generated: {0}")]
    Key(#[from] KeyError),
    /// The lineage has no authority yet, because none came from outside.
    #[error("There is no authority yet. {0}")]
    NoAuthority(String),
    /// The lineage's first authority is not created while the clock is wrong.
    #[error("the first authority waits for {0}")]
    Clock(WaitsFor),
    /// The lineage has no anchor.
    #[error(transparent)]
    Bundle(#[from] addon_signer_core::ca::bundle::BundleError),
    /// The report could not be written as JSON.
    #[error("the report of the lineage could not be written: {0}")]
    Report(#[from] serde_json::Error),
}
