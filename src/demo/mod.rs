//! `addon-signer demo`: the whole loop in one process, on loopback, without Kubernetes.
//!
//! A stand-in serves as the API server; everything else is what runs in production: hub, gateway, agents.

mod backend;
mod objects;
mod steps;
mod traffic;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

const ADDON: &str = "telemetry";
const SIGNER: &str = "example.com/telemetry";
/// The namespace of the backend.
const BACKENDS: &str = "observability";

/// Run everything in this process, on loopback, without Kubernetes: enrol, send requests, refuse, rotate.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Leave everything running afterwards, and print a kubeconfig and commands for kubectl and curl. Ctrl-C ends it.
    #[arg(long)]
    keep: bool,
    /// Where the agents keep their certificates, and where the ledger is [default: a directory that is removed at the
    /// end].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the demonstration.
///
/// # Errors
/// The step that failed, and why. A single failed request is a failure.
pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let Some(path) = args.dir.clone() else {
        let directory = tempfile::Builder::new().prefix("addon-signer-demo-").tempdir()?;
        steps::run(&args, directory.path()).await?;
        let path = directory.path().display().to_string();
        return directory.close().with_context(|| format!("{path} could not be removed"));
    };
    std::fs::create_dir_all(&path)?;
    steps::run(&args, &path).await
}
