//! Backends over TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use addon_signer_core::gateway::route::{Backend, BackendAnchors, BackendTls, Protocol};
use addon_signer_core::timestamp::Timestamp;
use hyper::{Request, StatusCode};
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use super::http_backend::{HttpBackend, mk_server_tls, mk_tls, route_to, text};
use test_kit::gateway::{ANY, GatewayWorld, SOON, collect, get, mk_backend};
use test_kit::issue::{Ca, Leaf};
use test_kit::wait_until;

/// Answers with the version of HTTP.
async fn start(ca: &Ca, world: &GatewayWorld, alpn: &[&str]) -> HttpBackend {
    let tls = mk_server_tls(ca, world, alpn);
    HttpBackend::start_with(Some(tls), async |request: Request<_>| text(format!("{:?}", request.version()))).await
}

fn backend(address: &HttpBackend, protocol: Protocol, tls: BackendTls) -> Backend {
    Backend { tls: Some(tls), ..mk_backend(address.address, protocol) }
}

#[tokio::test]
async fn the_backend_chooses_the_version_of_http() {
    let world = GatewayWorld::start(Vec::new()).await;
    let ca = Ca::new("backends", world.clock.now());
    for (protocol, alpn, expected) in [
        (Protocol::Https, &["h2", "http/1.1"][..], Some("HTTP/2.0")),
        (Protocol::Https, &["http/1.1"], Some("HTTP/1.1")),
        (Protocol::Https, &[], Some("HTTP/1.1")),
        (Protocol::H2, &["h2"], Some("HTTP/2.0")),
        (Protocol::H2, &[], None),
        (Protocol::Wss, &["h2", "http/1.1"], Some("HTTP/1.1")),
    ] {
        let address = start(&ca, &world, alpn).await;
        world.set_routes(vec![route_to(backend(&address, protocol, mk_tls(&ca, "receive.svc")))]);
        for _ in 0..3 {
            let answer = world.connect(&world.agent()).await.get("/x").await;
            match expected {
                Some(expected) => {
                    assert_eq!((answer.status, &*answer.body), (StatusCode::OK, expected), "{protocol:?}")
                }
                None => assert_eq!(answer.problem(), (502, "backend".to_owned())),
            }
        }
        assert!(expected.is_none() || address.connections() == 1, "{protocol:?} {alpn:?}");
    }
}

#[tokio::test]
async fn a_backend_with_another_certificate_gets_no_request() {
    let world = GatewayWorld::start(Vec::new()).await;
    let now = world.clock.now();
    let [ca, other] = ["backends", "others"].map(|name| Ca::new(name, now));
    let old = Ca::new("backends", now.minus(Duration::from_secs(30 * 86_400)));
    let [good, expired] = [(&ca, now), (&old, now.minus(Duration::from_secs(30 * 86_400)))].map(|(ca, from)| {
        let Leaf { certificate, key, .. } = ca.server(&["receive.svc"], &[], from);
        let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        builder.with_single_cert(vec![certificate], key).unwrap()
    });
    let for_servers = HttpBackend::start_with(Some(good), async |_| text("x")).await;
    let expired = HttpBackend::start_with(Some(expired), async |_| text("x")).await;
    let no_anchors = BackendTls { anchors: BackendAnchors::default(), ..mk_tls(&ca, "receive.svc") };
    for (backend_at, tls, why) in [
        (&for_servers, mk_tls(&ca, "other.svc"), "the backend's certificate is for another name"),
        (&for_servers, mk_tls(&other, "receive.svc"), UNKNOWN),
        (&for_servers, no_anchors, UNKNOWN),
        (&expired, mk_tls(&old, "receive.svc"), "the backend's certificate has expired"),
    ] {
        assert_eq!(failure(&world, backend(backend_at, Protocol::Https, tls)).await, why);
    }
}

const UNKNOWN: &str = "the backend's certificate is of another CA than the AddOnRoute's";

