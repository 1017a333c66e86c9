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
use test_kit::gateway::{GatewayWorld, SOON, collect, get, mk_backend};
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
    let [ca, other] = ["backends", "others"].map(|name| Ca::new(name, world.clock.now()));
    let address = start(&ca, &world, &[]).await;
    for (tls, expected) in [
        (mk_tls(&ca, "other.svc"), (502, "backend".to_owned())),
        (mk_tls(&other, "receive.svc"), (502, "backend".to_owned())),
        (BackendTls { anchors: BackendAnchors::default(), ..mk_tls(&ca, "receive.svc") }, (502, "backend".to_owned())),
    ] {
        world.set_routes(vec![route_to(backend(&address, Protocol::Https, tls))]);
        let answer = world.connect(&world.agent()).await.send(get("/x")).await.unwrap();
        assert_eq!(collect(answer).await.problem(), expected);
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
