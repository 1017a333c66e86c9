//! The hub: signers, authorities, registrations. One task per line of authorities, one per signer name, two watches for the
//! registry; [`supervisor`] starts and stops them as AddOnSigners come and go.

pub mod answers;
mod backoff;
pub mod board;
pub mod keeper;
pub mod plan;
pub mod registration;
pub mod registry;
pub mod signer;
pub mod status;
pub mod store;
pub mod supervisor;