/// What the caller gets to know of a failed backend.
async fn failure(world: &GatewayWorld, backend: Backend) -> String {
    world.set_routes(vec![route_to(backend)]);
    let answer = world.connect(&world.agent()).await.get("/x").await;
    assert_eq!(answer.problem(), (502, "backend".to_owned()));
    let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    problem["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_caller_learns_which_kind_of_failure_it_was() {
    let world = GatewayWorld::start(Vec::new()).await;
    let [ca, clients] = ["backends", "clients"].map(|name| Ca::new(name, world.clock.now()));
    let (tls, h2, https) = (start(&ca, &world, &[]).await, start(&ca, &world, &["h2"]).await, Protocol::Https);
    let plain = HttpBackend::start(async |_| text("x")).await;
    let [demanding, demanding_h2] =
        [start_demanding(&ca, &clients, &world, "http/1.1").await, start_demanding(&ca, &clients, &world, "h2").await];
    let nowhere = std::net::TcpListener::bind(ANY).unwrap().local_addr().unwrap(); // closed again
    let with_tls = |at: &HttpBackend, protocol| backend(at, protocol, mk_tls(&ca, "receive.svc"));
    let without = |address, protocol| mk_backend(address, protocol);
    let refused = "the backend refused the gateway by a TLS alert";
    let another_protocol = "the backend does not speak the protocol of the AddOnRoute";
    let http1_only = super::backend::start_garbage("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let closes = super::faults::start_http1(super::frames::Act::Close(Vec::new())).await;
    for (backend, why) in [
        (without(nowhere, Protocol::Http), "the backend's port refused the connection"),
        (with_tls(&plain, https), "the backend does not speak TLS"),
        (with_tls(&demanding, https), refused),
        (with_tls(&demanding_h2, https), refused),
        (with_tls(&tls, Protocol::H2), another_protocol),
        (with_tls(&h2, Protocol::Wss), another_protocol),
        (without(tls.address, Protocol::Http), another_protocol),
        (without(http1_only, Protocol::H2c), another_protocol),
        (without(closes, Protocol::Http), "the backend ended the connection or stream without a response"),
    ] {
        assert_eq!(failure(&world, backend.clone()).await, why, "{backend:?}");
    }
}

/// A backend that admits only clients with a certificate of `clients`.
async fn start_demanding(ca: &Ca, clients: &Ca, world: &GatewayWorld, alpn: &str) -> HttpBackend {
    let mut roots = RootCertStore::empty();
    roots.add(clients.authority().certificate().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let Leaf { certificate, key, .. } = ca.server(&["receive.svc"], &[], world.clock.now());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    HttpBackend::start_with(Some(config), async |_| text("admitted")).await
}

#[tokio::test]
async fn the_gateway_shows_its_certificate_only_where_a_route_says_so() {
    let world = GatewayWorld::start(Vec::new()).await;
    let [ca, clients, others] = ["backends", "clients", "others"].map(|name| Ca::new(name, world.clock.now()));
    let address = start_demanding(&ca, &clients, &world, "h2").await;
    let ask = async |client_certificate| {
        let tls = BackendTls { client_certificate, ..mk_tls(&ca, "receive.svc") };
        world.set_routes(vec![route_to(backend(&address, Protocol::Https, tls))]);
        let answer = collect(world.connect(&world.agent()).await.send(get("/x")).await.unwrap()).await;
        answer.status
    };
    assert_eq!(ask(true).await, StatusCode::BAD_GATEWAY, "the gateway has none yet");
    world.client_certificate.send_replace(Some(shown_by(&others, world.clock.now())));
    assert_eq!(ask(true).await, StatusCode::BAD_GATEWAY, "the backend does not accept that one");
    world.client_certificate.send_replace(Some(shown_by(&clients, world.clock.now())));
    assert_eq!(ask(true).await, StatusCode::OK);
    assert_eq!(ask(false).await, StatusCode::BAD_GATEWAY, "the connections of another route are not used");
}

/// A backend may let in whoever shows no certificate, and take headers from anybody then.
#[tokio::test]
async fn without_a_valid_certificate_to_show_no_request_is_forwarded() {
    let world = GatewayWorld::start(Vec::new()).await;
    let (now, days_ago) = (world.clock.now(), world.clock.now().minus(Duration::from_secs(30 * 86_400)));
    let (ca, clients) = (Ca::new("backends", now), Ca::new("clients", days_ago));
    let config = mk_server_tls(&ca, &world, &["h2"]); // it asks for none
    let address = HttpBackend::start_with(Some(config), async |_| text("admitted")).await;
    let tls = BackendTls { client_certificate: true, ..mk_tls(&ca, "receive.svc") };
    world.set_routes(vec![route_to(backend(&address, Protocol::Https, tls))]);
    let ask = async || collect(world.connect(&world.agent()).await.send(get("/x")).await.unwrap()).await.status;
    assert_eq!(ask().await, StatusCode::BAD_GATEWAY, "there is none yet");
    world.client_certificate.send_replace(Some(shown_by(&clients, days_ago)));
    assert_eq!(ask().await, StatusCode::BAD_GATEWAY, "it has expired");
    let comes = async {
        wait_until(SOON, "a third connection", async || (address.connections() == 3).then_some(())).await;
        world.client_certificate.send_replace(Some(shown_by(&clients, now)));
    };
    assert_eq!(futures::join!(ask(), comes).0, StatusCode::OK, "a request waits a little");
}

/// Counts the sessions that a client has resumed.
#[derive(Debug)]
struct CountResumed(Arc<ServerSessionMemoryCache>, Arc<AtomicUsize>);

impl StoresServerSessions for CountResumed {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.0.put(key, value)
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key)
    }
    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let session = self.0.take(key)?;
        self.1.fetch_add(1, Ordering::Relaxed);
        Some(session)
    }
    fn can_cache(&self) -> bool {
        true
    }
}

