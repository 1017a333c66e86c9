//! `ca advance`: takes the next step of a rotation before it is due, if that locks out no agent.

use std::collections::BTreeSet;
use std::io::{IsTerminal, stdin};

use anyhow::bail;
use clap::{ArgGroup, Args};

use super::affected::{Affected, Refused};
use super::connection::{Ca, ReportArgs};
use super::follow_rotation;
use super::plan::{NextStep, StepPlan};
use super::report::{LineageArgs, LineageName, LineageReport};
use super::revoke_authority::{follow_loss, is_typed};
use crate::cli::caller::CommandUser;
use crate::output::{Format, ask};
use addon_signer_api::status::AuthorityState;
use addon_signer_core::ca::exception::Exception;
use addon_signer_core::ca::lineage::NO_WORKS;
use addon_signer_core::identity::ClusterName;
use addon_signer_core::names::{ANNOTATION_ADVANCE, ANNOTATION_REVOKE_AUTHORITY};
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_platform::clock::Clock;

/// The value of --except that stands for all clusters.
const ALL: &str = "all";

/// Arguments of `ca advance`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["signer", "serving", "gateway_client"])))]
pub struct AdvanceArgs {
    #[command(flatten)]
    lineage: LineageArgs,
    /// With --serving: proceed without this cluster; may be repeated, and a later `ca advance` adds to the list. Its
    /// agents may not trust the gateway until they have the bundle. With `all`, the command lists the clusters that
    /// lack it, and asks you to type the authority's id.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',', conflicts_with_all = ["signer", "gateway_client"])]
    except: Vec<ClusterName>,
    #[command(flatten)]
    report: ReportArgs,
}

pub(super) async fn advance(args: AdvanceArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&args.report.connection).await?;
    let (name, before, active) = ca.begun(&args.lineage).await?;
    if let LineageName::Signer(_) = name {
        return advance_signer(&ca, &name, &args.report, &before, &active).await;
    }
    let Some(next) = before.in_state(AuthorityState::Next) else {
        bail!(
            "no authority of {} is waiting to sign: `addon-signer ca rotate {name}` starts a rotation",
            before.lineage
        );
    };
    if name == LineageName::Gateway(GatewayCertificate::Serving) {
        let waiting = waiting_for(&before);
        let refused = |remedy| Err(Refused(format!("{} waits for {waiting}. {remedy}", next.id)).into());
        if waiting.contains(NO_WORKS) {
            return refused("Agents get the anchor with their next certificates, or at once with trust.manifestWorks");
        }
        if args.except.is_empty() {
            return refused("`--except CLUSTER` goes on without a cluster, `--except all` without all that lack it");
        }
    }
    let without = match args.except.iter().any(|cluster| cluster.as_str() == ALL) {
        true => all_awaited(&ca, &next.id, args.report.output).await?,
        false => args.except.into_iter().collect(),
    };
    let CommandUser { user, .. } = CommandUser::ask(&ca.client).await;
    let now = Clock::default().now();
    let with_others = |present: &str| {
        // Another administrator may have named other clusters.
        let all: BTreeSet<_> = without.iter().cloned().chain(Exception::named(present, &next.id)).collect();
        Exception::text(&next.id, &all, now, &user)
    };
    ca.annotate(&name, &before, ANNOTATION_ADVANCE, with_others).await?;
    let names: Vec<_> = without.iter().map(ClusterName::as_str).collect();
    let whom = if names.is_empty() { "the owners of backends".to_owned() } else { names.join(", ") };
    let sentence = format!(
        "Asked the hub to let {} sign without waiting for: {whom}. It still waits for everything else that `ca status` \
         lists.",
        next.id
    );
    args.report.asked(&before, &next.id, &sentence)?;
    follow_rotation(&ca, &name, &args.report, &active).await
}

/// The clusters that lack the gateway's next anchor, once the administrator has seen them and has typed the id.
async fn all_awaited(ca: &Ca, id: &str, output: Format) -> anyhow::Result<BTreeSet<ClusterName>> {
    let lacking = Affected::awaited(ca).await?;
    if lacking.addons.is_empty() {
        bail!("no addon on a cluster lacks the anchor: {id} waits for something else, which `ca status` names");
    }
    if !stdin().is_terminal() {
        let sentence = format!("{}; without a terminal, name the clusters of --except", lacking.count());
        return Err(lacking.refused(output, sentence));
    }
    ask(&format!("{}To let {id} sign on {} without these, type this id again: ", lacking.as_table(), ca.cluster));
    is_typed(id, &mut stdin().lock())?;
    Ok(lacking.addons.iter().filter_map(|addon| addon.cluster.parse().ok()).collect()) // names of objects are good
}

/// Removes the Old authority of an AddOnSigner if no agent depends on it any more.
async fn advance_signer(
    ca: &Ca,
    name: &LineageName,
    args: &ReportArgs,
    before: &LineageReport,
    active: &str,
) -> anyhow::Result<()> {
    let StepPlan { step, authority, affected, .. } = StepPlan::of(ca, name, before, active).await?;
    match step {
        NextStep::Prepare => bail!("no rotation of {name} is under way: `addon-signer ca rotate {name}` starts one"),
        // A certificate that a gateway does not trust would lock out its holder.
        NextStep::Activate => Err(Refused(format!("{authority} waits for {}", waiting_for(before))).into()),
        NextStep::Revoke => {
            bail!("{authority} of {name} is to be revoked, and waits for another authority from the issuer")
        }
        NextStep::Finish if affected.is_nobody() => {
            ca.ask(name, before, ANNOTATION_REVOKE_AUTHORITY, &authority).await?;
            let sentence = format!("Asked the hub to remove {authority} of {name}: no agent depends on it any more.");
            args.asked(before, &authority, &sentence)?;
            follow_loss(ca, name, args, &authority).await
        }
        NextStep::Finish => {
            let sentence =
                format!("{}; `addon-signer ca revoke {name} {authority}` removes it all the same", affected.count());
            Err(affected.refused(args.output, sentence))
        }
    }
}

/// What the next step is waiting for.
fn waiting_for(report: &LineageReport) -> String {
    let waiting = report.rotation.as_ref().and_then(|rotation| rotation.waiting_for.clone());
    waiting.unwrap_or_else(|| "the hub, which lets it sign by itself".to_owned())
}
