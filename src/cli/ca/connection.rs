//! Reads lineages from the hub, and requests changes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{ArgGroup, Args};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::report::{LineageArgs, LineageName, LineageReport, Pace, as_table, client_report, progress};
use crate::cli::caller::CommandUser;
use crate::cli::leader::leader;
use crate::output::{Format, print_json, tell};
use addon_signer_api::status::AuthorityState;
use addon_signer_api::{GuardedSigner, Lenient};
use addon_signer_core::ca::lineage::MOST_GONE;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::asked::AuthorityRequest;
use addon_signer_hub::authorities::lineage_report::GatewayLineageReport;
use addon_signer_hub::authorities::store::{LineageNames, STATUS_KEY};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::kubeconfig::{Access, ClusterAddress};
use addon_signer_platform::kubernetes::{self, Connected};
use addon_signer_platform::listing::{self, Selector};

/// How often `--watch` polls.
pub(super) const POLL: Duration = Duration::from_secs(1);
/// How long a hub may take to begin a requested change.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Retries after a write conflict.
const ATTEMPTS: usize = 5;
/// How many bytes of another request in an annotation are kept.
const LONGEST_LINE: usize = 512;

/// How to reach the hub.
#[derive(Debug, Clone, Args)]
pub(super) struct ConnectionArgs {
    #[command(flatten)]
    access: Access,
    /// The hub's namespace.
    #[arg(long, env = "ADDON_SIGNER_NAMESPACE", default_value = "addon-signer")]
    namespace: String,
}

/// How a command that changes a lineage reports.
#[derive(Debug, Clone, Args)]
pub(super) struct ReportArgs {
    /// Print every step, and return once the hub has done it. --output then shows the authorities, as `ca status` does;
    /// without --watch it shows what the hub was asked to do.
    #[arg(long)]
    pub(super) watch: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) output: Format,
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// The change that a command has requested, as `--output json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AskedFor<'r> {
    lineage: &'r str,
    /// The authority that it is about.
    authority: &'r str,
}

impl ReportArgs {
    /// Reports the requested change, and prints it as JSON unless `--watch` follows.
    pub(super) fn asked(&self, lineage: &LineageReport, authority: &str, sentence: &str) -> anyhow::Result<()> {
        tell(sentence);
        if self.output == Format::Json && !self.watch {
            print_json(&AskedFor { lineage: &lineage.lineage, authority })?;
        }
        Ok(())
    }
}

/// Arguments of `ca rotate` and `ca rollback`, and the common ones of `ca taint`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["signer", "serving", "gateway_client"])))]
pub struct ChangeArgs {
    #[command(flatten)]
    pub(super) lineage: LineageArgs,
    #[command(flatten)]
    pub(super) report: ReportArgs,
}

/// A connection to the hub.
pub(super) struct Ca {
    pub(super) client: Client,
    /// The cluster that the command changes.
    pub(super) cluster: ClusterAddress,
    signers: Api<GuardedSigner>,
    config_maps: Api<Lenient<ConfigMap>>,
    /// The hub's namespace.
    pub(super) namespace: String,
}

impl Ca {
    pub(super) async fn connect(connection: &ConnectionArgs) -> anyhow::Result<Self> {
        let Connected { client, target } = kubernetes::connect(&connection.access).await?;
        Ok(Self {
            signers: Api::all(client.clone()),
            config_maps: Api::namespaced(client.clone(), &connection.namespace),
            client,
            cluster: target,
            namespace: connection.namespace.clone(),
        })
    }

    pub(super) async fn reports(&self, name: Option<LineageName>) -> anyhow::Result<Vec<LineageReport>> {
        if let Some(name) = name {
            return Ok(vec![self.lineage(&name).await?]);
        }
        let mut reports = Vec::new();
        let listed = listing::each(self.signers.clone(), Selector::all(), |signer| reports.push(client_report(signer)));
        listed.await.context("AddOnSigners cannot be listed")?;
        reports.push(self.gateway(GatewayCertificate::Serving).await?.0);
        // A hub has this lineage only once an AddOnRoute needs it.
        let (client, _) = self.gateway(GatewayCertificate::Client).await?;
        reports.extend(Some(client).filter(|report| !report.authorities.is_empty()));
        Ok(reports)
    }

    pub(super) async fn lineage(&self, name: &LineageName) -> anyhow::Result<LineageReport> {
        Ok(self.read(name).await?.0)
    }

