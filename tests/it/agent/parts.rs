//! The hub's side in tests of the agent: a signer and a gateway, simulated with the crate's own CA.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use addon_signer_agent::store::Store;
use addon_signer_agent::{Agent, Settings, Timing};
use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::Issuer;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::csr::build::Wish;
use addon_signer_core::identity::{AddOnName, Convention, PeerIdentity};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{self, Approved, ServingRules, SignerRules, Submission};
use addon_signer_platform::clock::Clock;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use ring::rand::SystemRandom;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::support::objects::create_namespace;
use crate::support::rules::{mk_registry, mk_rules};
use crate::support::{TestHub, wait_until};

pub(super) const SIGNER: &str = "example.com/telemetry";
pub(super) const NAMESPACE: &str = "addons";
pub(super) const USER: &str = "system:open-cluster-management:cluster:cluster1:addon:telemetry:agent:telemetry";
/// How long the signer's certificates are valid after they are issued; they begin 5 minutes before that.
pub(super) const LIFE: Duration = Duration::from_secs(3600);
pub(super) const SOON: Duration = Duration::from_secs(20);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

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
    pub(super) gateway: StandIn,
    pub(super) dir: TempDir,
    mood: Arc<Mutex<Mood>>,
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
        let gateway = StandIn::start(&clients, &serving, &clock).await;
        let mood = Arc::new(Mutex::new(Mood::Issue));
        let signer = Signer {
            requests: Api::all(admin.clone()),
            issuer: clients,
            trust: bundle(&serving).pem(),
            mood: mood.clone(),
            clock: clock.clone(),
        };
        let signer = tokio::spawn(signer.run());
        let world = Self { hub, admin, clock, gateway, dir: TempDir::new().unwrap(), mood, signer };
        let cluster = "system:open-cluster-management:cluster1";
        let groups = [cluster, "system:open-cluster-management:managed-clusters"];
        world.write_kubeconfig(&format!("{cluster}:a1"), &groups);
        world
    }

    pub(super) fn mood(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
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
            gateway: gateway.parse().unwrap(),
            timing: Timing {
                poll: Duration::from_millis(100),
                answer: Duration::from_millis(3000),
                retry_first: Duration::from_millis(100),
                retry_cap: Duration::from_millis(500),
                refresh: Duration::from_millis(200),
                health: Duration::from_millis(200),
            },
        }
    }

    pub(super) async fn requests(&self) -> Vec<CertificateSigningRequest> {
        let all: Api<CertificateSigningRequest> = Api::all(self.admin.clone());
        let fields = format!("spec.signerName={SIGNER}");
        all.list(&ListParams::default().fields(&fields)).await.unwrap().items
    }

    /// Moves the clock after every possible time of renewal and before the certificate's end.
    pub(super) fn make_due(&self) {
        self.clock.advance(LIFE * 4 / 5);
    }

    pub(super) async fn wait_for_requests(&self, count: usize) {
        wait_until(SOON, "requests", async || (self.requests().await.len() == count).then_some(())).await;
    }
}

fn identity() -> PeerIdentity {
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

fn issue(issuer: &Issuer, approved: Approved, clock: &Clock) -> CertificateDer<'static> {
    let rng = SystemRandom::new();
    let prepared = issuer.prepare(approved, Serial::new(clock.now(), &rng).unwrap(), clock.now()).unwrap();
    issuer.sign(prepared, &bundle(issuer), clock.now(), &rng).unwrap().certificate
}

/// Answers every request, as the hub would.
struct Signer {
    requests: Api<CertificateSigningRequest>,
    issuer: Issuer,
    trust: String,
    mood: Arc<Mutex<Mood>>,
    clock: Clock,
}

