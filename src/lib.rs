//! addon-signer: certificates and an mTLS gateway for the agents of Open Cluster Management addons.

pub mod api;
pub(crate) mod asn1;
pub mod csr;
pub mod embedded;
pub mod identity;
pub mod policy;
pub mod public_key;
pub mod registry;
