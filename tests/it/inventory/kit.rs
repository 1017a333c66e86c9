//! A hub and a gateway with an inventory, which tests call as the API server does.

use std::net::SocketAddr;

use addon_signer::inventory::{API_SERVICE, BASE};
use addon_signer::process::{HubOptions, HubProcess, InventoryOptions};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_platform::clock::Clock;
use http_body_util::Full;
use hyper::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::whole::client::ClientPair;
use crate::whole::{options, serving_anchors};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::deploy::{apply, part};
use test_kit::gateway::{Connection, collect};
use test_kit::hub::{TIMEOUT, create_signer, deploy, fresh_ledger, telemetry};
use test_kit::pki::TestCa;
use test_kit::{TestHub, objects, wait_until};

pub(super) struct Stage {
    pub(super) admin: Client,
    pub(super) inventory: SocketAddr,
    pub(super) gateway: SocketAddr,
    /// The front proxy's CA, if the test makes it: a real hub has its own.
    ca: TestCa,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
    _ledger: TempDir,
}

impl Stage {
    /// Installs the chart with the inventory, and starts the process with its rights.
    pub(super) async fn start(hub: &TestHub) -> Self {
        deploy(hub).await;
        let admin = hub.admin().await;
        let ca = TestCa::default();
        let component = part("inventory");
        if hub.is_real() {
            apply(&admin, &component).await;
        } else {
            objects::create_namespace(&admin, "kube-system").await;
            let manifest = component.into_iter().find(|object| object["kind"] == "APIService").unwrap();
            let services: Api<APIService> = Api::all(admin.clone());
            services.create(&PostParams::default(), &serde_json::from_value(manifest).unwrap()).await.unwrap();
            tell_front_proxy(&admin, &ca).await;
        }
        // Without a client CA the gateway lets nobody in and shows no certificate.
        create_signer(&admin, "telemetry", telemetry()).await;
        let (dir, ledger) = fresh_ledger();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let inventory = InventoryOptions { listen, service: "addon-signer-inventory".to_owned() };
        let options = HubOptions { ledger, inventory: Some(inventory), ..options() };
        let client = hub.client_as(HUB_USER, &HUB_GROUPS).await;
        let process = HubProcess::prepare(client, options, Clock::default()).await.unwrap();
        let inventory = process.inventory_address().unwrap();
        let gateway = process.gateway_address().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(process.run(stop.clone()));
        Self { admin, inventory, gateway, ca, stop, task, _ledger: dir }
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// The certificate of the API server's front proxy.
    pub(super) fn front_proxy(&self, hub: &TestHub, name: &str) -> ClientPair {
        pair(hub.real().map_or(&self.ca, |real| real.front_proxy()), name)
    }

    /// Asks one question without an API server in between.
    pub(super) async fn ask(&self, caller: &ClientPair, user: &str, question: &str) -> Result<(u16, Value), String> {
        let request =
            Request::get(format!("{BASE}{question}")).header("host", "inventory").header("x-remote-user", user);
        let caller = self.trusting(caller).await;
        let (status, body) = caller.send(self.inventory, request).await.map_err(|error| chain(&*error))?;
        Ok((status.as_u16(), serde_json::from_str(&body).unwrap()))
    }

    /// Connects to the inventory, and asks nothing yet.
    pub(super) async fn connect(&self, caller: &ClientPair) -> Talk {
        let tls = self.trusting(caller).await.connect(self.inventory).await.unwrap();
        let shown = tls.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        Talk { shown, connection: Connection::over(tls).await }
    }

    /// The caller, with the current serving anchors.
    async fn trusting(&self, caller: &ClientPair) -> ClientPair {
        ClientPair { anchors: serving_anchors(&self.admin).await.into_bytes(), ..caller.clone() }
    }

    /// Waits until the inventory answers the front proxy.
    pub(super) async fn wait_served(&self, caller: &ClientPair) {
        wait_until(TIMEOUT, "the inventory to answer its front proxy", async || {
            self.ask(caller, "alice", "").await.ok()
        })
        .await;
    }

    pub(super) fn api_services(&self) -> Api<APIService> {
        Api::all(self.admin.clone())
    }

    /// The anchors by which the API server recognizes the inventory.
    pub(super) async fn registered(&self) -> Option<Bundle> {
        let ca = self.api_services().get_opt(API_SERVICE).await.unwrap()?.spec?.ca_bundle?;
        Bundle::from_pem(&ca.0).ok()
    }

    /// The id of the serving authority that signed the server's certificate.
    pub(super) async fn issuer(&self, server: SocketAddr, caller: &ClientPair) -> Option<AuthorityId> {
        let caller = self.trusting(caller).await;
        let leaf = caller.shown(server).await?;
        let bundle = Bundle::from_pem(&caller.anchors).unwrap();
        Some(bundle.verify(&leaf, Purpose::Server, Clock::default().now()).ok()?.id().clone())
    }

    /// Rotates the serving lineage and waits until the gateway shows a certificate of the new authority; returns both.
    pub(super) async fn rotate(&self) -> (AuthorityId, AuthorityId) {
        let nobody = nobody();
        let before = wait_until(TIMEOUT, "the gateway", async || self.issuer(self.gateway, &nobody).await).await;
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "addon-signer");
        let after = wait_until(TIMEOUT * 2, "a certificate of the new serving authority", async || {
            // The second annotation makes the keeper look again at once, because it waits until a second has passed.
            let now = Clock::default().now().to_string();
            let annotations = json!({ "addon-signer.io/rotate": format!("after {before}"), "test/poke": now });
            let body = json!({ "metadata": { "annotations": annotations } });
            maps.patch("addon-signer-trust", &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
            self.issuer(self.gateway, &nobody).await.filter(|id| *id != before)
        })
        .await;
        (before, after)
    }
}

/// A connection to the inventory.
pub(super) struct Talk {
    /// The certificate that the inventory has shown.
    pub(super) shown: CertificateDer<'static>,
    connection: Connection,
}

impl Talk {
    /// Asks what the inventory has; returns why it did not say so.
    pub(super) async fn ask(&mut self) -> Result<(), String> {
        let request = Request::get(BASE).header("host", "inventory").header("x-remote-user", "alice");
        let answer = self.connection.send(request.body(Full::default()).unwrap()).await?;
        let answer = collect(answer).await;
        if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
    }
}

/// An error and its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(|cause| format!("{cause:?} ")).collect()
}

/// A client certificate of this CA.
pub(super) fn pair(ca: &TestCa, name: &str) -> ClientPair {
    let made = ca.client(name, &[]);
    ClientPair { certificate: made.cert.into_bytes(), key: made.key.into_bytes(), anchors: Vec::new() }
}

/// A caller without a certificate.
pub(super) fn nobody() -> ClientPair {
    ClientPair { certificate: Vec::new(), key: Vec::new(), anchors: Vec::new() }
}

/// Writes the ConfigMap that kube-apiserver writes for its aggregated API servers.
pub(super) async fn tell_front_proxy(admin: &Client, ca: &TestCa) {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "kube-system");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "extension-apiserver-authentication" },
        "data": {
            "requestheader-client-ca-file": ca.pair().cert,
            "requestheader-allowed-names": r#"["front-proxy-client"]"#,
        },
    });
    let name = "extension-apiserver-authentication";
    if maps.get_opt(name).await.unwrap().is_some() {
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&map)).await.unwrap();
    } else {
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }
}
