//! What the integration tests and the load programs share: a hub, OCM's objects on it, OCM's own agent, a gateway, and
//! other programs.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    reason = "a test fails by panicking, and its helpers have no users outside"
)]

pub mod accounts;

pub mod audit_log;
pub mod built;
pub mod cert_manager;
pub mod company;
pub mod counted;
pub mod crds;
pub mod cut;
pub mod deploy;
pub mod frozen;
pub mod gate;
pub mod gateway;
pub mod gateways;
pub mod hub;
pub mod issue;
pub mod kubelet;
pub mod lease;
pub mod log;
pub mod moved;
pub mod needed;
pub mod objects;
pub mod ocm;
pub mod pki;
pub mod postgres;
pub mod process;
pub mod programs;
pub mod quick;
pub mod real;
pub mod request;
pub mod rights;
pub mod rules;
pub mod secrets;
pub mod silence;
pub mod soak;
pub mod store;
mod test_hub;
pub mod tunnels;
pub mod wait;

pub use objects::{accept_cluster, install_addon};
pub use real::RealHub;
pub use test_hub::{AddOnApi, TestHub, client};
pub use wait::{wait_for, wait_until};
