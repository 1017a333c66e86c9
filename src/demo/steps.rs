//! The demonstration, step by step. Each step prints a line; the table at the end sums them up.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ipnet::IpNet;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use ring::rand::SystemRandom;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backend::Backend;
use super::objects::{
    accept, check_ledger, create_namespace, create_route, create_signer, define_resources, protect_trust_bundle,
};
use super::traffic::{Traffic, TrafficCaller};
use super::{ADDON, BACKENDS, DemoArgs, SIGNER, backend};
use crate::output::{Rows, print};
use crate::process::registry_age::AgeBounds;
use crate::process::{HubOptions, HubProcess, Roles};
use addon_signer_agent::store::Store;
use addon_signer_agent::{Agent, Settings, Timing};
use addon_signer_api::ocm::AddOnApi;
use addon_signer_api::route::CONDITION_PROGRAMMED;
use addon_signer_api::status::AuthorityState;
use addon_signer_api::{AddOnRoute, AddOnSigner};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::credentials::Wanted;
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::identity::{AgentName, Convention, PeerIdentity};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::names::ANNOTATION_ROTATE;
use addon_signer_gateway::Limits;
use addon_signer_hub::routes::RouteSettings;
use addon_signer_hub::{HubConfig, lease};
use addon_signer_ledger::Location;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::connection::connect;
use addon_signer_platform::listing::{self, Selector};
use stand_in::StandIn;

const CLUSTERS: [&str; 3] = ["cluster1", "cluster2", "cluster3"];
const NAMESPACE: &str = "addon-signer";
const ROUTE: &str = "/api/v1/receive";
/// Timeout of a step. On a healthy machine, every step is shorter.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long requests are sent before and after each change.
const FLOW: Duration = Duration::from_millis(1_500);
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The rows of the table.
struct Story {
    rows: Vec<[String; 2]>,
    started: Instant,
}

impl Story {
    fn tell(&mut self, step: &str, outcome: String) {
        eprintln!("[{:>5.1}s] {step}: {outcome}", self.started.elapsed().as_secs_f32());
        self.rows.push([step.to_owned(), outcome]);
    }
}

/// Everything that runs.
struct Stage {
    hub: StandIn,
    admin: Client,
    /// The backend, which answers until it is dropped.
    _backend: Backend,
    gateway: SocketAddr,
    callers: Vec<TrafficCaller>,
    ledger: Location,
    tasks: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
}

pub(super) async fn run(args: &DemoArgs, directory: &Path) -> anyhow::Result<()> {
    let mut story = Story { rows: Vec::new(), started: Instant::now() };
    let mut stage = set(directory, &mut story).await?;
    let result = play(&mut stage, &mut story).await;
    let result = match (result, stage.tasks.try_join_next()) {
        // If a task ended, that caused all other errors.
        (_, Some(ended)) => ended.context("a task failed")?.and_then(|()| bail!("a task of the demonstration ended")),
        (result, None) => result,
    };
    if result.is_ok() {
        let mut rows = Rows::new(&["STEP", "WHAT HAPPENED"]);
        story.rows.iter().for_each(|row| rows.add(row));
        print(&format!("\n{}", rows.render()));
        if args.keep {
            keep(&stage, directory).await?;
        }
    }
    stage.stop.cancel();
    // Only the hub's task obeys `stop`: it drains, and writes the counts of its audit log.
    match tokio::time::timeout(TIMEOUT, stage.tasks.join_next()).await {
        Ok(Some(ended)) => result.and(ended.context("a task failed")?),
        Ok(None) => result,
        Err(_) => result.and(Err(anyhow::anyhow!("the hub did not stop within {TIMEOUT:?}"))),
    }
}

