//! `ca bundle`: the anchors of a lineage, for a verifier of one's own.

use anyhow::bail;
use clap::{ArgGroup, Args, ValueEnum};

use super::connection::{Ca, ConnectionArgs};
use super::lineage::LineageArgs;
use crate::output::{print, print_json};

/// Arguments of `ca bundle`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["signer", "serving", "gateway_client"])))]
pub struct BundleArgs {
    #[command(flatten)]
    lineage: LineageArgs,
    /// The output format.
    #[arg(long, value_enum, default_value_t = BundleFormat::Pem)]
    output: BundleFormat,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BundleFormat {
    /// The certificates alone.
    Pem,
    /// With id, state and times of each authority.
    Json,
}

pub(super) async fn bundle(args: BundleArgs) -> anyhow::Result<()> {
    let (_, report, _) = Ca::connect(&args.connection).await?.begun(&args.lineage).await?;
    let pem: String = report.authorities.iter().filter_map(|authority| authority.certificate.as_deref()).collect();
    if pem.is_empty() {
        bail!("the hub does not serve {}: {}", report.lineage, report.problem.unwrap_or_default());
    }
    match args.output {
        BundleFormat::Pem => print(&pem),
        BundleFormat::Json => print_json(&report.authorities)?,
    }
    Ok(())
}
