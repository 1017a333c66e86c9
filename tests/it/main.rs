//! Integration tests: one binary, real sockets on port 0, on the stand-in or on a real API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    reason = "a test fails by panicking"
)]

mod advice;
mod agent;
mod alerts;
mod beside_ocm;
mod checked;
mod cli;
mod cluster;
mod deploy;
mod explained;
mod fleet_status;
mod fleet_waits;
mod gateway;
mod hub;
mod installations;
mod inventory;
mod kit;
mod kubeconfigs;
mod layers;
mod ledger;
mod peers;
mod people;
mod postgres;
mod profiles;
mod reference;
mod requests;
mod secrets;
mod stand_in;
mod stand_in_kubectl;
mod test_hub;
mod whole;
