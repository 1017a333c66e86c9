//! Who is registered ([`registry`]), and what `registration: Managed` means: names our signers in
//! `status.registrations` of every addon that they serve, so that OCM's agent asks for a certificate, and leaves
//! everything else in that status alone.
//!
//! It is written where nobody else writes it. An addon with AddOnTemplates is the addon-manager's ([`templates`]);
//! where another program turns out to write the list, ours is put back a few times and then left ([`addon_signer_core::disputes`]).

mod discovery;
mod later;
pub mod registry;
pub mod report;
pub mod templates;
pub mod wanted;
mod watch;
mod work;
mod writer;

pub(in crate::hub) use watch::keep_templates;
pub use work::SeenAddOn;
pub use writer::{RegistrationInputs, RegistrationWriter};
