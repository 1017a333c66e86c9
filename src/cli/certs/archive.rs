//! `certs archive`.

use std::path::PathBuf;

use clap::Args;

use super::{ProgressLine, past};
use crate::ledger::Location;
use crate::ledger::archive::{Archive, Archived, archive};
use crate::output::print;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;

/// Arguments of `certs archive`.
#[derive(Debug, Clone, Args)]
pub struct ArchiveArgs {
    /// The ledger's URL. Its hub may be running.
    #[arg(long, env = "ADDON_SIGNER_LEDGER", value_name = "URL")]
    ledger: Location,
    /// Only entries that were written, and certificates that expired, before this day or time, or this long ago
    /// (8760h).
    #[arg(long, value_name = "TIME", value_parser = past)]
    before: Timestamp,
    /// The file, which must not be there yet. After a crash the same command finishes what it began.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

pub(super) async fn run(args: ArchiveArgs) -> anyhow::Result<()> {
    let line = ProgressLine::new();
    let file = args.to.display().to_string();
    let order = Archive { location: args.ledger, before: args.before, to: args.to, now: Clock::default().now() };
    let moved = archive(order, |done, total| line.show(done, total)).await;
    line.end();
    print(&as_text(&moved?, &file));
    Ok(())
}

fn as_text(moved: &Archived, file: &str) -> String {
    let what = match moved.rows {
        None => "nothing can be archived".to_owned(),
        Some((first, last)) if moved.resumed => format!("finished: rows {first} to {last} are in {file}"),
        Some((first, last)) => format!("rows {first} to {last} are in {file}"),
    };
    format!("{what}\n{}\n", moved.stays)
}
