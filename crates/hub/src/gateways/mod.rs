//! Gateways in processes of their own. A signer and its gateways talk through objects of Kubernetes alone: a gateway
//! reads in `trust` whom to trust, and reports in its Lease (`lease`) what it trusts; the signer reads these Leases in
//! `replicas`. [`Follower`] is the part of such a gateway that reads.

mod follower;
mod lease;
pub(crate) mod replicas;
mod trust;

pub use follower::{Follower, FollowerParts, FollowerSettings};
pub use lease::{GatewayLease, GatewayLeaseError, LEASES, LeaseKeeper};
pub use trust::keep as keep_trust;
