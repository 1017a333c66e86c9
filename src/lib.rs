//! addon-signer: certificates and an mTLS gateway for the agents of Open Cluster Management addons.

pub mod api;
pub mod embedded;
