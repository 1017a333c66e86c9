//! A running gateway, and clients of it.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use addon_signer_core::gateway::attachment::Attachment;
use addon_signer_core::gateway::protected::{Addresses, ProtectedAddresses};
use addon_signer_core::gateway::route::{Backend, Clusters, Protocol, Route, RouteLimits, RouteName, RouteTable};
use addon_signer_core::identity::Convention;
use addon_signer_core::registry::{AddOnFacts, ClusterFacts, SharedRegistry};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::{SignerTrust, Trust};
use addon_signer_core::usage::UsageTracker;
use addon_signer_gateway::{Gateway, GatewayConfig, GatewayError, GatewayInputs, GatewayStats, Limits};
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::audit::Audit;
use addon_signer_telemetry::metrics::Metrics;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::issue::{Ca, Leaf};
use crate::wait_until;

pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub const ANY: SocketAddr = SocketAddr::new(LOCALHOST, 0);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const SOON: Duration = Duration::from_secs(5);

/// A gateway that agents reach by the name `gateway.example`, on loopback and by an address of IPv6.
pub fn mk_config(limits: Limits) -> GatewayConfig {
    let names = ["gateway.example", "127.0.0.1", "2001:db8::7"].map(|name| name.parse().unwrap()).into();
    GatewayConfig { listen: ANY, limits, names, access_log: false }
}

/// A gateway with two addons, `telemetry` and `search`, each with a CA of its own, on the cluster `c1`.
pub struct GatewayWorld {
    pub telemetry: Ca,
    pub search: Ca,
    pub serving_ca: Ca,
    pub clock: Clock,
    pub registry: SharedRegistry,
    pub trust: watch::Sender<Arc<Trust>>,
    pub routes: watch::Sender<Arc<RouteTable>>,
    pub serving: watch::Sender<Option<Arc<CertifiedKey>>>,
    pub client_certificate: watch::Sender<Option<Arc<CertifiedKey>>>,
    pub applied: watch::Receiver<Arc<Trust>>,
    pub stats: Arc<GatewayStats>,
    pub metrics: Metrics,
    pub audit: Audit,
    pub usage: Arc<UsageTracker>,
    /// At first nothing is beside it.
    pub protected: watch::Sender<ProtectedAddresses>,
    pub address: SocketAddr,
    pub stop: CancellationToken,
    pub running: JoinHandle<Result<(), GatewayError>>,
}

impl GatewayWorld {
    /// Starts a gateway that serves, with the default limits.
    pub async fn start(routes: Vec<Route>) -> Self {
        Self::start_with(routes, Limits::default()).await
    }

    /// Starts a gateway that serves and tells of its requests.
    pub async fn start_telling(routes: Vec<Route>, limits: Limits) -> Self {
        let config = GatewayConfig { access_log: true, ..mk_config(limits) };
        Self::start_gateway(config).await.serve(routes).await
    }

    /// Starts a gateway that serves, with these limits.
    pub async fn start_with(routes: Vec<Route>, limits: Limits) -> Self {
        Self::start_unconfigured(limits).await.serve(routes).await
    }

    async fn serve(self, routes: Vec<Route>) -> Self {
        self.set_routes(routes);
        self.serving.send_replace(Some(self.serving_pair()));
        self.trust.send_replace(Arc::new(self.mk_trust()));
        self.wait_until_applied().await;
        self
    }

    /// Puts exactly these routes of telemetry into effect.
    pub fn set_routes(&self, routes: Vec<Route>) {
        let mut table = mk_table();
        routes.into_iter().for_each(|route| table.add("telemetry", &Arc::new(route)));
        self.routes.send_replace(Arc::new(table));
    }

    /// Starts a gateway without trust and without a serving certificate.
    pub async fn start_unconfigured(limits: Limits) -> Self {
        Self::start_gateway(mk_config(limits)).await
    }

