//! `addon-signer ca`: inspects and rotates authorities, through the Kubernetes API with the caller's kubeconfig.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::{ArgGroup, Args, Subcommand};

use super::caller::CommandUser;
use crate::output::{Format, print, print_json};
use addon_signer_api::status::AuthorityState;
use addon_signer_core::identity::ClusterName;
use addon_signer_core::names::{ANNOTATION_ADVANCE, ANNOTATION_ROTATE};
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::waiver::Waiver;
use addon_signer_platform::clock::Clock;
pub(super) use affected::Refused;
use bundle::{BundleArgs, bundle};
use connection::{Ca, ChangeArgs, ConnectionArgs, LOOK};
use import::{CsrArgs, ImportArgs, csr, import};
use line::{LineArgs, LineName};
use plan::{PlanArgs, plan};
use report::{LineReport, as_table};
use revoke::{RevokeArgs, revoke};
use rollback::rollback;
use taint::{TaintArgs, taint};

mod affected;
mod bundle;
mod connection;
mod import;
mod line;
mod plan;
mod report;
mod revoke;
mod rollback;
mod taint;

/// Inspect and rotate certificate authorities.
#[derive(Debug, Clone, Subcommand)]
pub enum CaCommand {
    /// Show the authorities of all signers, of one, or of the gateway.
    Status(StatusArgs),
    /// Replace the signing authority with a new one, without interruption.
    Rotate(ChangeArgs),
    /// Let the gateway's next authority sign before everybody is known to trust it.
    Advance(AdvanceArgs),
    /// Print the trust anchors of a signer or of the gateway.
    Bundle(BundleArgs),
    /// Print the certificate request of the next authority, for the CA above it.
    Csr(CsrArgs),
    /// Bring the certificate for the request of `ca csr`; it becomes the next authority.
    Import(ImportArgs),
    /// Undo the last step of a rotation: drop the next authority, or let the previous one sign again.
    Rollback(ChangeArgs),
    /// Say that somebody else may know the key of an authority: another one replaces it as soon as it is trusted.
    Taint(TaintArgs),
    /// Remove an authority with its key at once, whatever depends on it.
    Revoke(RevokeArgs),
    /// Show the next step of a rotation, and whom it would lock out if it were taken now.
    Plan(PlanArgs),
}

/// Arguments of `ca status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Which line [default: all].
    #[command(flatten)]
    line: LineArgs,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Print every change, until no rotation is under way.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Arguments of `ca advance`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["serving", "gateway_client"])))]
pub struct AdvanceArgs {
    /// The gateway's serving authority.
    #[arg(long, requires = "except")]
    serving: bool,
    /// The authority of the certificate that the gateway shows to backends. All of them must trust the new one.
    #[arg(long, conflicts_with = "except")]
    gateway_client: bool,
    /// Proceed without this cluster; may be repeated. Its agents may not trust the gateway until they have the bundle.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    except: Vec<ClusterName>,
    /// Show progress, and return once the new authority is signing.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Runs one of the commands.
///
/// # Errors
/// One sentence on what the API server refused, or what is missing.
pub async fn run(command: CaCommand) -> anyhow::Result<()> {
    match command {
        CaCommand::Status(args) => status(args).await,
        CaCommand::Rotate(args) => rotate(args).await,
        CaCommand::Advance(args) => advance(args).await,
        CaCommand::Bundle(args) => bundle(args).await,
        CaCommand::Csr(args) => csr(args).await,
        CaCommand::Import(args) => import(args).await,
        CaCommand::Rollback(args) => rollback(args).await,
        CaCommand::Taint(args) => taint(args).await,
        CaCommand::Revoke(args) => revoke(args).await,
        CaCommand::Plan(args) => plan(args).await,
    }
}

async fn status(args: StatusArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&args.connection).await?;
    let mut printed = None;
    loop {
        let reports = ca.reports(args.line.name()).await?;
        let settled = reports.iter().all(|report| report.rotation.is_none());
        if printed.as_ref() != Some(&reports) {
            match args.output {
                Format::Table => print(&as_table(&reports)),
                Format::Json => print_json(&reports)?,
            }
            printed = Some(reports);
        }
        if settled || !args.watch {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn rotate(args: ChangeArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&args.connection).await?;
    let (name, before, active) = ca.begun(&args.line).await?;
    if before.in_state(AuthorityState::Next).is_some() {
        bail!(
            "a rotation of {} is already under way: follow it with `addon-signer ca status {name} --watch`",
            before.line
        );
    }
    // The hub remembers the text of the last rotation that it has begun.
    let (now, user) = (Clock::default().now(), CommandUser::ask(&ca.client).await.user);
    ca.annotate(&name, ANNOTATION_ROTATE, format!("{now} {user}").trim_end()).await?;
    eprintln!("Requested a rotation of {}; {active} is signing for now.", before.line);
    if args.watch { follow_rotation(&ca, &name, &active).await } else { Ok(()) }
}

/// Shows each change until an authority other than `before` is signing.
async fn follow_rotation(ca: &Ca, name: &LineName, before: &str) -> anyhow::Result<()> {
    let signs = |report: &LineReport| {
        let active = report.in_state(AuthorityState::Active).filter(|active| active.id != before);
        active.map(|active| active.id.clone())
    };
    let now = ca.follow(name, |report| signs(report).is_some(), |report| report.rotation.is_some()).await?;
    eprintln!(
        "{} is now signing. Certificates signed by {before} stay valid until they expire.",
        signs(&now).unwrap_or_default()
    );
    Ok(())
}

async fn advance(args: AdvanceArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&args.connection).await?;
    let name = LineName::Gateway(match args.serving {
        true => GatewayCertificate::Serving,
        false => GatewayCertificate::Client,
    });
    let before = ca.line(&name).await?;
    let [next, active] = [AuthorityState::Next, AuthorityState::Active].map(|state| before.in_state(state));
    let (Some(next), Some(active)) = (next, active) else {
        bail!("no authority of {} is waiting to sign: `addon-signer ca rotate {name}` starts a rotation", before.line);
    };
    let without: BTreeSet<ClusterName> = args.except.into_iter().collect();
    let CommandUser { user, .. } = CommandUser::ask(&ca.client).await;
    let text = Waiver::text(&next.id, &without, Clock::default().now(), &user);
    ca.annotate(&name, ANNOTATION_ADVANCE, &text).await?;
    let names: Vec<_> = without.iter().map(ClusterName::as_str).collect();
    let whom = if names.is_empty() { "the owners of backends".to_owned() } else { names.join(", ") };
    eprintln!(
        "Asked the hub to let {} sign without waiting for: {whom}. It still waits for everything else that `ca status` \
         lists.",
        next.id
    );
    if args.watch { follow_rotation(&ca, &name, &active.id).await } else { Ok(()) }
}
