//! `addon-signer ca`: inspects and rotates authorities, through the Kubernetes API with the caller's kubeconfig.

use anyhow::bail;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::caller::CommandUser;
use crate::output::{Format, print, print_json, tell};
use addon_signer_api::status::{AuthorityState, AuthorityStatus};
use addon_signer_core::names::{ANNOTATION_ROLL_BACK, ANNOTATION_ROTATE};
use addon_signer_hub::authorities::asked::AuthorityRequest;
use addon_signer_hub::authorities::lineage_report::refusal;
use addon_signer_platform::clock::Clock;
use advance::{AdvanceArgs, advance};
pub(super) use affected::Refused;
use connection::{Ca, ChangeArgs, ConnectionArgs, POLL, ReportArgs};
use import::{CsrArgs, ImportArgs, csr, import};
use plan::{PlanArgs, plan};
use report::{LineageArgs, LineageName, LineageReport, as_table};
use revoke_authority::{RevokeArgs, revoke};
use taint::{TaintArgs, taint};

mod advance;
mod affected;
mod connection;
mod import;
mod plan;
mod report;
mod revoke_authority;
mod taint;

/// Inspect and rotate certificate authorities.
#[derive(Debug, Clone, Subcommand)]
pub enum CaCommand {
    /// Show the authorities and rotations of all AddOnSigners and of the gateway, or of one.
    Status(StatusArgs),
    /// Replace the signing authority with a new one, without interruption. With --gateway-client the new one signs
    /// after 30 days, or after `ca advance`.
    Rotate(ChangeArgs),
    /// Take the next step of a rotation early, if that locks out no agent or an administrator vouches for it. While it
    /// would lock out agents, or may, it exits with 3 and says which; with --serving, --except goes on without some
    /// clusters.
    ///
    /// For an AddOnSigner, it removes the Old authority if no agent has a certificate of it any more. While a gateway
    /// does not trust the next authority, or an agent has a certificate of the Old one, it exits with 3. `ca revoke`
    /// removes the Old one anyway.
    ///
    /// With --serving, the gateway's next authority signs even though the clusters of --except have not applied its
    /// anchor by ManifestWork, or have addons that get none. The ledger records who asked for this. It applies only to
    /// the authority that is waiting now and to these clusters: the rotation no longer waits for their ManifestWorks or
    /// their agents. While the ledger cannot say what is awaited, the certificates that were issued without the anchor
    /// must still have expired.
    ///
    /// With --gateway-client, it says that every backend trusts the gateway's next authority, which otherwise signs 30
    /// days after its anchor is published.
    Advance(AdvanceArgs),
    /// Print the trust anchors of an AddOnSigner or of the gateway, for a verifier of your own. During a rotation there
    /// are several; a verifier needs all of them.
    Bundle(BundleArgs),
    /// Print the CSR of the next authority in PEM, for the CA above it. There is one where the issuer is Imported
    /// without a Secret.
    Csr(CsrArgs),
    /// Bring the certificate for the CSR of `ca csr`. The hub checks it, and it becomes the next authority of a
    /// rotation.
    Import(ImportArgs),
    /// Undo the last step of a rotation, until the rotation has ended. An authority that waits to sign is dropped with
    /// its key. If none waits, the previous authority signs again, if it has time for another rotation; the one that
    /// signed stays trusted until its last certificate has expired.
    Rollback(ChangeArgs),
    /// Report that the key of an authority may be compromised. Another authority is prepared at once, and signs as
    /// soon as it is trusted. A tainted authority of an AddOnSigner signs nothing more; one of the gateway signs for
    /// the gateway until the next one may. It stays trusted until its last certificate has expired, and never becomes
    /// Active again.
    Taint(TaintArgs),
    /// Remove an authority with its key at once, whatever depends on it: within two seconds gateways refuse its
    /// certificates and end their connections. If it is Active, Next signs from then on, or a new authority. First the
    /// command prints which agents this would lock out, and asks you to type the id again. Without a terminal it exits
    /// with 3 if agents would or may be locked out.
    Revoke(RevokeArgs),
    /// Show the next step of a rotation, and which agents it would lock out if it were taken now. It changes nothing.
    /// It exits with 3 if agents would or may be locked out.
    Plan(PlanArgs),
}

