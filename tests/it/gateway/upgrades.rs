//! Upgrades of HTTP/1.1, such as WebSocket.

use std::time::{Duration, Instant};

use addon_signer_core::gateway::permits::MinRate;
use addon_signer_core::gateway::route::{Backend, Protocol, Route, RouteLimits};
use addon_signer_gateway::Limits;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::http_backend::{Content, HttpBackend, mk_server_tls, mk_tls, route_to, text};
use super::http2::{client, post};
use test_kit::gateway::{GatewayWorld, LIMITS, SOON, mk_backend};
use test_kit::issue::Ca;
use test_kit::log::capture_access;
use test_kit::wait::{TIMEOUT, wait_for};
use test_kit::{quick, wait_until};

/// Agrees to `echo`, says `hello` and then echoes; refuses others.
pub(super) async fn agree(mut request: Request<Incoming>) -> hyper::Response<Content> {
    let mut answer = text("");
    if request.headers().get("upgrade").is_none_or(|protocol| protocol != "echo") {
        *answer.status_mut() = hyper::StatusCode::BAD_REQUEST;
        return answer;
    }
    assert_eq!(request.headers()["connection"], "upgrade");
    assert_eq!(request.headers()["x-addon-signer-cluster"], "c1");
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.await.unwrap());
        io.write_all(b"hello").await.unwrap();
        let (mut read, mut write) = tokio::io::split(io);
        // It fails if the gateway has left, which is part of the tests.
        tokio::io::copy(&mut read, &mut write).await.ok(); // the other side may leave first
        write.shutdown().await.ok(); // the other side may leave first
    });
    switching("echo")
}

fn switching(protocol: &str) -> hyper::Response<Content> {
    let mut answer = text("");
    *answer.status_mut() = hyper::StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert("connection", "upgrade".parse().unwrap());
    answer.headers_mut().insert("upgrade", protocol.parse().unwrap());
    answer
}

/// Asks for an upgrade; returns the head of the answer.
async fn ask(world: &GatewayWorld, upgrade: &str) -> (TlsStream<TcpStream>, String) {
    let mut tls = world.tls(world.client_config(Some(&world.agent()))).await.unwrap();
    let head = format!("GET /x HTTP/1.1\r\nhost: gateway.example\r\n{upgrade}\r\n\r\n");
    tls.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(timeout(SOON, tls.read_u8()).await.unwrap().unwrap());
    }
    (tls, String::from_utf8(answer).unwrap())
}

pub(super) async fn switched(world: &GatewayWorld) -> TlsStream<TcpStream> {
    let (mut tls, head) = ask(world, "connection: upgrade\r\nupgrade: echo").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("\r\nupgrade: echo\r\n"), "{head}");
    let mut hello = [0; 5];
    timeout(SOON, tls.read_exact(&mut hello)).await.unwrap().unwrap();
    assert_eq!(&hello, b"hello");
    tls
}

pub(super) async fn says(tls: &mut TlsStream<TcpStream>, text: &[u8]) {
    tls.write_all(text).await.unwrap();
    let mut echoed = vec![0; text.len()];
    timeout(SOON, tls.read_exact(&mut echoed)).await.unwrap().unwrap();
    assert_eq!(echoed, text);
}

/// Waits for the end; a reset is one too.
pub(super) async fn ends(mut tls: TlsStream<TcpStream>) {
    timeout(SOON, tls.read_to_end(&mut Vec::new())).await.unwrap().ok(); // the other side may leave first
}

#[tokio::test]
async fn bytes_go_both_ways_after_an_upgrade() {
    let world = GatewayWorld::start_with(Vec::new(), Limits { max_identity_requests: 1, ..Limits::default() }).await;
    let ca = Ca::new("backends", world.clock.now());
    let plain = HttpBackend::start(agree).await;
    let encrypted = HttpBackend::start_with(Some(mk_server_tls(&ca, &world, &["h2", "http/1.1"])), agree).await;
    let tls = Some(mk_tls(&ca, "receive.svc"));
    let encrypted = route_to(Backend { tls, ..mk_backend(encrypted.address, Protocol::Https) });
    for route in [plain.route(Protocol::Http), encrypted] {
        world.set_routes(vec![route]);
        let get = world.connect(&world.agent()).await.get("/x").await; // TLS: its connection speaks HTTP/2
        assert_eq!(get.status, 400);
        let mut tls = switched(&world).await;
        says(&mut tls, b"ping").await;
        says(&mut tls, &[b'x'; 100_000]).await;
        let get = async || world.try_get(Some(&world.agent()), "/v1/whoami").await.unwrap().as_u16();
        assert_eq!(get().await, 429, "it has the permit of a request");
        tls.shutdown().await.unwrap(); // the backend sees that, and ends its half
        ends(tls).await;
        wait_until(SOON, "the permit to be free", async || (get().await == 200).then_some(())).await;
    }
}

