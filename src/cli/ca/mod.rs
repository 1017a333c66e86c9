//! `addon-signer ca`: inspects and rotates authorities, through the Kubernetes API with the caller's kubeconfig.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args, Subcommand};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::json;

use super::caller::CommandUser;
use crate::output::{self, Format, print, print_json, table};
use addon_signer_api::status::{AuthorityState, AuthorityStatus, RotationStatus};
use addon_signer_api::{GuardedSigner, Lenient};
use addon_signer_core::identity::ClusterName;
use addon_signer_core::names::{ANNOTATION_ADVANCE, ANNOTATION_ROTATE};
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::authorities::report::GatewayLineReport;
use addon_signer_hub::authorities::store::{LineNames, STATUS_KEY};
use addon_signer_hub::authorities::waiver::Waiver;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::kubernetes;
use line::{LineArgs, LineName};

mod line;

/// How often `--watch` polls.
const LOOK: Duration = Duration::from_secs(1);
/// How long a hub may take to begin a rotation before we report that none seems to be running.
const PATIENCE: Duration = Duration::from_secs(60);

/// Inspect and rotate certificate authorities.
#[derive(Debug, Clone, Subcommand)]
pub enum CaCommand {
    /// Show the authorities of all signers, of one, or of the gateway.
    Status(StatusArgs),
    /// Replace the signing authority with a new one, without interruption.
    Rotate(RotateArgs),
    /// Let the gateway's next authority sign before everybody is known to trust it.
    Advance(AdvanceArgs),
}

#[derive(Debug, Clone, Args)]
struct ConnectionArgs {
    /// The hub's kubeconfig [default: KUBECONFIG, ~/.kube/config, or the pod's own account].
    #[arg(long, env = "ADDON_SIGNER_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The namespace of the hub.
    #[arg(long, env = "ADDON_SIGNER_NAMESPACE", default_value = "addon-signer")]
    namespace: String,
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

/// Arguments of `ca rotate`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["signer", "serving", "gateway_client"])))]
pub struct RotateArgs {
    #[command(flatten)]
    line: LineArgs,
    /// Show progress, and return once the new authority is signing.
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

/// One line of authorities as `ca status --output json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct LineReport {
    /// The AddOnSigner, `(serving)` or `(gateway-client)`.
    line: String,
    authorities: Vec<AuthorityStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rotation: Option<RotationStatus>,
    /// Why it is not signing, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
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

async fn rotate(args: RotateArgs) -> anyhow::Result<()> {
    let Some(name) = args.line.name() else { bail!("name the AddOnSigner, or --serving or --gateway-client") };
    let ca = Ca::connect(&args.connection).await?;
    let before = ca.line(&name).await?;
    if before.authorities.iter().any(|authority| authority.state == AuthorityState::Next) {
        bail!(
            "a rotation of {} is already under way: follow it with `addon-signer ca status {name} --watch`",
            before.line
        );
    }
    let Some(active) = active(&before).cloned() else {
        bail!("{} has no authority yet: is the hub running? {}", before.line, before.problem.unwrap_or_default());
    };
    ca.request(&name).await?;
    eprintln!("Requested a rotation of {}; {} is signing for now.", before.line, active.id);
    if !args.watch {
        return Ok(());
    }
    eprintln!("Ctrl-C stops watching; the rotation continues.");
    ca.follow(&name, &active.id).await
}

async fn advance(args: AdvanceArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&args.connection).await?;
    let name = LineName::Gateway(match args.serving {
        true => GatewayCertificate::Serving,
        false => GatewayCertificate::Client,
    });
    let before = ca.line(&name).await?;
    let next = before.authorities.iter().find(|authority| authority.state == AuthorityState::Next);
    let (Some(next), Some(active)) = (next, active(&before)) else {
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
    if args.watch {
        ca.follow(&name, &active.id).await?;
    }
    Ok(())
}

fn active(report: &LineReport) -> Option<&AuthorityStatus> {
    report.authorities.iter().find(|authority| authority.state == AuthorityState::Active)
}

struct Ca {
    client: Client,
    signers: Api<GuardedSigner>,
    config_maps: Api<Lenient<ConfigMap>>,
    namespace: String,
}

impl Ca {
    async fn connect(connection: &ConnectionArgs) -> anyhow::Result<Self> {
        let client: Client = kubernetes::client(connection.kubeconfig.as_deref()).await?;
        Ok(Self {
            signers: Api::all(client.clone()),
            config_maps: Api::namespaced(client.clone(), &connection.namespace),
            client,
            namespace: connection.namespace.clone(),
        })
    }

    async fn reports(&self, name: Option<LineName>) -> anyhow::Result<Vec<LineReport>> {
        if let Some(name) = name {
            return Ok(vec![self.line(&name).await?]);
        }
        let listed = self.signers.list(&ListParams::default()).await.context("AddOnSigners cannot be listed")?;
        let mut reports: Vec<LineReport> = listed.items.into_iter().map(client_report).collect();
        reports.push(self.gateway(GatewayCertificate::Serving).await?);
        // A hub has this line once an AddOnRoute needs it.
        let client = self.gateway(GatewayCertificate::Client).await?;
        reports.extend(Some(client).filter(|report| !report.authorities.is_empty()));
        Ok(reports)
    }

    async fn line(&self, name: &LineName) -> anyhow::Result<LineReport> {
        let name = match name {
            LineName::Gateway(certificate) => return self.gateway(*certificate).await,
            LineName::Signer(name) => name,
        };
        match self.signers.get_opt(name).await.with_context(|| format!("the AddOnSigner {name} cannot be read"))? {
            Some(object) => Ok(client_report(object)),
            None => bail!("there is no AddOnSigner {name}; `kubectl get addonsigners` lists them"),
        }
    }

