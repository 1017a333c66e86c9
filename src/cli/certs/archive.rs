//! `certs archive`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use super::verify::read_checkpoint;
use super::{ProgressLine, past};
use crate::output::print;
use addon_signer_api::Lenient;
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::recording::checkpoints::{CHECKPOINT, LEDGER_OBJECT};
use addon_signer_ledger::Location;
use addon_signer_ledger::archive::{Archive, Archived, archive};
use addon_signer_platform::arguments::Opaque;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::kubeconfig::Access;
use addon_signer_platform::kubernetes;

/// Arguments of `certs archive`.
#[derive(Debug, Clone, Args)]
pub struct ArchiveArgs {
    /// The ledger's URL. Its hub may be running.
    #[arg(long, env = "ADDON_SIGNER_LEDGER", value_name = "URL", hide_env_values = true)]
    ledger: Opaque,
    /// Only entries that were written, and certificates that expired, before this day or time, or this long ago
    /// (8760h).
    #[arg(long, value_name = "TIME", value_parser = past)]
    before: Timestamp,
    /// The file to create, which must not exist yet. After a crash, run the same command again to finish.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// A published checkpoint; its row and all later rows stay [default: head.json of the ConfigMap
    /// addon-signer-ledger].
    #[arg(long = "head", value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
    /// The hub's namespace.
    #[arg(long, env = "ADDON_SIGNER_NAMESPACE", default_value = "addon-signer")]
    namespace: String,
}

pub(super) async fn run(args: ArchiveArgs) -> anyhow::Result<()> {
    let location = Location::read(&args.ledger)?;
    let checkpoint = match &args.checkpoint {
        Some(file) => read_checkpoint(file)?,
        None => published(&args).await.context(
            "the published checkpoint must be known, because its row is never archived; pass it with --head, or use a \
             kubeconfig that may read it",
        )?,
    };
    let line = ProgressLine::new();
    let file = args.to.display().to_string();
    let now = Clock::default().now();
    let order = Archive { location, checkpoint, before: args.before, to: args.to, now };
    let moved = archive(order, |done, total| line.show(done, total)).await;
    line.end();
    print(&as_text(&moved?, &file));
    Ok(())
}

/// The hub's last published checkpoint.
async fn published(args: &ArchiveArgs) -> anyhow::Result<Checkpoint> {
    let client = kubernetes::client(&args.access).await?;
    let maps: Api<Lenient<ConfigMap>> = Api::namespaced(client, &args.namespace);
    let of = format!("the ConfigMap {LEDGER_OBJECT} in the namespace {}", args.namespace);
    let map = maps.get_opt(LEDGER_OBJECT).await.with_context(|| format!("{of} cannot be read"))?;
    let text =
        map.and_then(|map| map.object.data?.remove(CHECKPOINT)).with_context(|| format!("{of} has no {CHECKPOINT}"))?;
    Checkpoint::read(&text).with_context(|| format!("{CHECKPOINT} in {of} cannot be used"))
}

fn as_text(moved: &Archived, file: &str) -> String {
    let what = match moved.rows {
        None => "there is nothing to archive".to_owned(),
        Some((first, last)) if moved.resumed => format!("finished: rows {first} to {last} are in {file}"),
        Some((first, last)) => format!("rows {first} to {last} are in {file}"),
    };
    format!("{what}\n{}\n", moved.stays)
}