#[tokio::test]
async fn upgrades_that_hide_further_requests_are_refused() {
    let backend = HttpBackend::start(agree).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::Http)]).await;
    for upgrade in ["h2c", "HTTP/2.0", "TLS/1.2", "echo, h2c"] {
        let (_, head) = ask(&world, &format!("connection: upgrade\r\nupgrade: {upgrade}")).await;
        assert!(head.starts_with("HTTP/1.1 501 "), "{upgrade}: {head}");
    }
    let (_, head) = ask(&world, "upgrade: echo").await;
    assert!(head.starts_with("HTTP/1.1 501 "), "without Connection: {head}");
    let (_, head) = ask(&world, "connection: upgrade\r\nupgrade: other").await;
    assert!(head.starts_with("HTTP/1.1 400 "), "the backend's answer: {head}");
    world.set_routes(vec![backend.route(Protocol::H2c)]);
    let (_, head) = ask(&world, "connection: upgrade\r\nupgrade: echo").await;
    assert!(head.starts_with("HTTP/1.1 501 "), "HTTP/2 has none: {head}");
}

/// Invariant I15.
#[tokio::test]
async fn upgrades_end_within_two_seconds_of_losing_eligibility() {
    let backend = HttpBackend::start(agree).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::Http)]).await;
    let mut tls = switched(&world).await;
    says(&mut tls, b"ping").await;
    world.detach();
    let began = Instant::now();
    ends(tls).await;
    assert!(began.elapsed() < Duration::from_secs(2), "after {:?}", began.elapsed());
}

#[tokio::test]
async fn upgrades_end_when_silent_for_too_long_and_at_a_stop() {
    let backend = HttpBackend::start(agree).await;
    let short = Duration::from_secs(1); // eight times the pause between two words, also on a busy machine
    let limits = RouteLimits { idle: short, ..LIMITS };
    let route = Route { limits, ..backend.route(Protocol::Http) };
    let world = GatewayWorld::start_with(vec![route], Limits { drain_timeout: short, ..Limits::default() }).await;
    let mut tls = switched(&world).await;
    let began = Instant::now();
    while began.elapsed() < 2 * short {
        says(&mut tls, b"ping").await;
        tokio::time::sleep(short / 8).await; // the pauses are what is tested
    }
    let last = Instant::now();
    says(&mut tls, b"ping").await;
    ends(tls).await;
    assert!(last.elapsed() >= short);
    world.set_routes(vec![backend.route(Protocol::Http)]);
    let tls = switched(&world).await;
    let began = Instant::now();
    world.stop.cancel();
    ends(tls).await;
    assert!((short / 2..Duration::from_secs(3)).contains(&began.elapsed()), "after {:?}", began.elapsed());
}

/// A client that asks in vain must not use up the gateway's ports.
#[tokio::test]
async fn a_refused_upgrade_keeps_its_connection_to_the_backend() {
    let backend = HttpBackend::start(agree).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::Http)]).await;
    for _ in 0..3 {
        let (_, head) = ask(&world, "connection: upgrade, close\r\nupgrade: other").await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    }
    says(&mut switched(&world).await, b"hello").await;
    assert_eq!(backend.connections(), 1);
}

/// Clients that know RFC 8441 use HTTP/1.1 unless a server offers it.
#[tokio::test]
async fn websockets_over_http2_are_not_offered() {
    let backend = HttpBackend::start(agree).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::Http)]).await;
    let mut h2 = client(&world).await;
    h2.send_request(post("/v1/whoami", text("").into_body())).await.unwrap(); // the gateway's settings come before it
    let mut request = Request::connect("https://gateway.example/x").body(text("").into_body()).unwrap();
    request.extensions_mut().insert(hyper::ext::Protocol::from_static("websocket"));
    assert!(h2.send_request(request).await.is_err());
    assert_eq!(backend.connections(), 0);
    assert!(h2.send_request(post("/v1/whoami", text("").into_body())).await.is_ok());
}

/// While nobody takes what the client sends, nobody notices that it is gone.
#[tokio::test]
async fn an_upgrade_whose_backend_takes_nothing_ends() {
    quick::as_usual();
    let (log, _, _guard) = capture_access();
    let backend = HttpBackend::start(async |mut request: Request<Incoming>| {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let _io = upgrade.await.unwrap();
            std::future::pending::<()>().await; // keeps the connection
        });
        switching("echo")
    });
    let min_rate = MinRate { bytes_per_second: 256, grace: Duration::from_secs(1) };
    let limits = RouteLimits { first_byte: Duration::from_secs(3), idle: SOON * 100, ..LIMITS };
    let route = Route { limits, ..backend.await.route(Protocol::Http) };
    let world = GatewayWorld::start_telling(vec![route], Limits { min_rate, ..Limits::default() }).await;
    let (mut tls, _) = ask(&world, "connection: upgrade\r\nupgrade: echo").await;
    let began = Instant::now();
    wait_for(TIMEOUT, "the end", async { while tls.write_all(&[0; 65_536]).await.is_ok() {} }).await;
    assert!(began.elapsed() >= limits.first_byte);
    let told = async || log.json().pop();
    assert_eq!(wait_until(SOON, "the line of the request", told).await["ended"], "backend gone");
}
