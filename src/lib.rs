//! addon-signer: certificates and an mTLS gateway for the agents of Open Cluster Management addons.
//!
//! # The map
//!
//! Dependencies go down only. The compiler keeps the crates apart; `tests/it/layers` checks the imports of the modules.
//!
//! ```text
//! program   main  cli  app  probe  demo      parse, wire, run; the only users of anyhow
//! shell     hub   gateway   inventory        talk, wait, log; none of them imports another
//!           ledger                           the record of decisions: SQLite or PostgreSQL
//! cross     api  audit  telemetry  listener  Kubernetes' types, decisions as JSON, metrics, accepting TLS
//! crates    addon-signer-core                what is decided: values in, values out
//!           addon-signer-platform            clock, Kubernetes clients, crypto provider, logs; the agent has it too
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`hub`] | requests, authorities, registrations, status; `recording` feeds the ledger; `lease` says who leads |
//! | [`gateway`] | accept, TLS, session, routes, proxy; its own serving certificate |
//! | [`inventory`] | the ledger as an aggregated, read-only API of the hub's Kubernetes |
//! | [`ledger`] | one writer on SQLite or PostgreSQL, readers, the check of a whole ledger |
//! | [`api`] | AddOnSigner and its CRD, its conversion to the core's types, the parts of OCM's types that we use |
//! | [`telemetry`], [`audit`], `listener`, `output` | metrics, the audit log, the accept loop, what commands print |
//! | `open_files`, `backoff` | raises the limit of open files; pauses before something is tried again |
//! | [`app`], `tasks`, `preflight`, `probe` | the process of hub and gateway; what it asks first; what it is asked |
//! | [`pulse`], [`registry_age`] | which tasks live; how old is what the hub knows |
//! | [`cli`], `demo` | the command line; a demonstration on loopback |
//!
//! `ARCHITECTURE.md` follows a request for a certificate, a call through the gateway and a rotation from file to file.
//! `SECURITY.md` has the invariants, each with the tests that fail when it is broken.

pub mod cli;
#[cfg(feature = "demo")]
pub mod demo;
pub mod inventory;
pub(crate) mod output;
pub mod process;
