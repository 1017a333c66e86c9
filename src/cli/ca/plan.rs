//! `ca plan`: the next step of a rotation, and which agents it would lock out if it were taken now.

use clap::{ArgGroup, Args};
use serde::Serialize;

use super::affected::{Affected, Refused};
use super::connection::{Ca, ConnectionArgs};
use super::report::{LineageArgs, LineageName, LineageReport};
use crate::output::Format;
use addon_signer_api::status::{AuthorityState, AuthorityStatus, RotationPhase};
use addon_signer_core::policy::GatewayCertificate;

/// Arguments of `ca plan`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["signer", "serving", "gateway_client"])))]
pub struct PlanArgs {
    #[command(flatten)]
    lineage: LineageArgs,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The next step of a lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum NextStep {
    /// A new authority is made, at the request of an administrator or by age. It locks out no agent.
    Prepare,
    /// Next signs.
    Activate,
    /// The Old authority is removed with its key.
    Finish,
    /// The authority to revoke is removed, once the issuer has issued another one.
    Revoke,
}

/// The step, and which agents it would lock out.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepPlan {
    lineage: String,
    pub(super) step: NextStep,
    /// The authority that it is about.
    pub(super) authority: String,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waiting_for: Option<String>,
    pub(super) affected: Affected,
}

impl StepPlan {
    /// Judges the present state of a lineage.
    ///
    /// # Errors
    /// One sentence on what the API server did not list.
    pub(super) async fn of(ca: &Ca, name: &LineageName, report: &LineageReport, active: &str) -> anyhow::Result<Self> {
        let phase = report.rotation.as_ref().map(|rotation| rotation.phase);
        let waiting_for = report.rotation.as_ref().and_then(|rotation| rotation.waiting_for.clone());
        let waiting_for = waiting_for.or_else(|| report.waits.clone());
        let (step, authority) = match (phase, report.in_state(AuthorityState::Next), oldest(report)) {
            _ if let Some(doomed) = report.to_revoke() => (NextStep::Revoke, doomed.id.clone()),
            (Some(RotationPhase::Activate), Some(next), _) => (NextStep::Activate, next.id.clone()),
            (Some(RotationPhase::Finish), _, Some(old)) => (NextStep::Finish, old.id.clone()),
            _ => (NextStep::Prepare, active.to_owned()),
        };
        let affected = match (step, name, &waiting_for) {
            (NextStep::Prepare, ..) | (NextStep::Activate, _, None) => Affected::default(),
            (NextStep::Finish | NextStep::Revoke, ..) => Affected::by_loss(ca, name, report, &authority).await?,
            (NextStep::Activate, LineageName::Gateway(GatewayCertificate::Serving), Some(waiting)) => {
                let lacking = Affected::without_anchor(ca, true).await?;
                // Clusters have applied it, but pods may not have read it yet.
                if lacking.is_nobody() { Affected::unknown(waiting) } else { lacking }
            }
            // The step waits for gateways or backends.
            (NextStep::Activate, _, Some(waiting)) => Affected::unknown(waiting),
        };
        Ok(Self { lineage: report.lineage.clone(), step, authority, waiting_for, affected })
    }

    fn as_text(&self) -> String {
        let Self { lineage, authority, .. } = self;
        let mut text = match self.step {
            NextStep::Prepare if self.waiting_for.is_some() => format!("{lineage}: a new authority is due.\n"),
            NextStep::Prepare => {
                let by = format!("with `ca rotate`, or by the age of {authority}");
                format!("{lineage}: no rotation is under way. The next one begins {by}.\n")
            }
            NextStep::Activate => format!("{lineage}: the next step lets {authority} sign.\n"),
            NextStep::Finish => format!("{lineage}: the next step removes {authority} with its key.\n"),
            NextStep::Revoke => format!("{lineage}: {authority} is revoked as soon as another authority can sign.\n"),
        };
        self.waiting_for.iter().for_each(|what| text.push_str(&format!("The lineage is waiting for: {what}\n")));
        text + "\nIf it were taken now:\n" + &self.affected.as_table()
    }
}

/// The Old authority that is removed first: the one whose certificates expire first.
fn oldest(report: &LineageReport) -> Option<&AuthorityStatus> {
    let old = report.authorities.iter().filter(|authority| authority.state == AuthorityState::Old);
    old.min_by_key(|authority| authority.last_leaf_expires)
}

pub(super) async fn plan(args: PlanArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&args.connection).await?;
    let (name, report, active) = ca.begun(&args.lineage).await?;
    let plan = StepPlan::of(&ca, &name, &report, &active).await?;
    args.output.print(&plan, StepPlan::as_text)?;
    if plan.affected.is_nobody() { Ok(()) } else { Err(Refused(plan.affected.count()).into()) }
}
