//! A signer in a process of its own, which is killed; a gateway and agents, which live on.

use std::collections::BTreeSet;
use std::path::PathBuf;

use addon_signer_api::AddOnSigner;
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::names::{ANNOTATION_TRUSTS, LABEL_GATEWAY};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::kit::{OnServer, revoke, rotate};
use super::agents::Agents;
use super::history::{History, View};
use crate::gateway::backend;
use crate::hub::crash::books::{assert_whole, compare, entries, rows};
use crate::hub::crash::kit::{Child, SHORT_LEASE, delete_lease};
use crate::hub::issuers::put_authority_in;
use crate::whole::split::start_gateway;
use crate::whole::{Whole, prepare};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::company::CompanyCa;
use test_kit::gate::Gate;
use test_kit::gateways::deploy_gateways;
use test_kit::hub::{TIMEOUT, wait_ready};
use test_kit::lease::leases;
use test_kit::{TestHub, wait_until};

const CLUSTERS: [&str; 2] = ["spoke1", "spoke2"];
const SECRET: &str = "/api/v1/namespaces/addon-signer/secrets/telemetry-client-authorities";
/// A gateway that trusts nothing new while a test wants a Next to wait.
const SILENT: &str = "gateway-2";

/// Where the lineage's authorities come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The hub makes them.
    Made,
    /// A company puts them into a Secret.
    Company,
}

/// A company with its root, and how many authorities it has made.
struct Company {
    root: CompanyCa,
    made: u32,
}

impl Company {
    /// Puts another authority into the Secret `company`.
    async fn offer(&mut self, admin: &Client) {
        self.made += 1;
        let authority = self.root.authority(&format!("Telemetry CA {}", self.made));
        put_authority_in(admin, "company", &authority, &[], &self.root).await;
    }
}

pub(super) struct KilledWorld {
    hub: TestHub,
    pub(super) admin: Client,
    pub(super) lineage: OnServer,
    pub(super) gate: Gate,
    pub(super) history: History,
    pub(super) agents: Agents,
    company: Option<Company>,
    gateway: Whole,
    signer: Option<Child>,
    kubeconfig: PathBuf,
    asked: u32,
    dir: TempDir,
}

impl KilledWorld {
    pub(super) async fn start(source: Source) -> Self {
        let hub = TestHub::start().await;
        // Each hub that starts writes what the one before has perhaps not written.
        hub.real().inspect(|real| real.leaves_writes_uncounted());
        let admin = prepare(&hub, backend::start().await, "24h").await;
        deploy_gateways(&hub).await;
        let mut company = (source == Source::Company).then(|| Company { root: CompanyCa::root(), made: 0 });
        if let Some(company) = &mut company {
            company.offer(&admin).await;
            let issuer = json!({ "type": "Imported", "secretName": "company" });
            crate::hub::issuers::change(&admin, json!({ "authority": { "issuer": issuer } })).await;
        }
        let gate = Gate::in_front_of(hub.client_as(HUB_USER, &HUB_GROUPS).await).await;
        let dir = TempDir::new().unwrap();
        let kubeconfig = dir.path().join("gate.kubeconfig");
        std::fs::write(&kubeconfig, serde_saphyr::to_string(&gate.kubeconfig()).unwrap()).unwrap();
        let history = History::start(&admin);
        let signer = Some(start_signer(&dir, &kubeconfig));
        wait_ready(&admin, "telemetry", "True").await;
        let gateway = start_gateway(&hub, "gateway-1").await;
        let agents = Agents::start(&hub, &admin, dir.path(), gateway.gateway, &CLUSTERS).await;
        let lineage = OnServer::client(&admin);
        Self { hub, admin, lineage, gate, history, agents, company, gateway, signer, kubeconfig, asked: 0, dir }
    }

    pub(super) fn source(&self) -> Source {
        if self.company.is_some() { Source::Company } else { Source::Made }
    }

    /// Asks for a rotation: by the annotation, or with another authority from the company.
    pub(super) async fn rotate(&mut self) {
        self.asked += 1;
        match &mut self.company {
            None => rotate(&self.admin, &format!("r{}", self.asked)).await,
            Some(company) => company.offer(&self.admin).await,
        }
    }

    /// Kills the signer where it has stopped, and starts another one.
    pub(super) async fn kill(&mut self) {
        self.signer.take().unwrap().kill();
        delete_lease(&self.admin).await;
        self.gate.open();
        self.signer = Some(start_signer(&self.dir, &self.kubeconfig));
    }

    /// The lineage as its Secret has it.
    pub(super) async fn view(&self) -> View {
        View::of(&self.lineage.members().await.unwrap())
    }

    /// Waits until the lineage is like this.
    pub(super) async fn wait_view(&self, what: &str, is_like: impl Fn(&View) -> bool) {
        wait_until(TIMEOUT, what, async || is_like(&self.view().await).then_some(())).await;
    }

