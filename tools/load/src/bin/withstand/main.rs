//! Measures what others notice of one that asks for too much, on a real API server. docs/figures.md has the figures.
//!
//! ```console
//! $ export KUBEBUILDER_ASSETS=$(tests/real/build.sh)
//! $ cargo run --release --manifest-path tools/Cargo.toml --bin withstand -- --part flood
//! $ cargo run --release --manifest-path tools/Cargo.toml --bin withstand -- --part signers
//! $ cargo run --release --manifest-path tools/Cargo.toml --bin withstand -- --part burst
//! $ cargo run --release --manifest-path tools/Cargo.toml --bin withstand -- --part fleet --clusters 3500
//! $ cargo run --release --manifest-path tools/Cargo.toml --bin withstand -- --part strangers
//! $ cargo run --release --manifest-path tools/Cargo.toml --bin withstand -- --part idle
//! ```
//!
//! The hub is a process of its own; everything else shares the machine with it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a load program fails by panicking"
)]

mod burst;
mod fleet;
mod flood;
mod idle;
mod signers;
mod strangers;
mod world;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use test_kit::built::hub_program;

#[derive(Parser)]
struct Arguments {
    /// What to measure; may be repeated.
    #[arg(long, required = true)]
    part: Vec<Part>,
    /// The hub's program; a release build is made if there is none. That of the image takes less memory.
    #[arg(long)]
    program: Option<PathBuf>,
    /// How many clusters the fleet has.
    #[arg(long, default_value_t = 3_500)]
    clusters: usize,
    /// The gateway that the strangers call, and the directory with the pair of the one that has a certificate.
    #[arg(long, num_args = 2, hide = true)]
    as_strangers: Option<Vec<String>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    /// One cluster's flood of requests, while others enrol.
    Flood,
    /// 101 AddOnSigners: the start, an edit, rest.
    Signers,
    /// 600 AddOnSigners made at once, while another one is edited.
    Burst,
    /// A fleet of clusters with three addons each, with a signer and three gateways: memory, times, calls.
    Fleet,
    /// 10,000 idle connections to the gateway, 1,000 half-open handshakes and a client that resets its requests.
    Strangers,
    /// 2,000 connections to the gateway that make no requests: memory and CPU.
    Idle,
}

#[tokio::main]
async fn main() {
    addon_signer_platform::crypto::install_provider();
    let arguments = Arguments::parse();
    if let Some(of) = arguments.as_strangers {
        return strangers::act(of[0].parse().unwrap(), of[1].as_ref()).await;
    }
    if test_kit::real::assets().is_none() {
        println!("skipped: KUBEBUILDER_ASSETS names no real API server (tests/real/build.sh)");
        return;
    }
    let program = arguments.program.map_or_else(hub_program, |program| program.canonicalize().unwrap());
    for part in arguments.part {
        match part {
            Part::Flood => flood::run(&program).await,
            Part::Signers => signers::run(&program).await,
            Part::Burst => burst::run(&program).await,
            Part::Fleet => fleet::run(&program, arguments.clusters).await,
            Part::Strangers => strangers::run(&program).await,
            Part::Idle => idle::run(&program).await,
        }
    }
}
