//! The hub.
pub mod registration;
pub mod registry;
pub mod store;
