//! The decisions of addon-signer, as functions from values to values.
//!
//! Nothing here reads the clock, a file, a socket or random numbers; time and random numbers are arguments.
//! `Cargo.toml` and `clippy.toml` of this crate enforce that. The fuzz targets build only this crate.
//!
//! | module | content |
//! |---|---|
//! | [`identity`] | names of clusters, addons and agents; the convention that makes them one user; signer names |
//! | [`csr`] | PKCS#10 CSRs: read strictly, with proof of possession of the key; [`csr::build`] writes one |
//! | [`policy`] | the rules; makes a [`policy::Approved`], or a [`policy::Refusal`] that names the broken rule |
//! | [`ca`] | an authority, the trust bundle, the issuer, a lineage of authorities and its next step |
//! | [`issuing`] | the order in which a certificate is recorded, signed and published |
//! | [`registry`] | which addon of which cluster is registered, and which of its certificates are revoked |
//! | [`certification`] | whether an addon on a cluster has a certificate, and if not, what it waits for |
//! | [`trust`] | what the hub passes to the gateway: whom to trust for what, and where requests go |
//! | [`gateway`] | the identity of a certificate, the route of a path, the headers that cross |
//! | [`journal`] | the ledger's format: entries, the chain of their hashes, signed checkpoints, the checks of them |
//! | [`ownership`] | which AddOnSigner owns a signer name or an addon that several name |
//! | [`rate`], [`throttle`] | how many certificates an identity gets; how many similar events are written |
//! | [`queue`] | whose turn it is, so that no tenant starves another |
//! | [`doubling`] | pauses after failures, and before writing again what another program keeps changing back |
//! | [`bounded`] | reads untrusted JSON in bounded memory |
//! | [`usage`] | when and from where each certificate was last used |
//! | [`templates`] | which addons OCM's addon-manager registers |
//! | [`query`] | questions about the ledger, from the command line and over HTTP |
//! | [`lease`] | what to do about the Lease that decides which hub leads |
//! | [`credentials`] | what an agent stores, and whether it keeps, renews or replaces it |
//! | [`keys`] | private keys that sign, are never printed and are wiped; kinds of public keys |
//! | [`names`], [`conditions`] | names, conditions and reasons that others rely on, as `docs/reference.md` has them |
//! | [`encoding`], [`timestamp`] | ASN.1, PEM, names in certificates; seconds since 1970 |
//! | [`units`] | durations and sizes as people write them |
#![cfg_attr(test, allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests make keys"))]

pub mod bounded;
pub mod ca;
pub mod certification;
pub mod conditions;
pub mod credentials;
pub mod csr;
pub mod doubling;
pub mod encoding;
pub mod gateway;
pub mod identity;
pub mod issuing;
pub mod journal;
pub mod keys;
pub mod lease;
pub mod list;
pub mod names;
pub mod oldest;
pub mod ownership;
pub mod policy;
pub mod query;
pub mod queue;
pub mod rate;
pub mod registry;
pub mod templates;
pub mod throttle;
pub mod timestamp;
pub mod trust;
pub mod units;
pub mod usage;
