//! addon-signer: certificates and an mTLS gateway for the agents of Open Cluster Management addons.

pub mod api;
pub(crate) mod asn1;
pub mod ca;
pub mod clock;
pub mod csr;
pub mod embedded;
pub mod gateway;
pub(crate) mod general_names;
pub(crate) mod hex;
pub mod identity;
pub(crate) mod pem;
pub mod policy;
pub mod private_key;
pub mod public_key;
pub mod registry;
pub mod timestamp;
pub mod trust;
