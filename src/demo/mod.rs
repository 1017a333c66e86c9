//! `addon-signer demo`: the whole loop in one process, on loopback, without Kubernetes.
//!
//! An embedded hub stands in for the API server; everything else is what runs in production: hub, gateway, agents.

mod ledger;
mod steps;
mod traffic;
mod upstream;

use std::path::PathBuf;

use clap::Args;

/// Run everything in this process, on loopback, without Kubernetes: enrol, call, refuse, rotate.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Leave everything running afterwards, and print a kubeconfig and commands for kubectl and curl. Ctrl-C ends it.
    #[arg(long)]
    keep: bool,
    /// Where the agents keep their certificates [default: a directory that is removed at the end].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the demonstration.
///
/// # Errors
/// The step that failed, and why. A single failed request during the rotation is a failure.
pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let directory = match &args.dir {
        Some(path) => {
            std::fs::create_dir_all(path)?;
            Directory { path: path.clone(), remove: false }
        }
        None => Directory::temporary()?,
    };
    steps::run(&args, &directory.path).await
}

/// Removed when dropped, unless the user named it.
struct Directory {
    path: PathBuf,
    remove: bool,
}

impl Directory {
    fn temporary() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("addon-signer-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self { path, remove: true })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.remove
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("addon-signer: {} could not be removed: {error}", self.path.display());
        }
    }
}
