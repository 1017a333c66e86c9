//! Reads lines from the hub, and asks for changes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::line::LineName;
use super::report::{LineReport, as_table, client_report, progress};
use crate::cli::caller::CommandUser;
use crate::output::print;
use addon_signer_api::status::AuthorityState;
use addon_signer_api::{GuardedSigner, Lenient};
use addon_signer_core::names::ANNOTATION_ROTATE;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::report::GatewayLineReport;
use addon_signer_hub::authorities::store::{LineNames, STATUS_KEY};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::kubernetes;

/// How often `--watch` polls.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// How long a hub may take to begin a rotation before we report that none seems to be running.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

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
            return Ok(LineReport { line, authorities: Vec::new(), rotation: None, problem });
        };
        let report: GatewayLineReport = serde_json::from_str(&text).with_context(place)?;
        Ok(LineReport { line, authorities: report.authorities, rotation: report.rotation, problem: report.problem })
    }

    /// Requests a rotation by writing a new value into an annotation: the time and the user. The hub remembers the
    /// value of the last rotation that it began.
    pub(super) async fn request(&self, line: &LineName) -> anyhow::Result<()> {
        let now = Clock::default().now();
        let who = CommandUser::ask(&self.client).await.user;
        self.annotate(line, ANNOTATION_ROTATE, format!("{now} {who}").trim_end()).await
    }

    /// Writes an annotation of the AddOnSigner, or of the ConfigMap of a line of the gateway.
    pub(super) async fn annotate(&self, line: &LineName, name: &str, text: &str) -> anyhow::Result<()> {
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
    pub(super) async fn follow(&self, line: &LineName, before: &str) -> anyhow::Result<()> {
        let started = tokio::time::Instant::now();
        let mut shown = String::new();
        loop {
            let report = self.line(line).await?;
            let text = progress(&report);
            if text != shown {
                eprintln!("{text}");
                shown = text;
            }
            if let Some(active) = report.in_state(AuthorityState::Active).filter(|active| active.id != before) {
                print(&as_table(std::slice::from_ref(&report)));
                eprintln!(
                    "{} is now signing. Certificates signed by {before} stay valid until they expire.",
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