impl Signer {
    async fn run(self) {
        let fields = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
        loop {
            let found = self.requests.list(&fields).await.map(|list| list.items).unwrap_or_default();
            for request in found.into_iter().filter(|request| !is_decided(request)) {
                let mood = *self.mood.lock().unwrap();
                match mood {
                    Mood::Ignore => {}
                    Mood::Deny => self.decide(request, "Denied").await,
                    Mood::Issue | Mood::WithoutTrust => self.sign(request, mood).await,
                }
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn decide(&self, mut request: CertificateSigningRequest, verdict: &str) {
        let condition = CertificateSigningRequestCondition {
            type_: verdict.to_owned(),
            status: "True".to_owned(),
            reason: Some("AddOnNotFound".to_owned()),
            message: Some("The addon telemetry is not installed.".to_owned()),
            ..CertificateSigningRequestCondition::default()
        };
        request.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
        let name = request.metadata.name.clone().unwrap();
        self.requests.replace_subresource("approval", &name, &PostParams::default(), &request).await.unwrap();
    }

    async fn sign(&self, request: CertificateSigningRequest, mood: Mood) {
        let name = request.metadata.name.clone().unwrap();
        let approved = approve(&request);
        self.decide(request, "Approved").await;
        let mut request = self.requests.get(&name).await.unwrap();
        let certificate = pem(&issue(&self.issuer, approved, &self.clock));
        request.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
        if mood == Mood::Issue {
            let annotations = request.metadata.annotations.get_or_insert_default();
            annotations.insert("addon-signer.io/trust-bundle".to_owned(), self.trust.clone());
        }
        self.requests.replace_status(&name, &PostParams::default(), &request).await.unwrap();
    }
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

/// Whether a certificate is revoked.
type Revoked = Box<dyn Fn(&[u8]) -> bool + Send>;

/// How the gateway answers.
pub(super) struct Answers {
    pub(super) refuse: bool,
    pub(super) revoked: Revoked,
    pub(super) bundle: Bundle,
    /// How often an agent has shown to have that bundle.
    pub(super) shown: u32,
}

/// An mTLS server with `/v1/whoami` and `/v1/bundle`.
pub(super) struct StandIn {
    pub(super) answers: Arc<Mutex<Answers>>,
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl StandIn {
    async fn start(clients: &Issuer, serving: &Issuer, clock: &Clock) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(server_config(clients, serving, clock)));
        let answers = Answers { refuse: false, revoked: Box::new(|_| false), bundle: bundle(serving), shown: 0 };
        let answers = Arc::new(Mutex::new(answers));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener, acceptor, answers.clone()));
        Self { answers, address, task }
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, answers: Arc<Mutex<Answers>>) {
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        tcp.set_nodelay(true).unwrap();
        // Ignore a failed handshake here: the test of the client sees its error.
        let Ok(tls) = acceptor.accept(tcp).await else { continue };
        let peer = tls.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        let service = hyper::service::service_fn(|request| {
            let answer = answer(&mut answers.lock().unwrap(), &peer, &request);
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        // Ignore a client that goes away, for the same reason.
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
    }
}

fn answer(answers: &mut Answers, peer: &CertificateDer<'_>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let reply = |status: u16, body: String| Response::builder().status(status).body(Full::from(body)).unwrap();
    if answers.refuse {
        return reply(403, json!({ "status": 403, "detail": "the cluster is not accepted" }).to_string());
    }
    if (answers.revoked)(peer) {
        return reply(403, json!({ "type": "https://addon-signer.io/problems/revoked" }).to_string());
    }
    let tag = format!("\"{}\"", answers.bundle.digest());
    match request.uri().path() {
        "/v1/whoami" => {
            let (_, leaf) = X509Certificate::from_der(peer).unwrap();
            let user = leaf.subject().iter_common_name().next().unwrap().as_str().unwrap();
            reply(200, json!({ "user": user }).to_string())
        }
        "/v1/bundle" if request.headers().get("if-none-match").is_some_and(|known| known == tag.as_str()) => {
            answers.shown += 1;
            reply(304, String::new())
        }
        "/v1/bundle" => reply(200, answers.bundle.pem()),
        _ => reply(404, String::new()),
    }
}

/// Gives the gateway the agent's clock.
#[derive(Debug)]
struct SharedTime(Clock);

impl rustls::time_provider::TimeProvider for SharedTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.now().unix().try_into().unwrap())))
    }
}

fn server_config(clients: &Issuer, serving: &Issuer, clock: &Clock) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = RootCertStore { roots: bundle(clients).anchors().to_vec() };
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let (certificate, key) = serving_pair(serving, clock);
    ServerConfig::builder_with_details(provider, Arc::new(SharedTime(clock.clone())))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key.into())
        .unwrap()
}

fn serving_pair(serving: &Issuer, clock: &Clock) -> (CertificateDer<'static>, PrivatePkcs8KeyDer<'static>) {
    let rng = SystemRandom::new();
    let (key, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let here = "127.0.0.1".parse().unwrap();
    let wish =
        Wish { common_name: policy::GATEWAY_COMMON_NAME.to_owned(), ip_addresses: vec![here], ..Wish::default() };
    let rules = ServingRules {
        account: "gateway".to_owned(),
        dns_names: [].into(),
        ip_addresses: [here].into(),
        duration: YEAR / 2,
    };
    let submission = Submission {
        username: "gateway".to_owned(),
        usages: vec!["server auth".to_owned()],
        request: wish.sign(&key, &rng).unwrap().into_bytes(),
        ..Submission::default()
    };
    let approved = policy::evaluate_serving(&rules, &submission).unwrap();
    (issue(serving, approved, clock), PrivatePkcs8KeyDer::from(pkcs8.to_vec()))
}
