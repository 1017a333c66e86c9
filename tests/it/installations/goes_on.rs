//! Serves a stored installation at its time with this version: nobody is refused, and nothing is made anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use addon_signer::process::{HubOptions, Roles};
use addon_signer_agent::store::Store;
use addon_signer_agent::{Agent, Outcome};
use addon_signer_api::route::{CONDITION_ACCEPTED, CONDITION_PROGRAMMED, CONDITION_RESOLVED_REFS};
use addon_signer_api::status::CONDITION_READY;
use addon_signer_api::{AddOnRoute, AddOnSigner};
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::HubConfig;
use addon_signer_ledger::Location;
use addon_signer_ledger::verify::{Check, verify};
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{AGENTS, Kind};
use crate::hub::{mk_csr, submit};
use crate::whole::client::ClientPair;
use crate::whole::split::{gateway_options, ready};
use crate::whole::{Whole, options};
use test_kit::TestHub;
use test_kit::accounts::{GATEWAY_USER, HUB_GROUPS, HUB_USER};
use test_kit::gateways::GatewayPod;
use test_kit::hub::{TIMEOUT, certificate, wait_csr};
use test_kit::lease::leases;
use test_kit::objects::{serve, serve_manifest_works};
use test_kit::wait_until;

/// What the authorities of a lineage are and do, by the name of the lineage's Secret.
type Lineages = BTreeMap<String, Vec<(String, String)>>;

struct Site<'f> {
    folder: &'f Path,
    kind: Kind,
    location: Location,
    hub: TestHub,
    admin: Client,
    clock: Clock,
    dir: TempDir,
}

/// Serves what a folder has, with a copy of its ledger.
pub(super) async fn goes_on(folder: &Path, kind: Kind, location: &Location) {
    let site = Site::open(folder, kind, location).await;
    let (lineages, requests, mut conditions) = (site.lineages().await, site.requests().await, site.conditions().await);
    // That version looked for the backends of routes which are not accepted, too, and asked nobody to name roots.
    for reported in &mut conditions {
        if kind == Kind::ByRoot && reported.ends_with("Ready True Signing") {
            *reported = reported.replace("Signing", "GatewayRootUnnamed");
        }
        if reported.starts_with("refused: ResolvedRefs") {
            "refused: ResolvedRefs Unknown Pending".clone_into(reported);
        }
    }
    assert!(
        lineages["telemetry-client-authorities"].iter().any(|(_, state)| state == "Next"),
        "in mid-rotation: {lineages:?}"
    );
    let (signer, gateway) = site.start().await;
    for agent in site.agents() {
        site.assert_kept(&gateway, agent).await;
    }
    site.assert_secret_kept(&gateway).await;
    assert_eq!(site.requests().await, requests, "nobody has asked for another certificate, and no answer has changed");
    assert_eq!(site.lineages().await, lineages, "no authority is new, and none has another state");
    for (_, signer) in AGENTS {
        site.assert_signs(signer).await;
    }
    assert_eq!(site.lineages().await, lineages);
    let are_same = async || (site.conditions().await == conditions).then_some(());
    wait_until(TIMEOUT, &format!("the conditions to be {conditions:#?}"), are_same).await;
    site.verify().await;
    site.assert_rotation_ends().await;
    site.assert_revoked_enrols(&gateway).await;
    gateway.stop().await.unwrap();
    signer.stop().await.unwrap();
    site.verify().await;
}

impl<'f> Site<'f> {
    async fn open(folder: &'f Path, kind: Kind, location: &Location) -> Self {
        let read = |name| fs::read_to_string(folder.join(name)).unwrap();
        let time = Timestamp::from_rfc3339(read("time").trim()).unwrap();
        let clock = Clock::default();
        clock.set_back(Duration::from_secs(time.until(clock.now()).as_secs()));
        let mut objects: Vec<Value> = serde_json::from_str(&read("objects.json")).unwrap();
        for bundle in objects.iter_mut().filter(|object| object["kind"] == "ClusterTrustBundle") {
            bundle["apiVersion"] = json!("certificates.k8s.io/v1"); // the stand-in's
        }
        let (hub, left_out) = TestHub::moved_here(objects, &clock).await;
        let unknown = left_out.iter().find(|object| object["kind"] != "CertificateRequest");
        assert!(unknown.is_none(), "the stand-in does not serve {unknown:?}");
        let admin = hub.client_at("admin", &["system:masters"], &clock).await;
        serve_manifest_works(&admin).await;
        serve(&admin, "clustertrustbundles.certificates.k8s.io").await;
        // Nobody writes to what is kept.
        let dir = tempfile::tempdir().unwrap();
        let copied = Command::new("cp").arg("-a").arg(folder.join("agents")).arg(dir.path()).status().unwrap();
        assert!(copied.success());
        Self { folder, kind, location: location.clone(), hub, admin, clock, dir }
    }