    /// Makes a Next wait, as a gateway does that lives and does not learn of it.
    pub(super) async fn hold(&self) {
        let trusts: Vec<_> = self.view().await.ids().into_iter().map(str::to_owned).collect();
        let lease: Lease = serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": SILENT,
                "labels": { LABEL_GATEWAY: "true" },
                "annotations": { ANNOTATION_TRUSTS: trusts.join(" ") },
            },
            "spec": { "holderIdentity": "silent", "leaseDurationSeconds": 600 },
        }))
        .unwrap();
        leases(&self.admin).create(&Default::default(), &lease).await.unwrap();
    }

    /// Ends [`Self::hold`]: that gateway says that it has ended.
    async fn release(&self) {
        let ended = Patch::Merge(json!({ "spec": { "holderIdentity": null } }));
        leases(&self.admin).patch(SILENT, &PatchParams::default(), &ended).await.unwrap();
        self.wait_view("no Next to wait", |view| view.id_of("Next").is_none()).await;
        leases(&self.admin).delete(SILENT, &Default::default()).await.unwrap();
    }

    /// Brings the lineage to rest with one authority, of which all agents have a certificate.
    pub(super) async fn rest(&self) {
        if leases(&self.admin).get_opt(SILENT).await.unwrap().is_some() {
            self.release().await;
        }
        let active = wait_until(TIMEOUT, "no Next to be there", async || {
            let view = self.view().await;
            view.id_of("Active").filter(|_| view.id_of("Next").is_none()).map(str::to_owned)
        })
        .await;
        self.agents.wait_hold(&self.lineage, &active).await;
        while let Some(old) = self.view().await.id_of("Old").map(str::to_owned) {
            revoke(&self.admin, &old).await;
            self.wait_view("an Old to go", |view| !view.ids().contains(&*old)).await;
        }
        assert_eq!(self.lineage.wait(&["Active"]).await, [active]);
        self.settled().await;
    }

    /// Waits until the history has the Secret as it is now, and what follows from it is published.
    pub(super) async fn settled(&self) {
        wait_until(TIMEOUT, "anchors and status to be as the Secret", async || {
            let view = self.view().await;
            let Value::Array(reported) = json!(self.lineage.status().await.authorities) else { panic!("it is a list") };
            let anchors = self.lineage.bundle().await?.pem();
            (View::of(&reported) == view && View::of_anchors(&anchors).ids() == view.ids()).then_some(())
        })
        .await;
        self.caught_up().await;
    }

    async fn caught_up(&self) {
        let signers = Api::<AddOnSigner>::all(self.admin.clone());
        wait_until(TIMEOUT, "the watches to have what is there", async || {
            let secret = self.lineage.secrets.get(self.lineage.secret).await.unwrap().resource_version()?;
            let anchors = self.lineage.maps.get(self.lineage.map).await.unwrap().resource_version()?;
            let signer = signers.get("telemetry").await.unwrap().resource_version()?;
            self.history.has([&secret, &anchors, &signer]).then_some(())
        })
        .await;
    }

    /// Ends everything. Nobody but the hub has written the Secret, and each of its versions was seen; the ledger is
    /// whole and has each step once; each CSR of an agent has one certificate.
    pub(super) async fn finish(mut self, may_go_back: impl Fn(&str) -> bool) -> String {
        let served = self.agents.stop().await;
        self.caught_up().await;
        self.history.assert_watching();
        self.history.assert_forward(may_go_back);
        self.signer.take().unwrap().kill();
        let [seen, written] = [self.history.versions(), self.gate.versions_of(SECRET)];
        assert_eq!(BTreeSet::from_iter(&seen), BTreeSet::from_iter(&written));
        self.gateway.stop().await.unwrap();
        let ledger = ledger(&self.dir);
        assert_recorded_once(&entries(&ledger).await);
        let tally = compare(&self.agents.given(), &rows(&ledger).await);
        tally.assert_clean();
        assert_whole(&ledger, self.dir.path()).await;
        drop(self.hub);
        format!("{} versions of the Secret; {served}; {tally}", seen.len())
    }
}

/// Checks that no step of an authority was recorded twice.
fn assert_recorded_once(entries: &[String]) {
    let mut last = std::collections::BTreeMap::new();
    for entry in entries.iter().map(|text| Entry::parse(text).unwrap()).filter(|entry| entry.kind == "authority") {
        let authority = [entry.detail("line"), entry.detail("id")].map(str::to_owned);
        let step = entry.detail("step").to_owned();
        assert_ne!(last.insert(authority, step.clone()), Some(step), "recorded twice: {entry:?}");
    }
}

fn ledger(dir: &TempDir) -> String {
    format!("sqlite://{}", dir.path().join("ledger.db").display())
}

fn start_signer(dir: &TempDir, kubeconfig: &std::path::Path) -> Child {
    let flags = ["--roles=signer", "--gateway-name=gateway.example", SHORT_LEASE];
    Child::start(dir.path(), kubeconfig, &ledger(dir), &flags)
}