/// Arguments of `ca status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Which lineage [default: all].
    #[command(flatten)]
    lineage: LineageArgs,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Print every change, until no rotation is under way.
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
    let (mut printed, mut is_led) = (None, true);
    loop {
        let reports = ca.reports(args.lineage.name()).await?;
        let settled = reports.iter().all(|report| report.rotation.is_none());
        if printed.as_ref() != Some(&reports) {
            args.output.print(&reports[..], as_table)?;
            printed = Some(reports);
        }
        ca.say_who_leads(&mut is_led).await;
        if settled || !args.watch {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn rotate(ChangeArgs { lineage, report }: ChangeArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&report.connection).await?;
    let (name, before, active) = ca.begun(&lineage).await?;
    if before.request.is_some() {
        bail!(
            "authorities of {} are imported: `addon-signer ca csr {name}` prints the next CSR, and `addon-signer \
             ca import {name}` begins the rotation",
            before.lineage
        );
    }
    if before.in_state(AuthorityState::Next).is_some() {
        bail!(
            "a rotation of {} is already under way: follow it with `addon-signer ca status {name} --watch`",
            before.lineage
        );
    }
    if let Some(doomed) = before.to_revoke() {
        bail!(
            "{} of {} is to be revoked: another authority replaces it as soon as one comes",
            doomed.id,
            before.lineage
        );
    }
    // The hub remembers the text of the last rotation that it has begun.
    let (now, user) = (Clock::default().now(), CommandUser::ask(&ca.client).await.user);
    let request = format!("{now} {user}").trim_end().to_owned();
    ca.annotate(&name, &before, ANNOTATION_ROTATE, |_| request.clone()).await?;
    let sentence = format!("Requested a rotation of {}; {active} is signing for now.", before.lineage);
    report.asked(&before, &active, &sentence)?;
    follow_rotation(&ca, &name, &report, &active).await
}

/// With `--watch`, shows each change until an authority other than `before` signs.
async fn follow_rotation(ca: &Ca, name: &LineageName, args: &ReportArgs, before: &str) -> anyhow::Result<()> {
    if !ca.follows(args).await {
        return Ok(());
    }
    let signs = |report: &LineageReport| {
        let active = report.in_state(AuthorityState::Active).filter(|active| active.id != before);
        active.map(|active| active.id.clone())
    };
    let is_done = |report: &LineageReport| signs(report).is_some();
    let now = ca.follow(name, args.output, None, is_done, |report| report.rotation.is_some()).await?;
    tell(&format!(
        "{} is now signing. Certificates signed by {before} stay valid until they expire.",
        signs(&now).unwrap_or_default()
    ));
    Ok(())
}

async fn rollback(ChangeArgs { lineage, report: args }: ChangeArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&args.connection).await?;
    let (name, before, active) = ca.begun(&lineage).await?;
    let older = |old: &&AuthorityStatus| {
        before.in_state(AuthorityState::Active).is_some_and(|it| old.not_before <= it.not_before)
    };
    let old = before.authorities.iter().filter(|it| it.state == AuthorityState::Old).find(older);
    let (id, sentence) = match (before.in_state(AuthorityState::Next), old) {
        (Some(next), _) => (next.id.clone(), format!("drop {}. {active} keeps signing.", next.id)),
        (None, Some(_)) => {
            let sentence = "let the previous authority sign again. Certificates signed by";
            (active.clone(), format!("{sentence} {active} stay valid until they expire."))
        }
        (None, None) => bail!(
            "{active} of {lineage} cannot be rolled back: no older authority could sign. \
             `addon-signer ca rotate {name}` replaces it",
            lineage = before.lineage
        ),
    };
    let user = CommandUser::ask(&ca.client).await.user;
    let request = AuthorityRequest::text(&id, Clock::default().now(), &user);
    ca.annotate(&name, &before, ANNOTATION_ROLL_BACK, |_| request.clone()).await?;
    args.asked(&before, &id, &format!("Asked the hub to {sentence}"))?;
    if !ca.follows(&args).await {
        return Ok(());
    }
    // A refusal about another authority belongs to an earlier request.
    let refusal = refusal(&id);
    let is_refused = |report: &LineageReport| report.problem.as_ref().is_some_and(|it| it.contains(&refusal));
    let is_done = |report: &LineageReport| {
        let is_current = |state| report.in_state(state).is_some_and(|authority| authority.id == id);
        !is_current(AuthorityState::Next) && !is_current(AuthorityState::Active)
    };
    let ends = |report: &LineageReport| is_done(report) || is_refused(report);
    let now = ca.follow(&name, args.output, None, ends, ends).await?;
    if is_done(&now) { Ok(()) } else { bail!(now.problem.unwrap_or_default()) }
}

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

async fn bundle(args: BundleArgs) -> anyhow::Result<()> {
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