async fn set(directory: &Path, story: &mut Story) -> anyhow::Result<Stage> {
    let hub = StandIn::start(LOOPBACK).await?;
    let admin = client(hub.kubeconfig("admin", &["system:masters"])).await?;
    let backend = Backend::start().await?;
    for cluster in CLUSTERS {
        accept(&admin, cluster).await?;
    }
    for namespace in [NAMESPACE, BACKENDS] {
        create_namespace(&admin, namespace).await?;
    }
    protect_trust_bundle(&admin).await?;
    define_resources(&admin).await?;
    create_signer(&admin).await?;
    let http = json!({ "http": [{ "path": ROUTE, "methods": ["POST"] }] });
    create_route(&admin, "receive", http, backend.address).await?;
    let calls = json!({ "grpc": [{ "service": backend::SERVICE, "methods": [backend::METHOD] }] });
    create_route(&admin, "push", calls, backend.address).await?;
    story.tell("stand-in", format!("serves the Kubernetes API on {}, {} clusters accepted", hub.url(), CLUSTERS.len()));

    let account = "system:serviceaccount:addon-signer:addon-signer";
    let hub_client = client(hub.kubeconfig(account, &["system:serviceaccounts"])).await?;
    let ledger: Location = format!("sqlite://{}/ledger.db", directory.display()).parse()?;
    let routes = RouteSettings {
        names: vec!["127.0.0.1".parse()?, "localhost".parse()?],
        backend_addresses: vec![IpNet::from(LOOPBACK.ip())],
    };
    let options = HubOptions {
        roles: Roles::Both,
        hub: HubConfig { routes, ..HubConfig::default() },
        gateway_listen: LOOPBACK,
        gateway_limits: Limits::default(),
        access_log: false,
        metrics_listen: LOOPBACK,
        inventory: None,
        replica: "demo".to_owned(),
        pod_uid: None,
        shutdown_delay: Duration::ZERO,
        ledger: ledger.clone(),
        lease_duration: lease::DEFAULT_DURATION,
        registry_age: AgeBounds::default(),
    };
    let process = HubProcess::prepare(hub_client, options, Clock::default()).await?;
    let gateway = process.gateway_address().context("the process has no gateway")?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(process.run(stop.clone()));
    let callers =
        CLUSTERS.map(|cluster| caller(cluster, directory, gateway)).into_iter().collect::<anyhow::Result<_>>()?;
    Ok(Stage { hub, admin, _backend: backend, gateway, callers, ledger, tasks, stop })
}

fn identity(cluster: &str) -> anyhow::Result<PeerIdentity> {
    let addon = ADDON.parse()?;
    Ok(PeerIdentity { cluster: cluster.parse()?, agent: AgentName::of_addon(&addon), addon })
}

fn caller(cluster: &str, directory: &Path, gateway: SocketAddr) -> anyhow::Result<TrafficCaller> {
    Ok(TrafficCaller {
        gateway,
        directory: directory.join(cluster),
        wanted: Wanted::new(&Convention::default(), &identity(cluster)?),
        path: format!("/addons/{ADDON}{ROUTE}"),
        clock: Clock::default(),
        last: Arc::default(),
    })
}

async fn play(stage: &mut Stage, story: &mut Story) -> anyhow::Result<()> {
    let first = wait("the signer to have an authority", || active(&stage.admin)).await?;
    for (cluster, caller) in CLUSTERS.iter().zip(&stage.callers) {
        stage.tasks.spawn(run_agent(agent(&stage.hub, cluster, caller, stage.gateway)?));
    }
    let begun = Instant::now();
    for caller in &stage.callers {
        wait("an agent to have its certificate", async || Ok(caller.credentials().await.ok())).await?;
    }
    story.tell(
        "enrolment",
        format!(
            "{} agents have a certificate of CA {first} after {:.1} s",
            CLUSTERS.len(),
            begun.elapsed().as_secs_f32()
        ),
    );

    // An agent may have its certificate a moment before the gateway knows the route.
    wait("the route to be in effect", || programmed(&stage.admin)).await?;
    let traffic = Traffic::start(&stage.callers);
    tokio::time::sleep(FLOW).await;
    let flowing = traffic.count.sent.load(Ordering::Relaxed);
    ensure!(flowing > 0, "no request went through the gateway");
    story.tell("gateway", format!("{flowing} requests passed with the identity that the CA vouches for"));

    let caller = stage.callers.first().context("there are no agents")?;
    let seen = backend::call_grpc(caller).await.context("the gRPC request failed")?;
    ensure!(seen == caller.wanted.user, "the backend saw another identity: {seen}");
    story.tell(
        "gRPC",
        format!("{}/{} passed over HTTP/2, with trailers and the same identity", backend::SERVICE, backend::METHOD),
    );

    story.tell("hostile request", hostile(&stage.hub, &stage.admin).await?);

    let second = rotate(&stage.admin, &first).await?;
    tokio::time::sleep(FLOW).await;
    story.tell("CA rotation", format!("CA {second} signs, {first} stays trusted while its certificates live"));

    let renewed = lose_and_recover(stage, &second).await?;
    tokio::time::sleep(FLOW).await;
    story.tell("re-enrolment", format!("{renewed} agents lost their certificate and came back under CA {second}"));

    let (sent, failed) = traffic.stop().await;
    story.tell("requests", format!("{sent} sent, {failed} failed"));
    ensure!(failed == 0, "{failed} of {sent} requests failed");

    let after = detach(stage).await?;
    story.tell("detach", format!("the addon was removed from cluster3; the gateway refused it {after:.2} s later"));
    story.tell("ledger", check_ledger(&stage.ledger).await?);
    Ok(())
}