    async fn start(&self) -> (Whole, Whole) {
        let options = options();
        let serving_source = self.kind.serving_source(None);
        let signer = HubOptions {
            hub: HubConfig { serving_source, retention: Duration::from_secs(86_400), ..options.hub },
            roles: Roles::Signer,
            replica: "signer-2".to_owned(),
            ledger: self.location.clone(),
            ..options
        };
        let client = self.hub.client_at(HUB_USER, &HUB_GROUPS, &self.clock).await;
        let signer = Whole::start_on(client, signer, self.clock.clone()).await;
        let pod = GatewayPod { kubeconfig: self.hub.kubeconfig(GATEWAY_USER, &HUB_GROUPS), uid: None };
        let client = self.hub.client_at(GATEWAY_USER, &HUB_GROUPS, &self.clock).await;
        let gateway = Whole::start_with(client, gateway_options("gateway-1", &pod), self.clock.clone()).await;
        ready(&gateway).await;
        (signer, gateway)
    }

    /// The agents whose files there are.
    fn agents(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        AGENTS.into_iter().filter(|(cluster, addon)| self.files(cluster, addon).exists())
    }

    fn files(&self, cluster: &str, addon: &str) -> PathBuf {
        self.dir.path().join("agents").join(format!("{cluster}-{addon}"))
    }

    async fn secrets(&self) -> Vec<Secret> {
        Api::<Secret>::all(self.admin.clone()).list(&Default::default()).await.unwrap().items
    }

    async fn lineages(&self) -> Lineages {
        let mut lineages = Lineages::new();
        for secret in self.secrets().await {
            let Some(lineage) = secret.data.as_ref().and_then(|data| data.get("line.json")) else { continue };
            let lineage: Value = serde_json::from_slice(&lineage.0).unwrap();
            let text = |member: &Value, field: &str| member[field].as_str().unwrap().to_owned();
            let members = lineage["authorities"].as_array().unwrap();
            let members = members.iter().map(|member| (text(member, "id"), text(member, "state"))).collect();
            lineages.insert(secret.name_any(), members);
        }
        lineages
    }

    /// Each request, and its status.
    async fn requests(&self) -> BTreeMap<String, Value> {
        let all = Api::<CertificateSigningRequest>::all(self.admin.clone()).list(&Default::default()).await.unwrap();
        let ours = all.items.into_iter().filter(|request| request.spec.signer_name.starts_with("example.com/"));
        ours.map(|request| (request.name_any(), serde_json::to_value(&request.status).unwrap())).collect()
    }

    /// Whether each AddOnSigner is ready, and all conditions of each AddOnRoute, with the reasons.
    async fn conditions(&self) -> Vec<String> {
        let signers = Api::<AddOnSigner>::all(self.admin.clone()).list(&Default::default()).await.unwrap();
        let signers = signers.items.into_iter().map(|signer| (signer.name_any(), signer.status.unwrap().conditions));
        let routes = Api::<AddOnRoute>::all(self.admin.clone()).list(&Default::default()).await.unwrap();
        let routes = routes.items.into_iter().map(|route| (route.name_any(), route.status.unwrap().conditions));
        let is_reported = |condition: &Condition| {
            [CONDITION_READY, CONDITION_ACCEPTED, CONDITION_RESOLVED_REFS, CONDITION_PROGRAMMED]
                .contains(&&*condition.type_)
        };
        let tell = |(name, conditions): (String, Vec<Condition>)| {
            let reported = conditions.into_iter().filter(is_reported);
            reported.map(|it| format!("{name}: {} {} {}", it.type_, it.status, it.reason)).collect::<Vec<_>>()
        };
        signers.chain(routes).flat_map(tell).collect()
    }

