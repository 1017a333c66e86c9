//! The hub's side in tests of the agent: a signer, simulated with the crate's own CA.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use addon_signer_agent::store::Store;
use addon_signer_agent::{Agent, Settings, Timing};
use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::Issuer;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::identity::{AddOnName, Convention, PeerIdentity};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{self, Approved, SignerRules, Submission};
use addon_signer_platform::clock::Clock;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use ring::rand::SystemRandom;
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;

use super::gateway::GatewayStandIn;
use test_kit::objects::create_namespace;
use test_kit::request::mk_csr;
use test_kit::rules::{mk_registry, mk_rules};
use test_kit::{TestHub, wait_until};

pub(super) const SIGNER: &str = "example.com/telemetry";
pub(super) const NAMESPACE: &str = "addons";
pub(super) const USER: &str = "system:open-cluster-management:cluster:cluster1:addon:telemetry:agent:telemetry";
/// How long the signer's certificates are valid after they are issued; they begin 5 minutes before that.
pub(super) const LIFE: Duration = Duration::from_secs(3600);
pub(super) const SOON: Duration = Duration::from_secs(20);
pub(super) const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// What the signer does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Issue,
    Deny,
    Ignore,
    WithoutTrust,
}

/// Everything around one agent.
pub(super) struct AgentWorld {
    pub(super) hub: TestHub,
    pub(super) admin: Client,
    pub(super) clock: Clock,
    pub(super) gateway: GatewayStandIn,
    pub(super) dir: TempDir,
    mood: Arc<Mutex<Mood>>,
    /// The anchors of the clients' certificates.
    clients: Bundle,
    /// The trust bundle that comes with new certificates.
    trust: Arc<Mutex<String>>,
    signer: tokio::task::JoinHandle<()>,
}

impl Drop for AgentWorld {
    fn drop(&mut self) {
        self.signer.abort();
        self.gateway.task.abort();
    }
}

impl AgentWorld {
    pub(super) async fn start() -> Self {
        let hub = TestHub::start().await;
        let admin = hub.admin().await;
        create_namespace(&admin, NAMESPACE).await;
        let clock = Clock::default();
        let clients = issuer("client CA", &clock);
        let serving = issuer("serving CA", &clock);
        let anchors = bundle(&clients);
        let gateway = GatewayStandIn::start(&anchors, &serving, &clock).await;
        let trust = Arc::new(Mutex::new(bundle(&serving).pem()));
        let mood = Arc::new(Mutex::new(Mood::Issue));
        let signer = Signer {
            requests: Api::all(admin.clone()),
            issuer: clients,
            trust: trust.clone(),
            mood: mood.clone(),
            clock: clock.clone(),
        };
        let signer = tokio::spawn(signer.run());
        let world =
            Self { hub, admin, clock, gateway, dir: TempDir::new().unwrap(), mood, clients: anchors, trust, signer };
        let cluster = "system:open-cluster-management:cluster1";
        let groups = [cluster, "system:open-cluster-management:managed-clusters"];
        world.write_kubeconfig(&format!("{cluster}:a1"), &groups);
        world
    }

    /// The same with an agent that has its certificate in the Secret.
    pub(super) async fn enrolled() -> (Self, Agent) {
        let world = Self::start().await;
        let mut agent = world.agent(world.secret_store());
        agent.once().await.unwrap();
        (world, agent)
    }