/// `Some` once all AddOnRoutes are in effect.
async fn programmed(admin: &Client) -> anyhow::Result<Option<()>> {
    let routes = listing::all(Api::<AddOnRoute>::all(admin.clone()), Selector::all()).await?;
    let is_programmed = |route: &AddOnRoute| {
        let conditions = route.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|it| it.type_ == CONDITION_PROGRAMMED && it.status == "True")
    };
    Ok((!routes.is_empty() && routes.iter().all(is_programmed)).then_some(()))
}

fn agent(hub: &StandIn, cluster: &str, caller: &TrafficCaller, gateway: SocketAddr) -> anyhow::Result<Agent> {
    let user = format!("system:open-cluster-management:{cluster}:demo");
    let group = format!("system:open-cluster-management:{cluster}");
    let kubeconfig = hub.kubeconfig(&user, &[&group, "system:open-cluster-management:managed-clusters"]);
    let file = kubeconfig_file(caller, cluster)?;
    std::fs::write(&file, serde_saphyr::to_string(&kubeconfig)?)?;
    let settings = Settings {
        identity: identity(cluster)?,
        convention: Convention::default(),
        signer_name: SIGNER.to_owned(),
        expiration_seconds: None,
        hub_kubeconfig: file,
        plugins: addon_signer_platform::kubeconfig::Plugins::Refuse,
        gateway: format!("https://{gateway}").parse()?,
        timing: Timing { poll: Duration::from_millis(500), retry_first: Duration::from_secs(1), ..Timing::default() },
    };
    Ok(Agent::new(settings, Store::directory(caller.directory.clone()), Clock::default()))
}

fn kubeconfig_file(caller: &TrafficCaller, cluster: &str) -> anyhow::Result<PathBuf> {
    let parent = caller.directory.parent().context("the agents' directory has no parent")?;
    Ok(parent.join(format!("{cluster}.kubeconfig")))
}

async fn run_agent(agent: Agent) -> anyhow::Result<()> {
    match agent.run().await {}
}