/// A resumed session shows the backend no certificate, and takes the backend's as checked before.
#[tokio::test]
async fn sessions_with_backends_are_never_resumed() {
    let world = GatewayWorld::start(Vec::new()).await;
    let ca = Ca::new("backends", world.clock.now());
    let resumed = Arc::<AtomicUsize>::default();
    let mut config = mk_server_tls(&ca, &world, &["http/1.1"]);
    config.session_storage = Arc::new(CountResumed(ServerSessionMemoryCache::new(64), Arc::clone(&resumed)));
    // It ends each connection with its answer, so that the next request needs another.
    let closing = async |_| {
        let mut answer = text("closing");
        answer.headers_mut().insert("connection", "close".parse().unwrap());
        answer
    };
    let address = HttpBackend::start_with(Some(config), closing).await;
    world.set_routes(vec![route_to(backend(&address, Protocol::Https, mk_tls(&ca, "receive.svc")))]);
    for _ in 0..3 {
        assert_eq!(world.connect(&world.agent()).await.get("/x").await.status, StatusCode::OK);
    }
    assert_eq!((address.connections(), resumed.load(Ordering::Relaxed)), (3, 0));
}

/// kube-apiserver looks at each request whether the certificate of its connection has expired.
#[tokio::test]
async fn a_renewed_certificate_is_shown_before_the_next_call() {
    let world = GatewayWorld::start(Vec::new()).await;
    let [ca, clients] = ["backends", "clients"].map(|name| Ca::new(name, world.clock.now()));
    world.client_certificate.send_replace(Some(shown_by(&clients, world.clock.now())));
    for alpn in ["h2", "http/1.1"] {
        let address = start_demanding(&ca, &clients, &world, alpn).await;
        let tls = BackendTls { client_certificate: true, ..mk_tls(&ca, "receive.svc") };
        world.set_routes(vec![route_to(backend(&address, Protocol::Https, tls))]);
        let ask = async || assert_eq!(world.connect(&world.agent()).await.get("/x").await.status, StatusCode::OK);
        ask().await;
        ask().await;
        assert_eq!(address.connections(), 1, "{alpn}");
        world.client_certificate.send_replace(Some(shown_by(&clients, world.clock.now())));
        ask().await;
        ask().await;
        assert_eq!(address.connections(), 2, "{alpn}");
    }
}

fn shown_by(ca: &Ca, from: Timestamp) -> Arc<CertifiedKey> {
    let leaf = ca.gateway_client(from);
    let key = rustls::crypto::ring::sign::any_ecdsa_type(&leaf.key).unwrap();
    Arc::new(CertifiedKey::new(vec![leaf.certificate], key))
}