    async fn start_gateway(config: GatewayConfig) -> Self {
        let clock = Clock::default();
        let (trust, trust_receiver) = watch::channel(Arc::new(Trust::default()));
        let (routes, routes_receiver) = watch::channel(Arc::new(mk_table()));
        let (serving, serving_receiver) = watch::channel(None);
        let (client_certificate, shown) = watch::channel(None);
        let (applied, applied_receiver) = watch::channel(Arc::new(Trust::default()));
        let gateway = Gateway::bind(config).await.unwrap();
        let registry = SharedRegistry::default();
        register(&registry);
        let audit = Audit::new(clock.clone());
        let usage = Arc::<UsageTracker>::default();
        let nothing = Some(Addresses::new());
        let (protected, beside) = watch::channel(ProtectedAddresses { pods: nothing.clone(), services: nothing });
        let (metrics, stats) = Metrics::new(|registry| Arc::new(GatewayStats::register(registry)));
        let inputs = GatewayInputs {
            trust: trust_receiver,
            routes: routes_receiver,
            registry: registry.clone(),
            serving: serving_receiver,
            client_certificate: shown,
            clock: clock.clone(),
            audit: audit.clone(),
            usage: usage.clone(),
            protected: beside,
            stats: Arc::clone(&stats),
        };
        let address = gateway.local_addr();
        let stop = CancellationToken::new();
        let running = tokio::spawn(gateway.run(inputs, applied, stop.clone()));
        let [telemetry, search, serving_ca] =
            ["telemetry", "search", "serving"].map(|lineage| Ca::new(lineage, clock.now()));
        let applied = applied_receiver;
        Self {
            telemetry,
            search,
            serving_ca,
            clock,
            registry,
            trust,
            routes,
            serving,
            client_certificate,
            applied,
            stats,
            metrics,
            audit,
            usage,
            protected,
            address,
            stop,
            running,
        }
    }

    pub fn serving_pair(&self) -> Arc<CertifiedKey> {
        let leaf = self.serving_ca.server(&[], &[LOCALHOST], self.clock.now());
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&leaf.key).unwrap();
        Arc::new(CertifiedKey::new(vec![leaf.certificate], key))
    }

    /// The trust in both signers.
    pub fn mk_trust(&self) -> Trust {
        Trust {
            signers: vec![signer("telemetry", &self.telemetry), signer("search", &self.search)],
            serving_anchors: Some(self.serving_ca.bundle()),
            serving_active: Some(self.serving_ca.authority().id().clone()),
            ..Trust::default()
        }
    }

    pub async fn wait_until_applied(&self) {
        let wanted = Arc::clone(&self.trust.borrow());
        wait_until(SOON, "the trust to be in effect", async || {
            Arc::ptr_eq(&self.applied.borrow(), &wanted).then_some(())
        })
        .await;
    }

    /// A good client certificate of the addon telemetry on c1.
    pub fn agent(&self) -> Leaf {
        self.telemetry.client("c1", "telemetry", self.clock.now(), HOUR)
    }

    pub fn client_config(&self, leaf: Option<&Leaf>) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.serving_ca.authority().certificate().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        match leaf {
            // Without `with_client_auth_cert` the client sends its certificate whatever the server hints at.
            Some(leaf) => {
                let key = rustls::crypto::ring::sign::any_ecdsa_type(&leaf.key).unwrap();
                let pair = CertifiedKey::new(vec![leaf.certificate.clone()], key);
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(pair)))
            }
            None => builder.with_no_client_auth(),
        }
    }

    pub async fn tls(&self, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        self.tls_shared(Arc::new(config)).await
    }

    pub async fn tls_shared(&self, config: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        self.tls_over(tcp, config).await
    }

    pub async fn tls_over(&self, tcp: TcpStream, config: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(config).connect(ServerName::IpAddress(self.address.ip().into()), tcp).await
    }

    /// Opens a new connection for HTTP/1.1.
    pub async fn connect(&self, leaf: &Leaf) -> Connection {
        let tls = self.tls(self.client_config(Some(leaf))).await.unwrap();
        Connection::over(tls).await
    }

    /// Opens a new connection for HTTP/2.
    pub async fn connect_h2(&self, leaf: &Leaf) -> http2::SendRequest<Full<Bytes>> {
        self.connect_h2_for(leaf).await
    }

    /// Opens a new connection for HTTP/2, for requests with any bodies.
    pub async fn connect_h2_for<B>(&self, leaf: &Leaf) -> http2::SendRequest<B>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let mut config = self.client_config(Some(leaf));
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tls = self.tls(config).await.unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// Sends one GET on a new connection; returns the status, or why there was no answer.
    pub async fn try_get(&self, leaf: Option<&Leaf>, path: &str) -> Result<StatusCode, String> {
        let tls = self.tls(self.client_config(leaf)).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            http1::handshake::<_, Full<Bytes>>(TokioIo::new(tls)).await.map_err(|error| error.to_string())?;
        // The error of the connection is also the error of the request.
        tokio::spawn(connection);
        let answer = sender.send_request(get(path)).await.map_err(|error| format!("{error:?}"))?;
        Ok(answer.status())
    }

    /// Removes the addon telemetry from c1.
    pub fn detach(&self) {
        self.registry.write(|registry| {
            registry.set_addon("c1".parse().unwrap(), "telemetry".parse().unwrap(), None);
        });
    }
}

