//! `ca taint`: marks the key of an authority as possibly compromised.

use anyhow::{Context, bail};
use clap::Args;

use super::connection::{Ca, ChangeArgs};
use super::report::LineageReport;
use addon_signer_api::status::{AuthorityState, AuthorityStatus};
use addon_signer_core::names::ANNOTATION_TAINT;

/// Arguments of `ca taint`.
#[derive(Debug, Clone, Args)]
pub struct TaintArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// The authority, as `ca status` names it [default: the one that signs].
    #[arg(long, value_name = "ID")]
    authority: Option<String>,
}

pub(super) async fn taint(args: TaintArgs) -> anyhow::Result<()> {
    let ChangeArgs { lineage, report: how } = args.change;
    let ca = Ca::connect(&how.connection).await?;
    let (name, before, active) = ca.begun(&lineage).await?;
    let id = args.authority.unwrap_or(active);
    let known = before.authority(&id).with_context(|| before.unknown(&id))?;
    if known.tainted {
        bail!("{id} of {} is tainted already", before.lineage);
    }
    ca.ask(&name, &before, ANNOTATION_TAINT, &id).await?;
    let sentence = format!("Asked the hub to taint {id} of {}. {}", before.lineage, then(&before, known));
    how.asked(&before, &id, &sentence)?;
    if !ca.follows(&how).await {
        return Ok(());
    }
    let has_begun = |report: &LineageReport| report.authority(&id).is_none_or(|authority| authority.tainted);
    let signs_no_more = |report: &LineageReport| {
        has_begun(report) && report.in_state(AuthorityState::Active).is_none_or(|active| active.id != id)
    };
    ca.follow(&name, how.output, None, signs_no_more, has_begun).await.map(drop)
}

/// A sentence on what follows for an authority in this state.
fn then(before: &LineageReport, known: &AuthorityStatus) -> String {
    let next = before.in_state(AuthorityState::Next);
    let follows = match known.state {
        AuthorityState::Next if before.is_issued => "It is dropped; the next one has to come from the issuer.",
        AuthorityState::Next => "Another authority takes its place.",
        AuthorityState::Active if before.is_issued && next.is_none() => {
            "Another authority signs as soon as it has come from the issuer and is trusted."
        }
        AuthorityState::Active => "Another authority signs as soon as it is trusted.",
        AuthorityState::Old => {
            "It stays trusted until its last certificate has expired; `ca revoke` ends that at once."
        }
    };
    // A copied Secret has the keys of all authorities.
    match next.filter(|next| next.id != known.id) {
        Some(next) => format!("{follows} If its Secret was copied, taint {} as well: it is the next to sign.", next.id),
        None => follows.to_owned(),
    }
}
