//! `certs verify`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::ProgressLine;
use crate::ledger::Location;
use crate::ledger::verify::{Check, HeadReport, VerifyReport, verify};
use crate::output::print;
use addon_signer_core::journal::head::Head;

/// What `certs verify` is told.
#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    /// The ledger's URL.
    #[arg(long, env = "ADDON_SIGNER_LEDGER", value_name = "URL")]
    ledger: Location,
    /// A published head, `head.json` of the ConfigMap addon-signer-ledger: shows also whether the end was cut off, or
    /// everything was made anew.
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
    /// A file that `certs archive` made; several oldest first.
    #[arg(long, value_name = "FILE")]
    archive: Vec<PathBuf>,
}

pub(super) async fn run(args: VerifyArgs) -> anyhow::Result<()> {
    let head = args.head.map(|file| read_head(&file)).transpose()?;
    let line = ProgressLine::new();
    let check = Check { location: args.ledger.clone(), head, archives: args.archive };
    let checked = verify(check, |progress| line.show(progress.done, progress.total)).await;
    line.end();
    let report = checked.with_context(|| format!("{} is not good", args.ledger))?;
    print(&as_text(&report));
    Ok(())
}

fn read_head(file: &std::path::Path) -> anyhow::Result<Head> {
    let cannot = || format!("the head {} cannot be used", file.display());
    let text = std::fs::read_to_string(file).with_context(cannot)?;
    Head::read(text.trim()).with_context(cannot)
}

fn as_text(report: &VerifyReport) -> String {
    let VerifyReport { ledger, first, tip, certificates, unchecked, head } = report;
    let mut lines = vec![
        format!("good: the ledger {ledger}"),
        format!("rows {first} to {}, the last has the hash {}", tip.seq, tip.hash),
        format!("{certificates} certificates in its index are as the entries say"),
    ];
    if *unchecked > 0 {
        lines.push(format!("rows 1 to {unchecked} are in archives and were not checked: give them with --archive"));
    }
    lines.extend(head.as_ref().map(head_text));
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

fn head_text(report: &HeadReport) -> String {
    let HeadReport { head, covers, key_is_recorded } = report;
    if !covers {
        return format!(
            "the head of {} is of row {}, which is in an archive: give it with --archive",
            head.time, head.seq
        );
    }
    let key = match key_is_recorded {
        true => format!("its key {} is the one that the ledger names", head.key),
        false => format!("compare its key with the one that you keep: {}", head.key),
    };
    format!("the head of {} vouches for the rows up to {}; {key}", head.time, head.seq)
}