impl Drop for GatewayWorld {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// An HTTP/1.1 connection.
pub struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    pub driver: JoinHandle<Result<(), String>>,
}

impl Connection {
    pub async fn over(tls: TlsStream<TcpStream>) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(tls)).await.unwrap();
        Self { sender, driver: tokio::spawn(async { connection.await.map_err(|error| error.to_string()) }) }
    }

    /// Sends a request, to the host `gateway.example` if it names none.
    pub async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String> {
        request.headers_mut().entry("host").or_insert(HeaderValue::from_static("gateway.example"));
        let ready = self.sender.ready().await;
        ready.map_err(|error| format!("{error:?}"))?;
        self.sender.send_request(request).await.map_err(|error| format!("{error:?}"))
    }

    /// Sends a GET; returns the answer.
    pub async fn get(&mut self, path: &str) -> FullAnswer {
        collect(self.send(get(path)).await.unwrap()).await
    }
}

pub fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("host", "gateway.example").body(Full::default()).unwrap()
}

pub async fn collect(answer: Response<Incoming>) -> FullAnswer {
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(bytes.to_vec()).unwrap();
    FullAnswer { status: parts.status, headers: parts.headers, body }
}

/// An answer with its whole body.
#[derive(Debug)]
pub struct FullAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl FullAnswer {
    /// The status, and the last part of the problem's type. The answer must be a problem.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], self.status.as_u16());
        assert!(!problem["title"].as_str().unwrap().is_empty());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        let kind = problem["type"].as_str().unwrap().strip_prefix("https://addon-signer.io/problems/").unwrap();
        (self.status.as_u16(), kind.to_owned())
    }
}

/// A route of telemetry to an address on loopback, such as `http://127.0.0.1:8080`.
pub fn route(path: &str, backend: &str) -> Route {
    Route {
        name: RouteName { namespace: "observability".to_owned(), name: "receive".to_owned() },
        created: Timestamp::from_unix(0),
        addons: Arc::new(["telemetry".parse().unwrap()].into()),
        clusters: Arc::new(Clusters::All),
        hostnames: Arc::default(),
        path: path.parse().unwrap(),
        methods: ["GET", "POST"].map(str::to_owned).into(),
        delete_with_content: false,
        backend: Ok(Arc::new(mk_backend(backend.strip_prefix("http://").unwrap().parse().unwrap(), Protocol::Http))),
        limits: LIMITS,
    }
}

/// What requests may take in tests.
pub const LIMITS: RouteLimits = RouteLimits {
    max_body: 1024 * 1024,
    connect: SOON,
    first_byte: Duration::from_secs(10),
    idle: Duration::from_secs(10),
    requests_per_identity: None,
};

/// A backend by its address.
pub fn mk_backend(address: SocketAddr, protocol: Protocol) -> Backend {
    Backend { authority: address.to_string(), addresses: vec![address], is_by_address: true, protocol, tls: None }
}

pub fn signer(name: &str, ca: &Ca) -> Arc<SignerTrust> {
    Arc::new(SignerTrust {
        name: name.to_owned(),
        signer_name: format!("example.com/{name}").parse().unwrap(),
        addons: [name.parse().unwrap()].into(),
        convention: Convention::default(),
        client_anchors: ca.bundle(),
        renew_within: Default::default(),
        attachment: Attachment::default(),
    })
}

fn mk_table() -> RouteTable {
    RouteTable::of_signers(["search", "telemetry"])
}

fn register(registry: &SharedRegistry) {
    let accepted = ClusterFacts::ACCEPTED;
    registry.write(|registry| {
        registry.set_cluster("c1".parse().unwrap(), Some(accepted));
        for addon in ["telemetry", "search"] {
            registry.set_addon("c1".parse().unwrap(), addon.parse().unwrap(), Some(AddOnFacts::Installed));
        }
        registry.complete_clusters(|_| true);
        registry.complete_addons(|_| true);
    });
}