    /// A lineage, and the metadata of the object that reports it.
    async fn read(&self, name: &LineageName) -> anyhow::Result<(LineageReport, ObjectMeta)> {
        let name = match name {
            LineageName::Gateway(certificate) => return self.gateway(*certificate).await,
            LineageName::Signer(name) => name,
        };
        match self.signers.get_opt(name).await.with_context(|| format!("the AddOnSigner {name} cannot be read"))? {
            Some(object) => {
                let metadata = object.meta().clone();
                Ok((client_report(object), metadata))
            }
            None => bail!("there is no AddOnSigner {name}; `kubectl get addonsigners` lists them"),
        }
    }

    async fn gateway(&self, certificate: GatewayCertificate) -> anyhow::Result<(LineageReport, ObjectMeta)> {
        let names = LineageNames::gateway(certificate);
        let map = &names.config_map;
        let place = || format!("the ConfigMap {map} in the namespace {} cannot be read", self.namespace);
        let map = self.config_maps.get_opt(map).await.with_context(place)?.map(|map| map.object).unwrap_or_default();
        let (metadata, data) = (map.metadata, map.data);
        let text = data.and_then(|mut data| data.remove(STATUS_KEY));
        let lineage = names.lineage().to_owned();
        let Some(text) = text else {
            let needed = match certificate {
                GatewayCertificate::Serving => "",
                GatewayCertificate::Client => "; it makes one when an AddOnRoute has backend.tls.clientCertificate",
            };
            let problem =
                Some(format!("no hub has published this authority in the namespace {}{needed}", self.namespace));
            return Ok((LineageReport { lineage, problem, ..LineageReport::default() }, metadata));
        };
        let report: GatewayLineageReport = serde_json::from_str(&text).with_context(place)?;
        let is_unreadable = report.unreadable;
        let GatewayLineageReport { authorities, rotation, problem, waits, request, issued, not_used, anchors, .. } =
            report;
        let (is_issued, is_trusted_by_root) = (issued || request.is_some(), anchors.is_some());
        let report = LineageReport {
            lineage,
            authorities,
            rotation,
            problem,
            request,
            not_used,
            waits,
            is_unreadable,
            is_issued,
            is_trusted_by_root,
        };
        Ok((report, metadata))
    }

    /// The present state of a lineage to change, and the id of the authority that signs.
    pub(super) async fn begun(&self, lineage: &LineageArgs) -> anyhow::Result<(LineageName, LineageReport, String)> {
        let name = lineage.name().context("name the AddOnSigner, or --serving or --gateway-client")?;
        let (report, active) = self.begun_lineage(&name).await?;
        Ok((name, report, active))
    }

