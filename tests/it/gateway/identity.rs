//! Who is let in at the gateway, and for how long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use addon_signer_core::registry::{ClusterFacts, Registry};
use addon_signer_core::trust::Trust;
use addon_signer_gateway::Limits;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use rustls::HandshakeKind;
use tokio::time::timeout;

use super::backend;
use test_kit::gateway::{Connection, FullAnswer, GatewayWorld, HOUR, LOCALHOST, SOON, collect, get, route};
use test_kit::issue::Ca;
use test_kit::wait_until;

#[tokio::test]
async fn whoami_says_who_the_certificate_is() {
    let world = GatewayWorld::start(Vec::new()).await;
    let agent = world.agent();
    let FullAnswer { status, headers, body } = world.connect(&agent).await.get("/v1/whoami").await;
    assert_eq!((status, &headers["content-type"]), (StatusCode::OK, &"application/json".parse().unwrap()));
    let expected = serde_json::json!({
        "cluster": "c1",
        "addon": "telemetry",
        "agent": "telemetry",
        "user": "system:open-cluster-management:cluster:c1:addon:telemetry:agent:telemetry",
        "groups": [
            "system:open-cluster-management:cluster:c1:addon:telemetry",
            "system:open-cluster-management:addon:telemetry"
        ],
        "signer": "telemetry",
        "issuer": world.telemetry.authority().id().as_str(),
        "serial": agent.serial.to_string(),
        "notAfter": agent.not_after.to_string(),
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap(), expected);
    assert!(body.starts_with("{\"cluster\":"), "the order of the names is stable: {body}");
    let mut h2 = world.connect_h2(&agent).await;
    let request = hyper::Request::get("https://gateway.example/v1/whoami").body(Default::default()).unwrap();
    assert_eq!(collect(h2.send_request(request).await.unwrap()).await.body, body);
}

#[tokio::test]
async fn strangers_are_refused_in_the_handshake() {
    let world = GatewayWorld::start(Vec::new()).await;
    let now = world.clock.now();
    let stranger = Ca::new("telemetry", now).client("c1", "telemetry", now, HOUR);
    let past = now.minus(2 * HOUR);
    let expired = world.telemetry.client("c1", "telemetry", past, HOUR);
    let server = world.telemetry.server(&[], &[LOCALHOST], now);
    for (who, leaf, alert) in [
        ("no certificate", None, "CertificateRequired"),
        ("another CA", Some(stranger), "UnknownCA"),
        ("expired", Some(expired), "CertificateExpired"),
        ("a server's", Some(server), "UnsupportedCertificate"),
    ] {
        let error = world.try_get(leaf.as_ref(), "/v1/whoami").await.unwrap_err();
        assert!(error.contains(alert), "{who}: {error}");
    }
    assert_eq!((world.sum("handshakes_failed_total"), world.sum("requests_total")), (4, 0));
    assert_eq!(world.try_get(Some(&world.agent()), "/v1/whoami").await, Ok(StatusCode::OK));
}

/// Invariant I14.
#[tokio::test]
async fn certificate_of_another_addons_ca_is_no_identity() {
    let backend = format!("http://{}", backend::start().await);
    let world = GatewayWorld::start(vec![route("/", &backend)]).await;
    let forged = world.search.client("c1", "telemetry", world.clock.now(), HOUR);
    let mut connection = world.connect(&forged).await;
    let answer = connection.get("/addons/telemetry/").await;
    assert_eq!(answer.problem(), (403, "not-an-identity".to_owned()));
    assert_eq!(answer.headers["connection"], "close");
    assert!(!answer.body.contains("search"), "the cause is not for the caller: {}", answer.body);
    for (method, kind, expected) in [("GET", "text/plain", (403, "")), ("POST", "application/grpc", (200, "16"))] {
        let mut request = Request::new(Full::default());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = "https://gateway.example/a.S/M".parse().unwrap();
        request.headers_mut().insert("content-type", kind.parse().unwrap());
        let answer = world.connect_h2(&forged).await.send_request(request).await.unwrap();
        let status = answer.headers().get("grpc-status").map_or("", |status| status.to_str().unwrap());
        assert_eq!((answer.status().as_u16(), status), expected, "{method}");
    }
    let own = world.search.client("c1", "search", world.clock.now(), HOUR);
    let answer = world.connect(&own).await.get("/addons/telemetry/").await;
    assert_eq!(answer.problem(), (403, "another-addon".to_owned()));
}

/// Invariant I11.
#[tokio::test]
async fn nobody_is_served_without_bundle_and_serving_certificate() {
    let world = GatewayWorld::start_unconfigured(Limits::default()).await;
    let agent = world.agent();
    let nothing = Arc::new(Trust::default());
    let refused = async || {
        assert!(world.try_get(Some(&agent), "/v1/whoami").await.is_err());
        assert!(world.try_get(None, "/v1/whoami").await.is_err());
    };
    let settle = || tokio::time::sleep(Duration::from_millis(100));
    refused().await;
    world.serving.send_replace(Some(world.serving_pair()));
    settle().await;
    refused().await; // there is a serving certificate, and nobody to trust
    world.serving.send_replace(None);
    world.trust.send_replace(Arc::new(world.mk_trust()));
    settle().await;
    refused().await; // there is somebody to trust, and no serving certificate
    assert_eq!(world.applied.borrow().signers.len(), world.trust.borrow().signers.len(), "nobody waits for it");
    assert_eq!((world.stats.not_configured.get(), world.sum("handshakes_failed_total")), (6, 0));
    world.serving.send_replace(Some(world.serving_pair()));
    wait_until(SOON, "a request to pass", async || world.try_get(Some(&agent), "/v1/whoami").await.ok()).await;
    let mut connection = world.connect(&agent).await;
    assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
    world.trust.send_replace(nothing);
    ends_within_two_seconds(connection).await;
    refused().await; // there is nobody to trust any more
}

async fn ends_within_two_seconds(mut connection: Connection) {
    let started = Instant::now();
    let ended = timeout(Duration::from_secs(4), &mut connection.driver).await;
    assert!(ended.is_ok(), "after {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(2), "after {:?}", started.elapsed());
}

/// Invariant I15, on connections that are idle.
#[tokio::test]
async fn idle_sessions_end_within_two_seconds_of_losing_eligibility() {
    let not_accepted = ClusterFacts { accepted: false, ..ClusterFacts::ACCEPTED };
    type Loss = fn(&mut Registry, ClusterFacts);
    let losses: [Loss; 3] = [
        |registry, _| drop(registry.set_addon("c1".parse().unwrap(), "telemetry".parse().unwrap(), None)),
        |registry, _| drop(registry.set_cluster("c1".parse().unwrap(), None)),
        |registry, facts| drop(registry.set_cluster("c1".parse().unwrap(), Some(facts))),
    ];
    for lose in losses {
        let world = GatewayWorld::start(Vec::new()).await;
        let mut connection = world.connect(&world.agent()).await;
        assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
        world.registry.write(|registry| lose(registry, not_accepted));
        ends_within_two_seconds(connection).await;
        assert_eq!(world.stats.sessions_ended.get(), 1);
    }
}

/// Invariant I15, at the end of the certificate's life.
#[tokio::test]
async fn sessions_end_with_their_certificate() {
    let world = GatewayWorld::start(Vec::new()).await;
    let mut connection = world.connect(&world.agent()).await;
    assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
    world.clock.advance(HOUR + Duration::from_secs(1));
    ends_within_two_seconds(connection).await;
}

/// Invariant I15, with a response under way that would never end, over both versions of HTTP.
#[tokio::test]
async fn responses_end_within_two_seconds_of_losing_eligibility() {
    let backend = format!("http://{}", backend::start().await);
    let world = GatewayWorld::start(vec![route("/", &backend)]).await;
    let agent = world.agent();
    let mut connection = world.connect(&agent).await;
    let mut first = connection.send(get("/addons/telemetry/endless")).await.unwrap().into_body();
    let mut h2 = world.connect_h2(&agent).await;
    let request =
        hyper::Request::get("https://gateway.example/addons/telemetry/endless").body(Default::default()).unwrap();
    let mut second = h2.send_request(request).await.unwrap().into_body();
    assert!(first.frame().await.unwrap().is_ok());
    assert!(second.frame().await.unwrap().is_ok());
    world.detach();
    let started = Instant::now();
    for body in [&mut first, &mut second] {
        let broken = timeout(Duration::from_secs(4), async { while body.frame().await.unwrap().is_ok() {} }).await;
        assert!(broken.is_ok(), "after {:?}", started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(2), "after {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn a_detached_cluster_is_refused_by_its_next_request() {
    let world = GatewayWorld::start(Vec::new()).await;
    let agent = world.agent();
    let mut connection = world.connect(&agent).await;
    assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
    world.detach();
    let answer = connection.get("/v1/whoami").await;
    assert_eq!(answer.problem(), (403, "not-registered".to_owned()));
    assert_eq!(answer.headers["connection"], "close");
    timeout(SOON, connection.driver).await.unwrap().unwrap().unwrap();
}

/// Its place is free before others are checked for the first time.
#[tokio::test]
async fn a_peer_without_eligibility_that_asks_nothing_is_closed_soon() {
    let world = GatewayWorld::start(Vec::new()).await;
    world.detach();
    let started = Instant::now();
    let connection = world.connect(&world.agent()).await;
    let ended = timeout(Duration::from_secs(4), connection.driver).await;
    assert!(ended.is_ok(), "after {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(1), "after {:?}", started.elapsed());
    let answer = world.connect(&world.agent()).await.get("/v1/whoami").await;
    assert_eq!(answer.problem(), (403, "not-registered".to_owned()));
}

#[tokio::test]
async fn before_the_registry_is_read_the_answer_is_to_ask_again() {
    let world = GatewayWorld::start(Vec::new()).await;
    world.registry.write(|registry| *registry = Registry::default());
    let mut connection = world.connect(&world.agent()).await;
    let answer = connection.get("/v1/whoami").await;
    assert_eq!(answer.problem(), (503, "not-ready".to_owned()));
    assert_eq!(answer.headers["retry-after"], "1");
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::SERVICE_UNAVAILABLE, "the connection stays");
}

#[tokio::test]
async fn sessions_are_never_resumed() {
    let world = GatewayWorld::start(Vec::new()).await;
    // rustls resumes a session if it can: all connections share this configuration, which keeps the tickets.
    let config = Arc::new(world.client_config(Some(&world.agent())));
    for _ in 0..3 {
        let tls = world.tls_shared(Arc::clone(&config)).await.unwrap();
        assert_eq!(tls.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
        let io = hyper_util::rt::TokioIo::new(tls);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        assert_eq!(sender.send_request(get("/v1/whoami")).await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn tls_1_2_is_refused() {
    let world = GatewayWorld::start(Vec::new()).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(world.serving_ca.authority().certificate().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let old = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let error = world.tls(old).await.unwrap_err().to_string();
    assert!(error.contains("ProtocolVersion"), "{error}");
}
