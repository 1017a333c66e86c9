//! What both programs share: the clock, Kubernetes clients, the crypto provider, logs.

pub mod arguments;
pub mod backoff;
pub mod clock;
pub mod connection;
pub mod contacts;
mod credentials;
pub mod crypto;
pub mod errors;
pub mod kubeconfig;
pub mod kubernetes;
pub mod listen;
pub mod listing;
pub mod logs;
mod pages;
pub mod process_group;
pub mod proxy;
pub mod terminal;
pub mod version;
