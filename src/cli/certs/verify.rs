//! `certs verify`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::ProgressLine;
use crate::output::print;
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_ledger::Location;
use addon_signer_ledger::verify::{Check, CheckpointReport, VerifyReport, verify};
use addon_signer_platform::arguments::Opaque;

/// Arguments of `certs verify`.
#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    /// The ledger's URL.
    #[arg(long, env = "ADDON_SIGNER_LEDGER", value_name = "URL", hide_env_values = true)]
    ledger: Opaque,
    /// A published checkpoint, `head.json` of the ConfigMap addon-signer-ledger: it also shows whether the end was cut
    /// off or everything was rewritten. If its row is in an archive, pass that archive too.
    #[arg(long = "head", value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// A file written by `certs archive`; may be repeated, the oldest first.
    #[arg(long, value_name = "FILE")]
    archive: Vec<PathBuf>,
}

pub(super) async fn run(args: VerifyArgs) -> anyhow::Result<()> {
    let location = Location::read(&args.ledger)?;
    let checkpoint = args.checkpoint.map(|file| read_checkpoint(&file)).transpose()?;
    let line = ProgressLine::new();
    let check = Check { location: location.clone(), checkpoint, archives: args.archive };
    let checked = verify(check, |progress| line.show(progress.done, progress.total)).await;
    line.end();
    let report = checked.with_context(|| format!("{location} does not verify"))?;
    print(&as_text(&report));
    Ok(())
}

/// Reads a checkpoint from a file.
pub(super) fn read_checkpoint(file: &std::path::Path) -> anyhow::Result<Checkpoint> {
    let cannot = || format!("the checkpoint {} cannot be used", file.display());
    let text = std::fs::read_to_string(file).with_context(cannot)?;
    Checkpoint::read(text.trim()).with_context(cannot)
}

fn as_text(report: &VerifyReport) -> String {
    let VerifyReport { ledger, first, tip, certificates, unchecked, checkpoint } = report;
    let mut lines = vec![
        format!("good: the ledger {ledger}"),
        format!("rows {first} to {}, the last has the hash {}", tip.seq, tip.hash),
        format!("{certificates} certificates in its index match the entries"),
        "its schema is unaltered, and lists leave none of these certificates out".to_owned(),
    ];
    if *unchecked > 0 {
        lines.push(format!("rows 1 to {unchecked} are in archives and were not checked: pass them with --archive"));
    }
    lines.extend(checkpoint.as_ref().map(checkpoint_text));
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

fn checkpoint_text(report: &CheckpointReport) -> String {
    let CheckpointReport { checkpoint, key_is_recorded } = report;
    let key = match key_is_recorded {
        true => format!("its key {} is the one named in the ledger", checkpoint.key),
        false => format!("compare its key with your own copy: {}", checkpoint.key),
    };
    format!("the checkpoint of {} vouches for the rows up to {}; {key}", checkpoint.time, checkpoint.seq)
}
