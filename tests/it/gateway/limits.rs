//! Limits on what a client can use at the gateway.

use std::time::{Duration, Instant};

use addon_signer::gateway::{Gateway, GatewayConfig, GatewayError, Limits};
use addon_signer_core::trust::Route;
use http_body_util::BodyExt;
use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::upstream;
use super::world::{ANY, GatewayWorld, SOON, get, route};
use crate::support::wait_until;

const SHORT: Duration = Duration::from_millis(400);

/// Reads until the other end closes.
async fn read_to_end(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset also ends the connection.
    timeout(SOON, stream.read_to_end(&mut bytes)).await.unwrap().ok();
    bytes
}

#[tokio::test]
async fn a_listen_address_in_use_is_named() {
    let first = Gateway::bind(GatewayConfig { listen: ANY, limits: Limits::default() }).await.unwrap();
    let config = GatewayConfig { listen: first.local_addr(), limits: Limits::default() };
    let error = Gateway::bind(config).await.unwrap_err();
    assert!(matches!(&error, GatewayError::Listen { address, .. } if *address == first.local_addr()));
    let sentence = error.to_string();
    assert!(sentence.contains(&first.local_addr().to_string()) && sentence.contains("in use"), "{sentence}");
}

#[tokio::test]
async fn half_open_handshakes_are_cut() {
    let limits = Limits { handshake_timeout: SHORT, ..Limits::default() };
    let world = GatewayWorld::start_with(Vec::new(), limits).await;
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    let mut half = TcpStream::connect(world.address).await.unwrap();
    half.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.unwrap(); // the start of a ClientHello
    let started = Instant::now();
    assert_eq!((read_to_end(&mut silent).await, read_to_end(&mut half).await), (vec![], vec![]));
    assert!(started.elapsed() < SHORT * 3 && started.elapsed() >= SHORT / 2);
    assert_eq!(world.stats.handshakes_slow.get(), 2);
}

#[tokio::test]
async fn silent_clients_are_closed() {
    let limits = Limits { header_timeout: SHORT, idle_timeout: SHORT * 2, ..Limits::default() };
    let world = GatewayWorld::start_with(Vec::new(), limits).await;
    let agent = world.agent();
    let mut silent = world.tls(world.client_config(Some(&agent))).await.unwrap();
    let mut trickling = world.tls(world.client_config(Some(&agent))).await.unwrap();
    trickling.write_all(b"GET /v1/whoami HTT").await.unwrap();
    let mut idle = world.connect(&agent).await;
    assert_eq!(idle.get("/v1/whoami").await.status, StatusCode::OK);
    let started = Instant::now();
    read_to_end(&mut silent).await;
    read_to_end(&mut trickling).await;
    timeout(SOON, &mut idle.driver).await.unwrap().unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

#[tokio::test]
async fn clients_that_take_nothing_are_closed() {
    let upstream = format!("http://{}", upstream::start().await);
    let limits = Limits { stall_timeout: SHORT, ..Limits::default() };
    let world = GatewayWorld::start_with(vec![route("/", &upstream)], limits).await;
    let mut connection = world.connect(&world.agent()).await;
    // The answer is never read: it fills the sockets' buffers and then waits.
    let unread = connection.send(get("/addons/telemetry/flood")).await.unwrap();
    wait_until(SOON, "the connection to be given up", async || (world.stats.idle_ended.get() == 1).then_some(())).await;
    assert!(unread.into_body().collect().await.is_err());
}

#[tokio::test]
async fn clients_that_send_half_a_body_are_cut() {
    let upstream = format!("http://{}", upstream::start().await);
    let hasty = Route { timeout: SHORT, ..route("/", &upstream) };
    let world = GatewayWorld::start(vec![hasty]).await;
    let mut tls = world.tls(world.client_config(Some(&world.agent()))).await.unwrap();
    tls.write_all(b"POST /addons/telemetry/upload HTTP/1.1\r\nhost: g\r\ncontent-length: 10\r\n\r\nhalf")
        .await
        .unwrap();
    let answer = String::from_utf8(read_to_end(&mut tls).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("/client-slow\""), "{answer}");
}

#[tokio::test]
async fn connections_over_the_cap_are_closed_at_once() {
    let world = GatewayWorld::start_with(Vec::new(), Limits { max_connections: 2, ..Limits::default() }).await;
    let agent = world.agent();
    let mut one = world.connect(&agent).await;
    let two = world.connect(&agent).await;
    assert_eq!(one.get("/v1/whoami").await.status, StatusCode::OK);
    assert!(world.try_get(Some(&agent), "/v1/whoami").await.is_err());
    assert_eq!(world.stats.over_capacity.get(), 1);
    drop(two);
    wait_until(SOON, "a place to be free", async || world.try_get(Some(&agent), "/v1/whoami").await.ok()).await;
    assert_eq!(one.get("/v1/whoami").await.status, StatusCode::OK);
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let world = GatewayWorld::start(Vec::new()).await;
    let mut request = get("/v1/whoami");
    let large = "x".repeat(200_000);
    request.headers_mut().insert("x-large", large.parse().unwrap());
    let answer = world.connect(&world.agent()).await.send(request).await;
    assert_eq!(answer.unwrap().status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

#[tokio::test]
async fn a_stop_lets_requests_finish_and_is_bounded() {
    let upstream = format!("http://{}", upstream::start().await);
    let limits = Limits { drain_timeout: Duration::from_secs(1), ..Limits::default() };
    let mut world = GatewayWorld::start_with(vec![route("/", &upstream)], limits).await;
    let agent = world.agent();
    let mut short = world.connect(&agent).await;
    let mut endless = world.connect(&agent).await;
    let finishing = short.send(get("/addons/telemetry/ticks")).await.unwrap();
    let cut = endless.send(get("/addons/telemetry/endless")).await.unwrap();
    world.stop.cancel();
    let started = Instant::now();
    assert!(finishing.into_body().collect().await.is_ok());
    assert!(cut.into_body().collect().await.is_err());
    timeout(SOON, &mut world.running).await.unwrap().unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(TcpStream::connect(world.address).await.is_err());
}

#[tokio::test]
async fn a_gateway_whose_inputs_end_stops() {
    let mut world = GatewayWorld::start(Vec::new()).await;
    world.trust = tokio::sync::watch::channel(Default::default()).0;
    let ended = timeout(SOON, &mut world.running).await.unwrap().unwrap();
    assert!(matches!(ended, Err(GatewayError::InputEnded("whom to trust"))), "{ended:?}");
}