    /// The present state of this lineage, and the id of the authority that signs.
    pub(super) async fn begun_lineage(&self, name: &LineageName) -> anyhow::Result<(LineageReport, String)> {
        let report = self.lineage(name).await?;
        let Some(active) = report.in_state(AuthorityState::Active).map(|active| active.id.clone()) else {
            bail!(
                "{} has no authority yet: is the hub running? {}",
                report.lineage,
                report.problem.unwrap_or_default()
            );
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

    /// Writes an annotation of the AddOnSigner, or of the ConfigMap of a lineage of the gateway: `text` computes it
    /// from the present one. Writes nothing if another administrator has changed the lineage since the caller judged
    /// it.
    pub(super) async fn annotate(
        &self,
        lineage: &LineageName,
        before: &LineageReport,
        name: &str,
        text: impl Fn(&str) -> String,
    ) -> anyhow::Result<()> {
        for attempts in 0..ATTEMPTS {
            let (now, metadata) = self.read(lineage).await?;
            if now.states() != before.states() {
                bail!(
                    "{} has changed meanwhile: see `addon-signer ca status {lineage}`, and ask again",
                    before.lineage
                );
            }
            let present = metadata.annotations.as_ref().and_then(|all| all.get(name)).map_or("", String::as_str);
            let metadata =
                json!({ "resourceVersion": metadata.resource_version, "annotations": { name: text(present) } });
            if attempts == 0 {
                tell(&format!("Changing {} on {}", before.lineage, self.cluster));
            }
            match self.patch(lineage, &json!({ "metadata": metadata })).await {
                Err(error) if is_conflict(&error) => {} // the hub has written its status, perhaps
                done => return done,
            }
        }
        bail!("{} is being changed all the time: try again", before.lineage)
    }

    /// Adds a request about this authority to an annotation, and keeps the last requests about other authorities: so
    /// two administrators do not undo each other's requests, and a restored Secret does not undo them either.
    pub(super) async fn ask(
        &self,
        lineage: &LineageName,
        before: &LineageReport,
        name: &str,
        id: &str,
    ) -> anyhow::Result<()> {
        if before.is_unreadable {
            let problem = before.problem.as_deref().unwrap_or_default();
            bail!(
                "nothing was asked: the hub takes no step of {} until it can read its Secret. {problem}",
                before.lineage
            );
        }
        let user = CommandUser::ask(&self.client).await.user;
        let request = AuthorityRequest::text(id, Clock::default().now(), &user);
        let with_request = |present: &str| {
            let concerns_another = |line: &&str| line.split(' ').next().is_some_and(|other| other != id);
            // The hub reads little of the annotation: no line of others may push this request out of that.
            let cut = |line| str::get(line, ..str::floor_char_boundary(line, LONGEST_LINE)).unwrap_or_default();
            let others: Vec<&str> = present.lines().filter(concerns_another).map(cut).collect();
            let forgotten = others.len().saturating_sub(MOST_GONE);
            others.into_iter().skip(forgotten).chain([&*request]).collect::<Vec<_>>().join("\n")
        };
        self.annotate(lineage, before, name, with_request).await
    }

    async fn patch(&self, lineage: &LineageName, body: &serde_json::Value) -> anyhow::Result<()> {
        let params = PatchParams::default();
        let patch = Patch::Merge(body);
        match lineage {
            LineageName::Signer(name) => {
                let refused = || {
                    format!("the AddOnSigner {name} cannot be changed; the ClusterRole addon-signer-admin allows it")
                };
                self.signers.patch(name, &params, &patch).await.with_context(refused)?;
            }
            LineageName::Gateway(certificate) => {
                let map = LineageNames::gateway(*certificate).config_map;
                let refused =
                    || format!("the ConfigMap {map} cannot be changed; the Role addon-signer-admin allows it");
                self.config_maps.patch(&map, &params, &patch).await.with_context(refused)?;
            }
        }
        Ok(())
    }

    /// Shows each change until the hub has made the requested one, and then the lineage in this format. `is_under_way`
    /// tells whether it has begun. The refusal of an `earlier` import is not shown.
    pub(super) async fn follow(
        &self,
        lineage: &LineageName,
        output: Format,
        earlier: Option<&String>,
        is_done: impl Fn(&LineageReport) -> bool,
        is_under_way: impl Fn(&LineageReport) -> bool,
    ) -> anyhow::Result<LineageReport> {
        tell("Ctrl-C stops watching; the hub that leads continues.");
        let started = Instant::now();
        let mut shown = String::new();
        let mut first = None;
        let mut pace = Pace::default();
        let mut is_led = true;
        loop {
            self.say_who_leads(&mut is_led).await;
            let report = self.lineage(lineage).await?;
            let first = first.get_or_insert_with(|| report.clone());
            if is_done(&report) {
                output.print(&report, |report| as_table(std::slice::from_ref(report)))?;
                return Ok(report);
            }
            let counts = report.rotation.as_ref().and_then(|rotation| rotation.ready.zip(rotation.total));
            let pace = pace.text_at(started.elapsed(), counts);
            // What was reported before does not show that a hub is running, nor what it does now.
            let waits = report.waits.is_some() || report.not_used.is_some();
            let has_begun = is_under_way(&report) || (waits && report != *first);
            let is_new = has_begun || report != *first;
            let text = if is_new { progress(&report, earlier) } else { "waiting for the hub".to_owned() };
            if text != shown {
                tell(&format!("{text}{pace}"));
                shown = text;
            }
            if !has_begun && started.elapsed() > TIMEOUT {
                bail!(
                    "no hub has begun within {} s: `addon-signer check` says what is wrong. The next hub to start will \
                     begin",
                    TIMEOUT.as_secs()
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Whether the command is to follow what it asked for. If not, it ends by saying when no hub is leading.
    pub(super) async fn follows(&self, args: &ReportArgs) -> bool {
        if !args.watch {
            self.say_who_leads(&mut true).await;
        }
        args.watch
    }

    /// Says when no hub is leading, and when one is again.
    pub(super) async fn say_who_leads(&self, is_led: &mut bool) {
        let now = leader(&self.client, &self.namespace).await;
        let now = now.unwrap_or_else(|error| Err(format!("whether a hub is leading is not known: {error:#}")));
        match (&now, *is_led) {
            (Err(nobody), true) => tell(nobody),
            (Ok(holder), false) => tell(&format!("{} is leading", holder.name)),
            _ => {}
        }
        *is_led = now.is_ok();
    }
}

fn is_conflict(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 409)
}