    pub(super) fn mood(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// The gateway's certificate is of another authority from now on, whose anchor nobody has. Returns that anchor.
    pub(super) fn replace_serving(&self) -> Bundle {
        self.replace_serving_at(&self.clock)
    }

    /// The same, with a certificate that was made at the time of this clock, and lasts half a year.
    pub(super) fn replace_serving_at(&self, clock: &Clock) -> Bundle {
        let serving = issuer("serving CA", clock);
        self.gateway.replace(&self.clients, &serving, clock);
        bundle(&serving)
    }

    /// The gateway's authority was replaced: hub and gateway publish the new one, of which the gateway has no
    /// certificate yet.
    pub(super) fn replace_anchors(&self) -> Issuer {
        let serving = issuer("serving CA", &self.clock);
        self.publish(&bundle(&serving));
        self.gateway.answers.lock().unwrap().bundle = bundle(&serving);
        serving
    }

    /// The gateway has a certificate of this authority from now on.
    pub(super) fn serve_by(&self, serving: &Issuer) {
        self.gateway.replace(&self.clients, serving, &self.clock);
    }

    /// The anchors that the gateway publishes, and another one.
    pub(super) fn with_next(&self) -> Bundle {
        let old = self.gateway.answers.lock().unwrap().bundle.clone();
        let next = issuer("next serving CA", &self.clock);
        Bundle::new([old.authorities(), &[next.authority().clone()]].concat()).unwrap()
    }

    /// New certificates come with this trust bundle from now on.
    pub(super) fn publish(&self, trust: &Bundle) {
        *self.trust.lock().unwrap() = trust.pem();
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("hub.kubeconfig")
    }

    pub(super) fn write_kubeconfig(&self, user: &str, groups: &[&str]) {
        let text = serde_saphyr::to_string(&self.hub.kubeconfig(user, groups)).unwrap();
        std::fs::write(self.kubeconfig(), text).unwrap();
    }

    pub(super) fn secret_store(&self) -> Store {
        Store::secret(self.admin.clone(), NAMESPACE, &"telemetry".parse().unwrap())
    }

    pub(super) fn agent(&self, store: Store) -> Agent {
        self.agent_at(store, &self.gateway.url())
    }

    pub(super) fn agent_at(&self, store: Store, gateway: &str) -> Agent {
        Agent::new(self.settings(identity(), gateway), store, self.clock.clone())
    }

    /// An agent that waits briefly for its certificate. The others wait as long as a busy machine may need.
    pub(super) fn hasty_agent(&self) -> Agent {
        let mut settings = self.settings(identity(), &self.gateway.url());
        settings.timing.answer = Duration::from_secs(1);
        Agent::new(settings, self.secret_store(), self.clock.clone())
    }

    /// The agent on a machine with this clock.
    pub(super) fn agent_with_clock(&self, clock: Clock) -> Agent {
        Agent::new(self.settings(identity(), &self.gateway.url()), self.secret_store(), clock)
    }

    /// The agent of another addon, with the Secret of that addon.
    pub(super) fn agent_for_addon(&self, addon: &str) -> Agent {
        let store = Store::secret(self.admin.clone(), NAMESPACE, &addon.parse().unwrap());
        let other = PeerIdentity { addon: addon.parse().unwrap(), agent: addon.parse().unwrap(), ..identity() };
        Agent::new(self.settings(other, &self.gateway.url()), store, self.clock.clone())
    }

    fn settings(&self, identity: PeerIdentity, gateway: &str) -> Settings {
        Settings {
            identity,
            convention: Convention::default(),
            signer_name: SIGNER.to_owned(),
            expiration_seconds: None,
            hub_kubeconfig: self.kubeconfig(),
            plugins: addon_signer_platform::kubeconfig::Plugins::Refuse,
            gateway: gateway.parse().unwrap(),
            timing: Timing {
                poll: Duration::from_millis(100),
                answer: SOON,
                retry_first: Duration::from_millis(100),
                retry_cap: Duration::from_millis(500),
                refresh: Duration::from_millis(200),
                health: Duration::from_millis(200),
            },
        }
    }

    /// Somebody else requests a certificate of `signer`.
    pub(super) async fn request_another(&self, signer: &str, name: &str) -> CertificateSigningRequest {
        let mut object = mk_csr("cluster2", "telemetry");
        object.metadata.name = Some(name.to_owned());
        object.metadata.generate_name = None;
        object.spec.signer_name = signer.to_owned();
        let requests: Api<CertificateSigningRequest> = Api::all(self.admin.clone());
        requests.create(&PostParams::default(), &object).await.unwrap()
    }

    /// The hub gives out a certificate of `signer` with these anchors, to somebody else.
    pub(super) async fn certify_another(&self, signer: &str, name: &str, trust: &Bundle) {
        let made = self.request_another(signer, name).await;
        let requests: Api<CertificateSigningRequest> = Api::all(self.admin.clone());
        let approved = decide(&requests, made, "Approved").await;
        let any = issuer("any CA", &self.clock);
        publish(&requests, approved, any.authority().certificate(), Some(trust.pem())).await;
    }

    /// What agents have requested.
    pub(super) async fn requests(&self) -> Vec<CertificateSigningRequest> {
        let all: Api<CertificateSigningRequest> = Api::all(self.admin.clone());
        let fields = format!("spec.signerName={SIGNER}");
        let mut found = all.list(&ListParams::default().fields(&fields)).await.unwrap().items;
        found.retain(is_agents);
        found
    }

    /// Moves the clock after every possible time of renewal and before the certificate's end.
    pub(super) fn make_due(&self) {
        self.clock.advance(LIFE * 4 / 5);
    }

    pub(super) async fn wait_for_requests(&self, count: usize) {
        wait_until(SOON, "requests", async || (self.requests().await.len() >= count).then_some(())).await;
    }
}

pub(super) fn identity() -> PeerIdentity {
    PeerIdentity {
        cluster: "cluster1".parse().unwrap(),
        addon: "telemetry".parse().unwrap(),
        agent: "telemetry".parse().unwrap(),
    }
}

pub(super) fn issuer(name: &str, clock: &Clock) -> Issuer {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    Issuer::new(Authority::self_signed(name, &key, clock.now(), YEAR, &rng).unwrap(), key).unwrap()
}

pub(super) fn bundle(issuer: &Issuer) -> Bundle {
    Bundle::new(vec![issuer.authority().clone()]).unwrap()
}

pub(super) fn issue(issuer: &Issuer, approved: Approved, clock: &Clock) -> CertificateDer<'static> {
    let rng = SystemRandom::new();
    let prepared = issuer.prepare(approved, Serial::new(clock.now(), &rng).unwrap(), clock.now()).unwrap();
    issuer.sign(prepared, &bundle(issuer), clock.now(), &rng).unwrap().certificate
}

