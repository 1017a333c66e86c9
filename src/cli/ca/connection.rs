//! Reads lines from the hub, and asks for changes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{ArgGroup, Args};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::time::Instant;

use super::line::{LineArgs, LineName};
use super::report::{LineReport, as_table, client_report, progress};
use crate::cli::caller::CommandUser;
use crate::output::print;
use addon_signer_api::status::AuthorityState;
use addon_signer_api::{GuardedSigner, Lenient};
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::asked::AuthorityRequest;
use addon_signer_hub::authorities::report::GatewayLineReport;
use addon_signer_hub::authorities::store::{LineNames, STATUS_KEY};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::kubernetes;

/// How often `--watch` polls.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// How long a hub may take to begin what it was asked for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to reach the hub.
#[derive(Debug, Clone, Args)]
pub(super) struct ConnectionArgs {
    /// The hub's kubeconfig [default: KUBECONFIG, ~/.kube/config, or the pod's own account].
    #[arg(long, env = "ADDON_SIGNER_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The namespace of the hub.
    #[arg(long, env = "ADDON_SIGNER_NAMESPACE", default_value = "addon-signer")]
    namespace: String,
}

/// Arguments of `ca rotate` and `ca rollback`, and the common ones of other changes.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["signer", "serving", "gateway_client"])))]
pub struct ChangeArgs {
    #[command(flatten)]
    pub(super) line: LineArgs,
    /// Show progress, and return once the hub has done it.
    #[arg(long)]
    pub(super) watch: bool,
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// A connection to the hub.
pub(super) struct Ca {
    pub(super) client: Client,
    signers: Api<GuardedSigner>,
    config_maps: Api<Lenient<ConfigMap>>,
    namespace: String,
}

impl Ca {
    pub(super) async fn connect(connection: &ConnectionArgs) -> anyhow::Result<Self> {
        let client: Client = kubernetes::client(connection.kubeconfig.as_deref()).await?;
        Ok(Self {
            signers: Api::all(client.clone()),
            config_maps: Api::namespaced(client.clone(), &connection.namespace),
            client,
            namespace: connection.namespace.clone(),
        })
    }

    pub(super) async fn reports(&self, name: Option<LineName>) -> anyhow::Result<Vec<LineReport>> {
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

    pub(super) async fn line(&self, name: &LineName) -> anyhow::Result<LineReport> {
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
            return Ok(LineReport { line, problem, ..LineReport::default() });
        };
        let report: GatewayLineReport = serde_json::from_str(&text).with_context(place)?;
        let GatewayLineReport { authorities, rotation, problem, request, issued, not_used, anchors, .. } = report;
        let (is_issued, is_trusted_by_root) = (issued || request.is_some(), anchors.is_some());
        let waits = None; // the problem says it
        Ok(LineReport { line, authorities, rotation, problem, request, not_used, waits, is_issued, is_trusted_by_root })
    }

    /// A line to change, as it is, and the id of the authority that signs.
    pub(super) async fn begun(&self, line: &LineArgs) -> anyhow::Result<(LineName, LineReport, String)> {
        let name = line.name().context("name the AddOnSigner, or --serving or --gateway-client")?;
        let (report, active) = self.begun_line(&name).await?;
        Ok((name, report, active))
    }

    /// The line of this name, as it is, and the id of the authority that signs.
    pub(super) async fn begun_line(&self, name: &LineName) -> anyhow::Result<(LineReport, String)> {
        let report = self.line(name).await?;
        let Some(active) = report.in_state(AuthorityState::Active).map(|active| active.id.clone()) else {
            bail!("{} has no authority yet: is the hub running? {}", report.line, report.problem.unwrap_or_default());
        };
        Ok((report, active))
    }

    /// The addons that belong to this AddOnSigner.
    pub(super) async fn add_ons(&self, signer: &str) -> anyhow::Result<BTreeSet<String>> {
        let refused = || format!("the AddOnSigner {signer} cannot be read");
        let object = self.signers.get(signer).await.with_context(refused)?;
        let object = object.read().map_err(|error| anyhow!("{}: {error}", refused()))?;
        Ok(object.status.map(|status| status.add_ons).unwrap_or_default())
    }

    /// The hub's namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Writes an annotation of the AddOnSigner, or of the ConfigMap of a line of the gateway.
    pub(super) async fn annotate(&self, line: &LineName, name: &str, text: &str) -> anyhow::Result<()> {
        self.patch(line, &json!({ "metadata": { "annotations": { name: text } } })).await
    }

    /// Adds a request about this authority to those in an annotation that concern others of the line: two
    /// administrators do not undo each other's requests.
    pub(super) async fn ask(&self, line: &LineName, before: &LineReport, name: &str, id: &str) -> anyhow::Result<()> {
        let user = CommandUser::ask(&self.client).await.user;
        let request = AuthorityRequest::text(id, Clock::default().now(), &user);
        let (version, present) = match line {
            LineName::Signer(signer) => annotation(self.signers.get(signer).await?.meta(), name),
            LineName::Gateway(certificate) => {
                let map = self.config_maps.get(&LineNames::gateway(*certificate).config_map).await?;
                annotation(&map.object.metadata, name)
            }
        };
        let concerns_another = |line: &&str| {
            let authority = line.split(' ').next().unwrap_or_default();
            authority != id && before.authority(authority).is_some()
        };
        let lines: Vec<&str> = present.lines().filter(concerns_another).chain([&*request]).collect();
        let metadata = json!({ "resourceVersion": version, "annotations": { name: lines.join("\n") } });
        self.patch(line, &json!({ "metadata": metadata })).await
    }

    async fn patch(&self, line: &LineName, body: &serde_json::Value) -> anyhow::Result<()> {
        let params = PatchParams::default();
        let patch = Patch::Merge(body);
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

    /// Shows each change until the hub has done what it was asked for. `is_under_way` says whether it has begun.
    pub(super) async fn follow(
        &self,
        line: &LineName,
        is_done: impl Fn(&LineReport) -> bool,
        is_under_way: impl Fn(&LineReport) -> bool,
    ) -> anyhow::Result<LineReport> {
        eprintln!("Ctrl-C stops watching; the hub continues.");
        let started = Instant::now();
        let mut shown = String::new();
        let mut first = None;
        loop {
            let report = self.line(line).await?;
            let first = first.get_or_insert_with(|| report.clone());
            if is_done(&report) {
                print(&as_table(std::slice::from_ref(&report)));
                return Ok(report);
            }
            let text = progress(&report);
            if text != shown {
                eprintln!("{text}");
                shown = text;
            }
            // What stood there before says nothing about a hub that runs.
            let waits = report.waits.is_some() || report.not_used.is_some();
            let has_begun = is_under_way(&report) || (waits && report != *first);
            if !has_begun && started.elapsed() > PATIENCE {
                bail!(
                    "no hub has begun within {} s: `addon-signer check` says what is wrong. The next hub to start will \
                     begin",
                    PATIENCE.as_secs()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The version of an object, and one of its annotations.
fn annotation(metadata: &ObjectMeta, name: &str) -> (Option<String>, String) {
    let text = metadata.annotations.as_ref().and_then(|all| all.get(name));
    (metadata.resource_version.clone(), text.cloned().unwrap_or_default())
}
