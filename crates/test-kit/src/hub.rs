//! Our hub, which runs in the test's process against a test hub's API server, with exactly the rights of the chart.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use addon_signer_api::{AddOnRoute, AddOnSigner};
use addon_signer_core::gateway::protected::ProtectedAddresses;
use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::policy::GatewayRules;
use addon_signer_core::rate::Rate;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::trust::Trust;
use addon_signer_hub::authorities::supply::ServingSource;
use addon_signer_hub::lease::{self, Leading};
use addon_signer_hub::metrics::HubMetrics;
use addon_signer_hub::registrations::registry::discover;
use addon_signer_hub::routes::RouteSettings;
use addon_signer_hub::{GatewayEnds, Hub, HubConfig, HubEnds, HubError, HubParts, HubSettings};
use addon_signer_ledger::{Ledger, Location};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_telemetry::metrics::Metrics;
use addon_signer_telemetry::pulse::Pulses;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lease::Holding;
use super::{TestHub, objects, wait_for, wait_until};
use crate::accounts::{HUB_GROUPS, HUB_USER};
use crate::deploy::{apply, installed, part};

pub use crate::wait::TIMEOUT;

/// A hub without its gateway. What the hub wants the gateway to trust takes effect at once, unless the test sets
/// [`RunningHubOptions::follow`] to false.
pub struct RunningHub {
    pub trust: watch::Receiver<Arc<Trust>>,
    pub applied: watch::Sender<Arc<Trust>>,
    pub registry: SharedRegistry,
    pub clock: Clock,
    pub metrics: Metrics,
    pub leading: Leading,
    pub ledger: Ledger,
    /// What its gateway would be told.
    pub protected: watch::Receiver<ProtectedAddresses>,
    /// Its gateway's routes.
    pub routes: watch::Receiver<Arc<RouteTable>>,
    pub pulses: Pulses,
    holding: Holding,
    task: JoinHandle<Result<(), HubError>>,
    pipe: JoinHandle<()>,
    _fresh: Option<TempDir>,
}

/// The settings of a test's hub.
pub struct RunningHubOptions {
    pub retention: Duration,
    pub rate: Rate,
    pub grpc_proxy: Option<String>,
    /// Whether the ledger counts as one that is lost with the pod.
    pub is_ledger_ephemeral: bool,
    /// What AddOnRoutes may name.
    pub routes: RouteSettings,
    /// Whether the trust takes effect at once; see [`RunningHub::follow_once`].
    pub follow: bool,
    /// What the gateway's certificate must be.
    pub gateway: GatewayRules,
    /// Where the authorities of its serving certificate come from.
    pub serving_source: ServingSource,
    /// The hub's account.
    pub user: &'static str,
    /// How long its Lease is valid; `None` for a hub that believes that it leads, whatever the Lease says.
    pub lease: Option<Duration>,
    /// Its ledger; `None` for a new SQLite file of its own.
    pub ledger: Option<Location>,
    /// Its clock.
    pub clock: Clock,
    /// How it reaches the API server; `None` for directly, as [`Self::user`].
    pub kubeconfig: Option<Kubeconfig>,
    /// The API server's clock; `None` for one that moves with the hub's.
    pub date: Option<Clock>,
}

/// The location of a ledger that does not exist yet. Dropping the `TempDir` removes its directory.
pub fn fresh_ledger() -> (TempDir, Location) {
    let dir = tempfile::tempdir().unwrap();
    let location = format!("sqlite://{}/ledger.db", dir.path().display()).parse().unwrap();
    (dir, location)
}

fn this_or_fresh(ledger: Option<Location>) -> (Option<TempDir>, Location) {
    ledger.map_or_else(
        || {
            let (dir, location) = fresh_ledger();
            (Some(dir), location)
        },
        |location| (None, location),
    )
}

impl Default for RunningHubOptions {
    fn default() -> Self {
        let rate = Rate { burst: 1_000, interval: Duration::from_secs(1) };
        let gateway = GatewayRules {
            account: HUB_USER.to_owned(),
            dns_names: BTreeSet::from(["gateway.example".to_owned()]),
            ip_addresses: BTreeSet::new(),
            duration: Duration::from_secs(86_400),
        };
        let lease = Some(lease::DEFAULT_DURATION);
        Self {
            retention: Duration::from_secs(3_600),
            rate,
            grpc_proxy: None,
            is_ledger_ephemeral: false,
            routes: RouteSettings {
                names: ["gateway.example", "telemetry.gateway.example"].map(|name| name.parse().unwrap()).to_vec(),
                backend_addresses: Vec::new(),
            },
            follow: true,
            gateway,
            serving_source: ServingSource::default(),
            user: HUB_USER,
            lease,
            ledger: None,
            clock: Clock::default(),
            kubeconfig: None,
            date: None,
        }
    }
}

