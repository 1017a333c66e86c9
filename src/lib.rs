//! addon-signer: certificates and an mTLS gateway for the agents of Open Cluster Management addons.
//!
//! This package is the program. What it does is in crates, which Cargo keeps apart:
//!
//! ```text
//! program   cli  process  inventory  demo      parse, wire, run; the only users of anyhow
//! crates    addon-signer-hub                   CSRs, authorities, registrations; the Lease names the leader
//!           addon-signer-gateway               accept, TLS, session, routes, proxy
//!           addon-signer-ledger                the record of decisions: SQLite or PostgreSQL
//!           addon-signer-api, -telemetry       Kubernetes' types; the audit log, metrics, signs of life
//!           addon-signer-platform              clock, Kubernetes clients, crypto provider, logs; the agent has it too
//!           addon-signer-core                  what is decided: values in, values out
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`process`] | the process of signer, gateway or both: first questions, tasks, probes, the age of its view |
//! | [`inventory`] | the ledger as an aggregated, read-only API of the hub's Kubernetes |
//! | [`cli`], `output` | the command line; what commands print |
//! | `demo` | a demonstration on loopback |
//!
//! `ARCHITECTURE.md` follows a request for a certificate, a request through the gateway and a rotation from file to
//! file. `docs/invariants.md` has the invariants, each with the tests that fail when it is broken.

pub mod cli;
#[cfg(feature = "demo")]
pub mod demo;
pub mod inventory;
pub(crate) mod output;
pub mod process;
