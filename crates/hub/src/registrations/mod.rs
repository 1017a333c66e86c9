//! Keeps the registry of registered addons ([`registry`]). For `registration: Managed` it also names our signers in
//! `status.registrations` of every addon that they serve, so that OCM's agent requests a certificate. It does not touch
//! anything else in that status.
//!
//! The hub writes only where nobody else writes. OCM's addon-manager registers addons with AddOnTemplates
//! ([`addon_signer_core::templates`]). If another program keeps removing the hub's entry, the hub puts it back after
//! growing pauses ([`addon_signer_core::doubling`]), and says so in a condition of the addon, which the next hub
//! relies on.

pub mod discovery;
mod later;
mod oversized;
pub mod registry;
pub(crate) mod report;
pub(crate) mod wanted;
mod watch;
pub(crate) mod work;
mod writer;

pub(crate) use watch::keep_templates;
pub use work::SeenAddOn;
pub(crate) use writer::{RegistrationInputs, RegistrationWriter};
