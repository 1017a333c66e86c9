//! addon-signer: certificates and an mTLS gateway for the agents of Open Cluster Management addons.

pub mod agent;
pub mod api;
pub mod app;
pub(crate) mod asn1;
pub(crate) mod audit;
pub mod ca;
pub mod cli;
pub mod clock;
pub mod csr;
pub mod demo;
pub mod embedded;
pub mod gateway;
pub(crate) mod general_names;
pub(crate) mod hex;
pub mod hub;
pub mod identity;
pub(crate) mod output;
pub(crate) mod pem;
pub mod policy;
pub mod private_key;
pub mod public_key;
pub mod rate;
pub mod registry;
pub mod telemetry;
pub mod timestamp;
pub mod trust;
