//! Certificate signing requests (CSRs): the decision about each, the certificate, the answer.
//!
//! `dispatcher` watches all CSRs and gives each its turn, `room` keeps what there is room for and reads the others when
//! it is their turn, `signer` works on the CSRs of one signer name, `action` names the one action for a CSR,
//! `status_writer` writes it, `unconfirmed` keeps certificates that the watch has not shown yet, `recovery` ends what
//! was left open in the ledger, `newest` knows the newest CSR of each addon, `answerers` which signer names
//! AddOnSigners have, `unrecorded` finds certificates that the ledger does not have, `foreign` those that another
//! program signed, `guard` knows whether OCM's gRPC server can be trusted, and `bundle_policy` whether only the hub
//! sets the trust bundle on CSRs.

pub mod action;
pub mod answerers;
pub(crate) mod bundle_policy;
pub(super) mod dispatcher;
pub(super) mod foreign;
pub(crate) mod guard;
pub mod newest;
pub(super) mod recovery;
mod room;
pub(crate) mod signer;
pub(crate) mod status_writer;
pub(crate) mod unconfirmed;
mod unrecorded;