    async fn gateway(&self, certificate: GatewayCertificate) -> anyhow::Result<LineReport> {
        let names = LineNames::gateway(certificate);
        let map = &names.config_map;
        let place = || format!("the ConfigMap {map} in the namespace {} cannot be read", self.namespace);
        let map = self.config_maps.get_opt(map).await.with_context(place)?;
        let text = map.and_then(|map| map.object.data?.remove(STATUS_KEY));
        let line = names.line().to_owned();
        let Some(text) = text else {
            let needed = match certificate {
                GatewayCertificate::Serving => "",
                GatewayCertificate::Client => "; it makes one when an AddOnRoute has backend.tls.clientCertificate",
            };
            let problem =
                Some(format!("no hub has published this authority in the namespace {}{needed}", self.namespace));
            return Ok(LineReport { line, authorities: Vec::new(), rotation: None, problem });
        };
        let report: GatewayLineReport = serde_json::from_str(&text).with_context(place)?;
        Ok(LineReport { line, authorities: report.authorities, rotation: report.rotation, problem: report.problem })
    }

    /// Requests a rotation by writing a new value into an annotation: the time and the user. The hub remembers the
    /// value of the last rotation that it began.
    async fn request(&self, line: &LineName) -> anyhow::Result<()> {
        let now = Clock::default().now();
        let who = CommandUser::ask(&self.client).await.user;
        self.annotate(line, ANNOTATION_ROTATE, format!("{now} {who}").trim_end()).await
    }

    /// Writes an annotation of the AddOnSigner, or of the ConfigMap of a line of the gateway.
    async fn annotate(&self, line: &LineName, name: &str, text: &str) -> anyhow::Result<()> {
        let body = json!({ "metadata": { "annotations": { name: text } } });
        let params = PatchParams::default();
        let patch = Patch::Merge(&body);
        match line {
            LineName::Signer(name) => {
                let refused = || {
                    format!("the AddOnSigner {name} cannot be changed; the ClusterRole addon-signer-admin allows it")
                };
                self.signers.patch(name, &params, &patch).await.with_context(refused)?;
            }
            LineName::Gateway(certificate) => {
                let map = LineNames::gateway(*certificate).config_map;
                let refused =
                    || format!("the ConfigMap {map} cannot be changed; the Role addon-signer-admin allows it");
                self.config_maps.patch(&map, &params, &patch).await.with_context(refused)?;
            }
        }
        Ok(())
    }

    /// Shows each change until an authority other than `before` is signing.
    async fn follow(&self, line: &LineName, before: &str) -> anyhow::Result<()> {
        let started = tokio::time::Instant::now();
        let mut shown = String::new();
        loop {
            let report = self.line(line).await?;
            let text = progress(&report);
            if text != shown {
                eprintln!("{text}");
                shown = text;
            }
            if let Some(active) = active(&report).filter(|active| active.id != before) {
                print(&as_table(std::slice::from_ref(&report)));
                eprintln!(
                    "{} is now signing. Certificates signed by {before} stay valid until they \
                           expire.",
                    active.id
                );
                return Ok(());
            }
            if report.rotation.is_none() && started.elapsed() > PATIENCE {
                bail!(
                    "no hub began the rotation within {} s; is a hub running? The next hub to start will begin it",
                    PATIENCE.as_secs()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn progress(report: &LineReport) -> String {
    match &report.rotation {
        Some(RotationStatus { phase, waiting_for: Some(what), .. }) => format!("{phase:?}: waiting for {what}"),
        Some(RotationStatus { phase, .. }) => format!("{phase:?}"),
        None => "waiting for the hub".to_owned(),
    }
}

fn client_report(object: GuardedSigner) -> LineReport {
    let line = object.name_any();
    let status = match object.read() {
        Ok(signer) => signer.status.unwrap_or_default(),
        Err(error) => {
            let problem = Some(format!("it cannot be read: {error}"));
            return LineReport { line, authorities: Vec::new(), rotation: None, problem };
        }
    };
    let failing = status.conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status != "True");
    let problem = failing.map(|condition| format!("{}: {}", condition.reason, condition.message));
    LineReport { line, authorities: status.authorities, rotation: status.rotation, problem }
}

fn as_table(reports: &[LineReport]) -> String {
    let mut rows = table(&["LINE", "AUTHORITY", "STATE", "NOT AFTER", "LAST CERTIFICATE EXPIRES"]);
    for report in reports {
        for authority in &report.authorities {
            let last = authority.last_leaf_expires.as_ref().map_or_else(|| "-".to_owned(), time);
            rows.add_row([
                report.line.clone(),
                authority.id.clone(),
                format!("{:?}", authority.state),
                time(&authority.not_after),
                last,
            ]);
        }
        if report.authorities.is_empty() {
            rows.add_row([report.line.as_str(), "-", "-", "-", "-"]);
        }
    }
    let mut text = output::render(&rows);
    for report in reports {
        if let Some(problem) = &report.problem {
            text.push_str(&format!("\n{}: {problem}\n", report.line));
        }
        if let Some(RotationStatus { waiting_for: Some(what), .. }) = &report.rotation {
            text.push_str(&format!("\n{} is waiting for: {what}\n", report.line));
        }
    }
    text
}

fn time(at: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time) -> String {
    Timestamp::from_unix(at.0.as_second()).to_string()
}