/// The registration agent of cluster2 asks for cluster1's identity.
async fn hostile(hub: &StandIn, admin: &Client) -> anyhow::Result<String> {
    let group = "system:open-cluster-management:cluster2";
    let client = client(hub.kubeconfig("system:open-cluster-management:cluster2:demo", &[group])).await?;
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng)?;
    let wish = CsrParams { common_name: Convention::default().user(&identity("cluster1")?), ..CsrParams::default() };
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("hostile-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            signer_name: SIGNER.to_owned(),
            usages: Some(vec!["client auth".to_owned()]),
            request: ByteString(wish.sign(&key, &rng)?.into_bytes()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let name = requests.create(&PostParams::default(), &request).await?.metadata.name.context("a CSR has no name")?;
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    wait("the hostile request to be denied", async || {
        let conditions = requests.get(&name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let denied = conditions.into_iter().find(|condition| condition.type_ == "Denied");
        Ok(denied.map(|denied| {
            format!("Denied, {}: {}", denied.reason.unwrap_or_default(), denied.message.unwrap_or_default())
        }))
    })
    .await
}

/// Requests a rotation as `addon-signer ca rotate` does, and waits until another authority signs.
async fn rotate(admin: &Client, before: &AuthorityId) -> anyhow::Result<AuthorityId> {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let body = json!({ "metadata": { "annotations": { ANNOTATION_ROTATE: Clock::default().now().to_string() } } });
    signers.patch(ADDON, &PatchParams::default(), &Patch::Merge(&body)).await?;
    wait("the new authority to sign", async || Ok(active(admin).await?.filter(|id| id != before))).await
}

async fn active(admin: &Client) -> anyhow::Result<Option<AuthorityId>> {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let authorities = signers.get(ADDON).await?.status.unwrap_or_default().authorities;
    let active = authorities.iter().find(|authority| authority.state == AuthorityState::Active);
    Ok(active.map(|active| active.id.as_str().into()))
}

/// Deletes every agent's certificate, and waits until each has one of the authority `expected`.
async fn lose_and_recover(stage: &Stage, expected: &AuthorityId) -> anyhow::Result<usize> {
    for caller in &stage.callers {
        tokio::fs::remove_dir_all(&caller.directory).await?;
    }
    let mut renewed = 0;
    for caller in &stage.callers {
        wait("an agent to come back", async || Ok(caller.credentials().await.ok().filter(|it| it.issued_by(expected))))
            .await?;
        renewed += 1;
    }
    Ok(renewed)
}

/// Removes the addon from the last cluster; returns after how many seconds the gateway refused its certificate.
async fn detach(stage: &Stage) -> anyhow::Result<f32> {
    let (cluster, caller) = CLUSTERS.iter().zip(&stage.callers).next_back().context("there is no cluster")?;
    let addons = Api::<DynamicObject>::namespaced_with(stage.admin.clone(), cluster, &AddOnApi::V1Alpha1.resource());
    ensure!(caller.once().await?.is_success(), "the addon was refused before it was removed");
    addons.delete(ADDON, &kube::api::DeleteParams::default()).await?;
    let begun = Instant::now();
    wait("the gateway to refuse a removed addon", async || {
        Ok(caller.once().await.map_or(true, |status| !status.is_success()).then_some(()))
    })
    .await?;
    Ok(begun.elapsed().as_secs_f32())
}

async fn client(kubeconfig: Kubeconfig) -> anyhow::Result<Client> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(connect(config)?)
}

async fn wait<T>(what: &str, mut probe: impl AsyncFnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = probe().await? {
            return Ok(value);
        }
        ensure!(Instant::now() < deadline, "timed out after {} s waiting for {what}", TIMEOUT.as_secs());
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// Prints how to continue by hand, and waits for Ctrl-C.
async fn keep(stage: &Stage, directory: &Path) -> anyhow::Result<()> {
    let kubeconfig = directory.join("admin.kubeconfig");
    std::fs::write(&kubeconfig, serde_saphyr::to_string(&stage.hub.kubeconfig("admin", &["system:masters"]))?)?;
    let config = kubeconfig.display();
    let files = directory.join("cluster1");
    let files = files.display();
    let gateway = stage.gateway;
    let ledger = &stage.ledger;
    // A program run by cargo is not on the PATH.
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let program = program.display();
    print(&format!(
        "
Everything keeps running until Ctrl-C. In another terminal:

  export KUBECONFIG={config}
  kubectl get addonsigners,addonroutes,csr -A
  kubectl describe addonsigner {ADDON}
  {program} ca status
  {program} ca rotate {ADDON} --watch
  {program} certs list --ledger {ledger}
  curl --cert {files}/tls.crt --key {files}/tls.key --cacert {files}/ca.crt https://{gateway}/v1/whoami
  curl --cert {files}/tls.crt --key {files}/tls.key --cacert {files}/ca.crt -d x https://{gateway}/addons/{ADDON}{ROUTE}
"
    ));
    tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
}
