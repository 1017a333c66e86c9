//! `addon-signer status`: which addons on which clusters are not ready, and what each one is waiting for.

mod certificates;
mod gather;
mod reported;
mod row;
mod signers;
mod state;

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::anyhow;
use clap::Args;

use super::certs::{LedgerSource, SourceArgs};
use super::leader::leader;
use crate::output::{Format, Rows, tell};
use addon_signer_core::identity::{AddOnName, ClusterName};
use addon_signer_platform::kubernetes;
pub(in crate::cli) use gather::{Gathered, Selection, gather};
pub(in crate::cli) use reported::Reported;
pub(in crate::cli) use row::Row;
pub(in crate::cli) use signers::TrustBy;
pub(in crate::cli) use state::AgentState;

/// Arguments of `status`.
#[derive(Debug, Clone, Args)]
pub struct FleetArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Only this addon.
    #[arg(long, value_name = "NAME")]
    addon: Option<AddOnName>,
    /// Only this cluster.
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    #[command(flatten)]
    paging: Paging,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// The hub's namespace.
    #[arg(long, env = "ADDON_SIGNER_NAMESPACE", default_value = "addon-signer")]
    namespace: String,
}

/// Which rows to print.
#[derive(Debug, Clone, Args)]
struct Paging {
    /// How many to print, at least 1.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Which page of that size; the worst are on page 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    page: u64,
    /// Print all of them.
    #[arg(long, conflicts_with_all = ["limit", "page"])]
    all: bool,
}

impl Paging {
    /// Which of this many rows to print, and how many pages there are.
    fn of(&self, rows: usize) -> (Range<usize>, usize) {
        if self.all {
            return (0..rows, 1);
        }
        let [limit, page] = [self.limit, self.page].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let [begin, end] = [page - 1, page].map(|pages| pages.saturating_mul(limit).min(rows));
        (begin..end, rows.div_ceil(limit))
    }
}

/// Prints the worst rows first, and on standard error the number of rows in each state.
///
/// # Errors
/// One sentence on what the API server did not list.
pub async fn run(args: FleetArgs) -> anyhow::Result<()> {
    args.source.location()?; // wrong usage is reported before anything is asked
    let client = kubernetes::client(&args.source.access).await?;
    let wanted = Selection { addon: args.addon, cluster: args.cluster };
    let ledger = LedgerSource::open(args.source).await;
    let gathered = gather(&client, ledger, &args.namespace, &wanted).await?;
    let rows = &gathered.rows;
    let (page, last) = args.paging.of(rows.len());
    let shown = rows.get(page.clone()).unwrap_or_default();
    args.output.print(shown, as_table)?;
    tell(&summary(rows));
    if let Some(why) = &gathered.no_ledger {
        tell(&format!("{}, because the ledger was not asked: {why}", gathered.without_ledger()));
    }
    if page.end < rows.len() {
        tell(&format!("There are more: --page {} of {last}, or --all.", args.paging.page.saturating_add(1)));
    } else if shown.is_empty() && !rows.is_empty() {
        tell(&format!("The last page is --page {last}."));
    }
    if rows.is_empty() && wanted.is_narrow() {
        tell("No addon that an AddOnSigner lists is installed under these names; `status` alone lists all.");
    }
    for note in gathered.notes() {
        tell(&format!("Note: {note}."));
    }
    leader(&client, &args.namespace).await?.map(drop).map_err(|nobody| anyhow!("this may be old: {nobody}"))
}

fn as_table(rows: &[Row]) -> String {
    let mut lines =
        Rows::new(&["CLUSTER", "ADDON", "STATE", "VALID UNTIL", "AUTHORITY", "LAST SEEN", "TRUST", "WAITS FOR"]);
    for row in rows {
        let time = |time: Option<_>| time.map_or_else(|| "-".to_owned(), |time| format!("{time}"));
        let trust = match (row.trust_by, row.has_trust) {
            (_, Some(true)) => "present",
            (_, Some(false)) => "missing",
            (TrustBy::Agent, None) => "agent?",
            (TrustBy::Nothing, None) => "nothing",
            (TrustBy::ManifestWork | TrustBy::Other, None) => "-",
        };
        lines.add([
            row.cluster.as_str(),
            row.addon.as_str(),
            &format!("{:?}", row.state),
            &time(row.valid_until),
            row.authority.as_deref().unwrap_or("-"),
            &time(row.last_seen),
            trust,
            row.waits_for.as_deref().unwrap_or("-"),
        ]);
    }
    lines.render()
}

/// The number of rows in each state, the worst first.
fn summary(rows: &[Row]) -> String {
    let mut counts: BTreeMap<AgentState, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.state).or_default() += 1;
    }
    let counts: Vec<String> = counts.into_iter().map(|(state, count)| format!("{count} {state:?}")).collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    format!("{} addons on clusters: {counts}", rows.len())
}