/// Installs the chart's objects, with the right to sign for example.com/telemetry; on the stand-in only the namespace.
pub async fn deploy(hub: &TestHub) {
    let admin = hub.admin().await;
    if hub.is_real() {
        apply(&admin, &installed()).await;
        apply(&admin, &part("signers")).await;
    } else {
        objects::create_namespace(&admin, "addon-signer").await;
        objects::bind_policy(&admin, "trust-bundle").await;
        objects::bind_policy(&admin, "anchors").await;
    }
}

/// Plays a gateway that puts everything into effect at once, if it `follows`.
async fn follow(mut trust: watch::Receiver<Arc<Trust>>, applied: watch::Sender<Arc<Trust>>, follows: bool) {
    while follows && trust.changed().await.is_ok() {
        applied.send_replace(trust.borrow_and_update().clone());
    }
}

impl RunningHub {
    pub async fn start(hub: &TestHub) -> Self {
        Self::start_with(hub, RunningHubOptions::default()).await
    }

    pub async fn start_with(hub: &TestHub, options: RunningHubOptions) -> Self {
        let client = match options.kubeconfig {
            Some(kubeconfig) => crate::client(kubeconfig).await,
            None => {
                let groups: &[&str] = if options.user == HUB_USER { &HUB_GROUPS } else { &[] };
                hub.client_at(options.user, groups, options.date.as_ref().unwrap_or(&options.clock)).await
            }
        };
        let (_fresh, location) = this_or_fresh(options.ledger);
        let (holding, leading) = Holding::start(hub, client.clone(), options.lease, location.clone()).await;
        let (metrics, owned) = Metrics::new(HubMetrics::register);
        let pulses = Pulses::default();
        let parts = HubParts {
            client: client.clone(),
            clock: options.clock.clone(),
            leading: leading.clone(),
            metrics: owned,
            ledger: location,
            replica: format!("test-{}", std::process::id()),
            pulses: pulses.clone(),
            contacts: Contacts::default(),
            has_gateway: true,
        };
        let config = HubConfig {
            namespace: "addon-signer".to_owned(),
            serving_source: options.serving_source,
            grpc_proxy: options.grpc_proxy,
            routes: options.routes,
            retention: options.retention,
            rate: options.rate,
            is_ledger_ephemeral: options.is_ledger_ephemeral,
        };
        let settings = HubSettings { config, gateway: options.gateway, inventory: None };
        let (wired, ends) = Hub::wire(parts);
        let HubEnds { gateway: GatewayEnds { registry, trust, applied, protected, routes, .. }, ledger } = ends;
        let task = tokio::spawn(async move { wired.run(settings, discover(&client).await?).await });
        let clock = options.clock;
        let pipe = tokio::spawn(follow(trust.clone(), applied.clone(), options.follow));
        Self {
            trust,
            applied,
            registry,
            clock,
            metrics,
            leading,
            ledger,
            protected,
            routes,
            pulses,
            holding,
            task,
            pipe,
            _fresh,
        }
    }

    /// Puts into effect once what the hub wants the gateway to trust.
    pub fn follow_once(&self) {
        self.applied.send_replace(self.trust.borrow().clone());
    }
}

impl RunningHub {
    /// Waits until the hub ends; returns how it ended.
    pub async fn ended(&mut self) -> Result<(), HubError> {
        wait_for(TIMEOUT, "the hub to end", &mut self.task).await.unwrap()
    }

    /// Waits until the hub leads; returns its epoch.
    pub async fn leads(&mut self) -> u32 {
        wait_for(TIMEOUT, "the hub to lead", self.leading.acquired()).await.unwrap()
    }

    /// Makes a hub without a Lease believe that it leads in this epoch, or that its time as leader has ended.
    pub fn believe(&self, epoch: Option<u32>) {
        self.holding.believe(epoch);
    }