    async fn answer(&self, gateway: &Whole, pair: &ClientPair) -> (u16, String) {
        wait_until(TIMEOUT, "an answer of the gateway", async || {
            let (status, body) = pair.whoami_at(gateway.gateway, &self.clock).await?;
            (status != 503).then_some((status.as_u16(), body))
        })
        .await
    }

    /// The agent's certificate is accepted, unless it is revoked, and the agent keeps it.
    async fn assert_kept(&self, gateway: &Whole, (cluster, addon): (&str, &str)) {
        let pair = ClientPair::read(&self.files(cluster, addon)).unwrap();
        let (status, body) = self.answer(gateway, &pair).await;
        if cluster == "spoke3" {
            assert!(status == 403 && body.contains("problems/revoked"), "{status} {body}");
            return;
        }
        assert_eq!(status, 200, "{addon} on {cluster}: {body}");
        let store = Store::directory(self.files(cluster, addon));
        let kept = self.agent(gateway, cluster, addon, store).once().await.unwrap();
        assert!(matches!(kept, Outcome::Valid { .. }), "{addon} on {cluster}: {kept:?}");
        assert_eq!(ClientPair::read(&self.files(cluster, addon)).unwrap().certificate, pair.certificate);
    }

    async fn assert_secret_kept(&self, gateway: &Whole) {
        let store = Store::secret(self.admin.clone(), super::AGENTS_NAMESPACE, &"telemetry".parse().unwrap());
        let kept = self.agent(gateway, "spoke2", "telemetry", store).once().await.unwrap();
        assert!(matches!(kept, Outcome::Valid { .. }), "{kept:?}");
    }

    fn agent(&self, gateway: &Whole, cluster: &str, addon: &str, store: Store) -> Agent {
        let settings = super::settings_of(&self.hub, self.dir.path(), gateway.gateway, cluster, addon);
        Agent::new(settings, store, self.clock.clone())
    }

    /// The signer issues a certificate.
    async fn assert_signs(&self, signer: &str) {
        let signers: Api<AddOnSigner> = Api::all(self.admin.clone());
        if signers.get_opt(signer).await.unwrap().is_none() {
            return; // made without that issuer
        }
        let mut request = mk_csr("spoke1", signer);
        request.spec.signer_name = format!("example.com/{signer}");
        let name = submit(&self.hub, "spoke1", &request).await;
        wait_csr(&self.admin, &name, &format!("issued by {signer}"), certificate).await;
    }

    async fn verify(&self) {
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "addon-signer");
        let checkpoint = maps.get("addon-signer-ledger").await.unwrap().data.unwrap().remove("head.json").unwrap();
        let check = Check {
            location: self.location.clone(),
            checkpoint: Some(Checkpoint::read(&checkpoint).unwrap()),
            archives: vec![self.folder.join("archive.jsonl")],
        };
        let report = verify(check, |_| ()).await.unwrap();
        assert_eq!((report.first, report.unchecked), (1, 0), "the archive is the beginning");
        assert!(report.checkpoint.unwrap().key_is_recorded);
    }

    /// It waits for a gateway that says nothing, until that one says that it ends.
    async fn assert_rotation_ends(&self) {
        let before = self.lineages().await.remove("telemetry-client-authorities").unwrap();
        let next = before.iter().find(|(_, state)| state == "Next").unwrap().0.clone();
        let ends = json!({ "spec": { "holderIdentity": "" } });
        leases(&self.admin).patch("gateway-2", &PatchParams::default(), &Patch::Merge(&ends)).await.unwrap();
        wait_until(TIMEOUT, "the rotation to end", async || {
            let lineage = self.lineages().await.remove("telemetry-client-authorities").unwrap();
            lineage.iter().any(|(id, state)| *id == next && state == "Active").then_some(())
        })
        .await;
    }

    /// The agent whose certificate is revoked gets another one.
    async fn assert_revoked_enrols(&self, gateway: &Whole) {
        let folder = self.files("spoke3", "telemetry");
        let revoked = ClientPair::read(&folder).unwrap();
        let mut agent = self.agent(gateway, "spoke3", "telemetry", Store::directory(folder.clone()));
        agent.once().await.unwrap();
        let pair = ClientPair::read(&folder).unwrap();
        assert_ne!(pair.certificate, revoked.certificate);
        let (status, body) = self.answer(gateway, &pair).await;
        assert_eq!(status, 200, "{body}");
    }
}