/// Answers every request, as the hub would.
struct Signer {
    requests: Api<CertificateSigningRequest>,
    issuer: Issuer,
    trust: Arc<Mutex<String>>,
    mood: Arc<Mutex<Mood>>,
    clock: Clock,
}

impl Signer {
    async fn run(self) {
        let fields = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
        loop {
            let found = self.requests.list(&fields).await.map(|list| list.items).unwrap_or_default();
            for request in found.into_iter().filter(|request| is_agents(request) && !is_decided(request)) {
                let mood = *self.mood.lock().unwrap();
                match mood {
                    Mood::Ignore => {}
                    Mood::Deny => _ = decide(&self.requests, request, "Denied").await,
                    Mood::Issue | Mood::WithoutTrust => self.sign(request, mood).await,
                }
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn sign(&self, request: CertificateSigningRequest, mood: Mood) {
        let approved = approve(&request);
        let request = decide(&self.requests, request, "Approved").await;
        let trust = (mood == Mood::Issue).then(|| self.trust.lock().unwrap().clone());
        publish(&self.requests, request, &issue(&self.issuer, approved, &self.clock), trust).await;
    }
}

async fn decide(
    requests: &Api<CertificateSigningRequest>,
    mut request: CertificateSigningRequest,
    verdict: &str,
) -> CertificateSigningRequest {
    let condition = CertificateSigningRequestCondition {
        type_: verdict.to_owned(),
        status: "True".to_owned(),
        reason: Some("AddOnNotFound".to_owned()),
        message: Some("The addon telemetry is not installed.".to_owned()),
        ..CertificateSigningRequestCondition::default()
    };
    request.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    let name = request.metadata.name.clone().unwrap();
    requests.replace_subresource("approval", &name, &PostParams::default(), &request).await.unwrap()
}

async fn publish(
    requests: &Api<CertificateSigningRequest>,
    mut request: CertificateSigningRequest,
    certificate: &CertificateDer<'_>,
    trust: Option<String>,
) {
    let name = request.metadata.name.clone().unwrap();
    request.status.get_or_insert_default().certificate = Some(ByteString(pem(certificate).into_bytes()));
    if let Some(trust) = trust {
        let annotations = request.metadata.annotations.get_or_insert_default();
        annotations.insert("addon-signer.io/trust-bundle".to_owned(), trust);
    }
    requests.replace_status(&name, &PostParams::default(), &request).await.unwrap();
}

/// The world's own requests have a name from the beginning.
fn is_agents(request: &CertificateSigningRequest) -> bool {
    request.metadata.generate_name.is_some()
}

fn is_decided(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().is_some_and(|status| status.conditions.as_ref().is_some_and(|all| !all.is_empty()))
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    der::pem::encode_string("CERTIFICATE", der::pem::LineEnding::LF, certificate).unwrap()
}

/// Applies the crate's own policy to the request that the API server stored: the agent's requests must pass it.
fn approve(request: &CertificateSigningRequest) -> Approved {
    let addons: [AddOnName; 2] = ["telemetry".parse().unwrap(), "logs".parse().unwrap()];
    let rules = mk_rules(SIGNER, addons.clone());
    let rules = SignerRules { keys: [KeyKind::EcdsaP256].into(), duration: LIFE, max_duration: LIFE, ..rules };
    let registry = mk_registry(&identity().cluster, addons);
    let labels = request.metadata.labels.clone().unwrap_or_default();
    let submission = Submission {
        username: request.spec.username.clone().unwrap_or_default(),
        groups: request.spec.groups.clone().unwrap_or_default(),
        cluster_label: labels.get("open-cluster-management.io/cluster-name").cloned(),
        addon_label: labels.get("open-cluster-management.io/addon-name").cloned(),
        usages: request.spec.usages.clone().unwrap_or_default(),
        request: request.spec.request.0.clone(),
        ..Submission::default()
    };
    policy::evaluate(&rules, &submission, &registry).unwrap()
}