    /// Stops the hub as SIGTERM does: it gives the Lease back. Dropping the hub kills it instead.
    pub async fn stop(mut self) {
        self.holding.stop.cancel();
        if let Some(task) = self.holding.task.take() {
            wait_for(TIMEOUT, "the hub to give its Lease back", task).await.unwrap();
        }
    }
}

impl Drop for RunningHub {
    fn drop(&mut self) {
        self.task.abort();
        self.pipe.abort();
    }
}

/// Creates an AddOnSigner from its spec.
pub async fn create_signer(admin: &Client, name: &str, spec: Value) -> AddOnSigner {
    let api: Api<AddOnSigner> = Api::all(admin.clone());
    let object = json!({
        "apiVersion": "addon-signer.io/v1alpha1", "kind": "AddOnSigner", "metadata": {"name": name}, "spec": spec,
    });
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// Changes the AddOnSigner telemetry.
pub async fn change_signer(admin: &Client, change: Value) -> AddOnSigner {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    signers.patch("telemetry", &PatchParams::default(), &Patch::Merge(change)).await.unwrap()
}

/// Changes the AddOnSigner telemetry, and waits until the hub has seen it.
pub async fn change_signer_seen(admin: &Client, change: Value) {
    let wanted = change_signer(admin, change).await.metadata.generation;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    wait_until(TIMEOUT, "the hub to see the signer's new specification", async || {
        let seen = signers.get("telemetry").await.unwrap().status?.observed_generation;
        (seen >= wanted).then_some(())
    })
    .await;
}

/// Creates an AddOnRoute from its spec.
pub async fn apply_route(admin: &Client, namespace: &str, name: &str, spec: Value) -> AddOnRoute {
    let api: Api<AddOnRoute> = Api::namespaced(admin.clone(), namespace);
    let object = json!({
        "apiVersion": "addon-signer.io/v1alpha1", "kind": "AddOnRoute", "metadata": {"name": name}, "spec": spec,
    });
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// Creates the AddOnRoute `receive` of the AddOnSigner `telemetry`, in the namespace `default`, with one path.
pub async fn create_route(admin: &Client, backend: SocketAddr, path: &str, methods: &[&str]) -> AddOnRoute {
    let spec = json!({
        "signer": "telemetry",
        "match": { "http": [{ "path": path, "methods": methods }] },
        "backend": { "address": backend.to_string() },
    });
    apply_route(admin, "default", "receive", spec).await
}

/// The spec of the AddOnSigner of most tests.
pub fn telemetry() -> Value {
    json!({"signerName": "example.com/telemetry", "addOns": ["telemetry"]})
}

/// Waits until the signer's condition `Ready` has this status; returns its reason and message.
pub async fn wait_ready(admin: &Client, name: &str, status: &str) -> (String, String) {
    let api: Api<AddOnSigner> = Api::all(admin.clone());
    wait_until(TIMEOUT, &format!("AddOnSigner {name} to be Ready={status}"), async || {
        let conditions = api.get_opt(name).await.ok()??.status?.conditions;
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        (ready.status == status && ready.reason != "Starting").then_some((ready.reason, ready.message))
    })
    .await
}

/// Waits until `pick` finds something on the request.
pub async fn wait_csr<T>(
    admin: &Client,
    name: &str,
    what: &str,
    pick: impl Fn(&CertificateSigningRequest) -> Option<T>,
) -> T {
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    wait_until(TIMEOUT, &format!("{name} to be {what}"), async || {
        api.get_opt(name).await.ok().flatten().as_ref().and_then(&pick)
    })
    .await
}

/// The certificate of a request, as PEM.
pub fn certificate(csr: &CertificateSigningRequest) -> Option<String> {
    let bytes = csr.status.as_ref()?.certificate.as_ref()?;
    Some(String::from_utf8(bytes.0.clone()).unwrap())
}

/// Reason and message of a condition.
pub fn condition(csr: &CertificateSigningRequest, kind: &str) -> Option<(String, String)> {
    let conditions = csr.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.reason.clone().unwrap_or_default(), found.message.clone().unwrap_or_default()))
}

/// The addon as the API server holds it.
pub async fn addon(admin: &Client, cluster: &str, name: &str) -> DynamicObject {
    objects::managed_cluster_addons(admin, cluster).await.get(name).await.unwrap()
}
