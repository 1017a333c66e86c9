//! What the gateway counts.

use std::sync::Arc;

use addon_signer_core::gateway::route::Protocol;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http_backend::{HttpBackend, pieces, text};
use super::http2::{client, post};
use super::upgrades::{agree, says, switched};
use test_kit::gateway::{Connection, GatewayWorld, HOUR, LOCALHOST, SOON, get};
use test_kit::issue::Ca;
use test_kit::wait_until;

async fn wait_for(world: &GatewayWorld, metric: &str, expected: &[&str]) {
    wait_until(SOON, metric, async || {
        let samples = world.samples(metric);
        let are = samples == expected;
        if !are {
            eprintln!("{metric}: {samples:#?}");
        }
        are.then_some(())
    })
    .await;
}

fn old_tls() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS12]);
    builder.unwrap().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

#[tokio::test]
async fn failed_handshakes_are_counted_by_their_cause() {
    let world = GatewayWorld::start(Vec::new()).await;
    let now = world.clock.now();
    let stranger = Ca::new("telemetry", now).client("c1", "telemetry", now, HOUR);
    let expired = world.telemetry.client("c1", "telemetry", now.minus(2 * HOUR), HOUR);
    let server = world.telemetry.server(&[], &[LOCALHOST], now);
    for leaf in [None, Some(&stranger), Some(&expired), Some(&server)] {
        assert!(world.try_get(leaf, "/v1/whoami").await.is_err());
    }
    let mut other_protocol = world.client_config(Some(&world.agent()));
    other_protocol.alpn_protocols = vec![b"other".to_vec()];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let distrustful = builder.unwrap().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    for config in [old_tls(), other_protocol, distrustful] {
        assert!(world.tls(config).await.is_err());
    }
    for (words, answer) in [(&b"GET / HTTP/1.1\r\n\r\n"[..], true), (&b"\x16"[..], false)] {
        let mut tcp = TcpStream::connect(world.address).await.unwrap();
        tcp.write_all(words).await.unwrap();
        if answer {
            tcp.read_to_end(&mut Vec::new()).await.ok(); // a reset ends it too
        }
    }
    let causes = "alert bad_certificate closed expired no_certificate not_tls other unknown_authority version";
    let expected: Vec<_> = causes.split(' ').map(|cause| format!("{{cause=\"{cause}\"}} 1")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    wait_for(&world, "handshakes_failed_total", &expected).await;
}

#[tokio::test]
async fn calls_are_counted_by_addon_route_and_code() {
    let backend = HttpBackend::start(async |request: Request<hyper::body::Incoming>| {
        let status = request.uri().path().trim_matches('/').parse().unwrap_or(200);
        request.into_body().collect().await.unwrap();
        let mut answer = text("four");
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        answer
    });
    let world = GatewayWorld::start(vec![backend.await.route(Protocol::Http)]).await;
    let search = world.search.client("c1", "search", world.clock.now(), HOUR);
    let mut agent = world.connect(&world.agent()).await;
    for path in ["/200", "/299", "/298", "/404", "/777", "/v1/whoami", "/addons", "/addons/search/x"] {
        agent.get(path).await;
    }
    let upload = Request::post("/upload").body(Full::from("content")).unwrap();
    agent.send(upload).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(world.connect(&search).await.get("/x").await.problem(), (404, "no-route".to_owned()));
    world.detach();
    assert_eq!(world.try_get(Some(&world.agent()), "/v1/whoami").await, Ok(StatusCode::FORBIDDEN));
    let forwarded = "{addon=\"telemetry\",route=\"observability/receive\"";
    let codes = [("200", 2), ("2xx", 2), ("404", 1), ("7xx", 1)];
    let mut expected: Vec<_> = codes.map(|(code, calls)| format!("{forwarded},code=\"{code}\"}} {calls}")).into();
    expected.extend(
        [
            "{addon=\"\",route=\"none\",code=\"403\"} 1",
            "{addon=\"search\",route=\"none\",code=\"404\"} 1",
            "{addon=\"telemetry\",route=\"none\",code=\"403\"} 1",
            "{addon=\"telemetry\",route=\"none\",code=\"404\"} 1",
            "{addon=\"telemetry\",route=\"whoami\",code=\"200\"} 1",
        ]
        .map(str::to_owned),
    );
    expected.sort();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    wait_for(&world, "requests_total", &expected).await;
    let problems = ["another-addon", "no-route", "not-found", "not-registered"];
    let problems = problems.map(|problem| format!("{{problem=\"{problem}\"}} 1"));
    assert_eq!(world.samples("problems_total"), problems);
    let bytes = |direction: &str, bytes: u64| {
        let samples = world.samples(&format!("{direction}_bytes_total"));
        assert!(samples.contains(&format!("{forwarded}}} {bytes}")), "{direction}: {samples:?}");
    };
    bytes("received", 7);
    bytes("sent", 6 * 4);
    world.set_routes(Vec::new());
    let is_gone = async || {
        let all = ["requests_total", "received_bytes_total", "sent_bytes_total"].map(|metric| world.samples(metric));
        all.concat().iter().all(|sample| !sample.contains("observability")).then_some(())
    };
    wait_until(SOON, "the removed route's labels to go", is_gone).await;
    assert!(world.sum("requests_total") >= 5, "the others stay");
}

#[tokio::test]
async fn open_connections_are_counted_by_addon() {
    let world = GatewayWorld::start(Vec::new()).await;
    let search = world.search.client("c1", "search", world.clock.now(), HOUR);
    let agent = world.agent();
    let mut open: Vec<Connection> = Vec::new();
    for leaf in [&agent, &agent, &search] {
        let mut connection = world.connect(leaf).await;
        assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
        open.push(connection);
    }
    assert_eq!(world.samples("sessions"), ["{addon=\"search\"} 1", "{addon=\"telemetry\"} 2"]);
    drop(open);
    wait_for(&world, "sessions", &["{addon=\"search\"} 0", "{addon=\"telemetry\"} 0"]).await;
}

/// A stream may last for days.
#[tokio::test]
async fn bytes_are_counted_while_they_pass() {
    let plain = HttpBackend::start(agree).await;
    let world = GatewayWorld::start(vec![plain.route(Protocol::Http)]).await;
    let mut tls = switched(&world).await;
    says(&mut tls, b"ping").await;
    assert_eq!((world.sum("received_bytes_total"), world.sum("sent_bytes_total")), (4, 5 + 4), "it said hello");
    let echo = HttpBackend::start(async |request| super::http_backend::echo(request)).await;
    let world = GatewayWorld::start(vec![echo.route(Protocol::H2c)]).await;
    let mut h2 = client(&world).await;
    let (sending, body) = pieces();
    sending.unbounded_send(super::http_backend::piece("four")).unwrap();
    let mut answer = h2.send_request(post("/a.S/M", body.boxed_unsync())).await.unwrap().into_body();
    assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), "four");
    assert_eq!((world.sum("received_bytes_total"), world.sum("sent_bytes_total")), (4, 4));
    assert_eq!(world.stats.requests.get(), 1);
    drop((sending, answer));
    wait_until(SOON, "the request to end", async || (world.stats.requests.get() == 0).then_some(())).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_is_counted() {
    let backend = HttpBackend::start(async |_| std::future::pending().await).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::Http)]).await;
    let mut connection = world.connect(&world.agent()).await;
    let asking = tokio::spawn(async move { connection.send(get("/x")).await.map(drop) });
    wait_until(SOON, "the request to begin", async || (backend.connections() == 1).then_some(())).await;
    assert_eq!(world.samples("requests_total"), [""; 0], "nothing was answered");
    asking.abort();
    let unanswered = "{addon=\"telemetry\",route=\"observability/receive\",code=\"none\"} 1";
    wait_for(&world, "requests_total", &[unanswered]).await;
}
