//! Limits on what a client can use at the gateway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use addon_signer_core::gateway::permits::MinRate;
use addon_signer_core::gateway::route::{Route, RouteLimits};
use addon_signer_core::registry::{AddOnFacts, ClusterFacts};
use addon_signer_gateway::{GatewayError, Limits};
use futures::future::join_all;
use http_body_util::{BodyExt, Full};

use hyper::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::backend;
use test_kit::gateway::{Connection, GatewayWorld, HOUR, LIMITS, SOON, get, route};
use test_kit::wait_until;

const SHORT: Duration = Duration::from_millis(400);

/// Reads until the other end closes.
async fn read_to_end(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset also ends the connection.
    timeout(SOON, stream.read_to_end(&mut bytes)).await.unwrap().ok();
    bytes
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
    assert!(started.elapsed() < SHORT * 3);
    assert!(started.elapsed() >= SHORT / 2);
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

/// On loopback no host can vanish, but Linux shows that it will ask: the third column of a socket's timer in proc(5).
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_peer_that_vanishes_is_noticed() {
    let world = GatewayWorld::start(Vec::new()).await;
    let tls = world.tls(world.client_config(Some(&world.agent()))).await.unwrap();
    let client = tls.get_ref().0.local_addr().unwrap();
    let ends = format!(":{:04X} 0100007F:{:04X} 01 ", world.address.port(), client.port());
    let asks_in = async || {
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let timer = sockets.lines().find(|line| line.contains(&ends))?.split_whitespace().nth(5)?;
        let (kind, hundredths) = timer.split_once(':')?;
        (kind == "02").then(|| u64::from_str_radix(hundredths, 16).unwrap() / 100) // 02 is the keepalive timer
    };
    let seconds = wait_until(SOON, "the timer of the connection", asks_in).await;
    assert!((5..=15).contains(&seconds), "it asks in {seconds} s");
}

#[tokio::test]
async fn clients_that_take_nothing_are_closed() {
    let backend = format!("http://{}", backend::start().await);
    let limits = Limits { min_rate: MinRate { bytes_per_second: 256, grace: SHORT }, ..Limits::default() };
    let world = GatewayWorld::start_with(vec![route("/", &backend)], limits).await;
    let mut connection = world.connect(&world.agent()).await;
    // The answer is never read: it fills the sockets' buffers and then waits.
    let unread = connection.send(get("/addons/telemetry/flood")).await.unwrap();
    wait_until(SOON, "the connection to be given up", async || (world.stats.idle_ended.get() == 1).then_some(())).await;
    assert!(unread.into_body().collect().await.is_err());
}

#[tokio::test]
async fn clients_that_send_half_a_body_are_cut() {
    let backend = format!("http://{}", backend::start().await);
    let hasty = Route { limits: RouteLimits { first_byte: SHORT, ..LIMITS }, ..route("/", &backend) };
    let world = GatewayWorld::start(vec![hasty]).await;
    let mut tls = world.tls(world.client_config(Some(&world.agent()))).await.unwrap();
    tls.write_all(b"POST /addons/telemetry/upload HTTP/1.1\r\nhost: gateway.example\r\ncontent-length: 10\r\n\r\nhalf")
        .await
        .unwrap();
    let answer = String::from_utf8(read_to_end(&mut tls).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("/client-slow\""), "{answer}");
}

#[tokio::test]
async fn clients_that_send_a_byte_now_and_then_are_cut() {
    let backend = format!("http://{}", backend::start().await);
    let limits = Limits { min_rate: MinRate { bytes_per_second: 256, grace: SHORT }, ..Limits::default() };
    let hasty = Route { limits: RouteLimits { first_byte: SHORT, ..LIMITS }, ..route("/", &backend) };
    let world = GatewayWorld::start_with(vec![hasty], limits).await;
    // A stream of gRPC may be silent, but this backend speaks HTTP/1.1, whatever the client calls its request.
    for (kind, status) in [("text/plain", "HTTP/1.1 408 "), ("application/grpc", "HTTP/1.1 200 ")] {
        let tls = world.tls(world.client_config(Some(&world.agent()))).await.unwrap();
        let (mut read, mut write) = tokio::io::split(tls);
        let head = format!("POST /addons/telemetry/upload HTTP/1.1\r\nhost: gateway.example\r\ncontent-type: {kind}");
        write.write_all(format!("{head}\r\ncontent-length: 1000000\r\n\r\n").as_bytes()).await.unwrap();
        let trickling = tokio::spawn(async move {
            while write.write_all(b"x").await.is_ok() && write.flush().await.is_ok() {
                tokio::time::sleep(SHORT / 8).await; // never silent for as long as the route allows
            }
        });
        let answer = String::from_utf8(read_to_end(&mut read).await).unwrap();
        assert!(answer.starts_with(status), "{answer}");
        assert!(answer.contains("send at least 256 bytes"), "{answer}");
        trickling.abort();
    }
}

#[tokio::test]
async fn sessions_over_the_cap_are_closed_at_once() {
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
async fn connections_are_limited_per_addon_of_a_cluster() {
    let limits = Limits { max_identity_connections: 2, ..Limits::default() };
    let world = GatewayWorld::start_with(Vec::new(), limits).await;
    let agent = world.agent();
    let another = world.search.client("c1", "search", world.clock.now(), HOUR);
    let mut one = world.connect(&agent).await;
    // The requester chooses the agent's name, so another name gives no more permits.
    let mut two = world.connect(&world.telemetry.client_of("c1", "telemetry", "a2", world.clock.now(), HOUR)).await;
    for connection in [&mut one, &mut two] {
        assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
    }
    let mut third = world.connect(&agent).await;
    let refusal = third.get("/v1/whoami").await;
    assert_eq!(refusal.problem(), (429, "too-many-connections".to_owned()));
    assert_eq!(refusal.headers["retry-after"], "1");
    timeout(SOON, &mut third.driver).await.unwrap().unwrap().unwrap();
    assert_eq!(world.try_get(Some(&another), "/v1/whoami").await, Ok(StatusCode::OK));
    assert_eq!(world.stats.identity_over_capacity.get(), 1);
    // A connection that asks nothing is not kept either.
    let mut silent = world.connect(&agent).await;
    // The connection may end with or without an error.
    timeout(SOON, &mut silent.driver).await.unwrap().unwrap().ok();
    drop(two);
    let free = async || world.try_get(Some(&agent), "/v1/whoami").await.ok().filter(|status| status.is_success());
    wait_until(SOON, "a permit to be free", free).await;
    assert_eq!(one.get("/v1/whoami").await.status, StatusCode::OK);
}

#[tokio::test]
async fn calls_are_limited_per_addon_of_a_cluster() {
    let backend = format!("http://{}", backend::start().await);
    let limits = Limits { max_identity_requests: 1, ..Limits::default() };
    let world = GatewayWorld::start_with(vec![route("/", &backend)], limits).await;
    let agent = world.agent();
    let another = world.search.client("c1", "search", world.clock.now(), HOUR);
    let mut one = world.connect(&agent).await;
    let mut two = world.connect(&agent).await;
    let endless = one.send(get("/addons/telemetry/endless")).await.unwrap();
    let refusal = two.get("/v1/whoami").await;
    assert_eq!(refusal.problem(), (429, "too-many-requests".to_owned()));
    assert_eq!(world.try_get(Some(&another), "/v1/whoami").await, Ok(StatusCode::OK));
    drop((endless, one));
    let free = async || world.try_get(Some(&agent), "/v1/whoami").await.ok().filter(|status| status.is_success());
    wait_until(SOON, "the request to have ended", free).await;
}

#[tokio::test]
async fn crowded_cluster_takes_no_permits_of_another() {
    let backend = format!("http://{}", backend::start().await);
    let limits = Limits { max_cluster_connections: 3, max_cluster_requests: 1, ..Limits::default() };
    let world = GatewayWorld::start_with(vec![route("/", &backend)], limits).await;
    world.registry.write(|registry| {
        registry.set_cluster("c2".parse().unwrap(), Some(ClusterFacts::ACCEPTED));
        registry.set_addon("c2".parse().unwrap(), "telemetry".parse().unwrap(), Some(AddOnFacts::Installed));
    });
    let now = world.clock.now();
    let search = world.search.client("c1", "search", now, HOUR);
    let mut one = world.connect(&world.agent()).await;
    let mut two = world.connect(&world.telemetry.client_of("c1", "telemetry", "a2", now, HOUR)).await;
    let mut three = world.connect(&search).await;
    for connection in [&mut one, &mut two, &mut three] {
        assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
    }
    for leaf in [&search, &world.telemetry.client_of("c1", "telemetry", "a3", now, HOUR)] {
        let refusal = world.connect(leaf).await.get("/v1/whoami").await;
        assert_eq!(refusal.problem(), (429, "too-many-connections".to_owned()));
        assert!(refusal.body.contains("all addons of one cluster may have 3 together"), "{refusal:?}");
    }
    assert_eq!((world.stats.cluster_over_capacity.get(), world.stats.identity_over_capacity.get()), (2, 0));
    let endless = one.send(get("/addons/telemetry/endless")).await.unwrap();
    assert_eq!(three.get("/v1/whoami").await.problem(), (429, "too-many-requests".to_owned()));
    let other = world.telemetry.client("c2", "telemetry", now, HOUR);
    assert_eq!(world.try_get(Some(&other), "/v1/whoami").await, Ok(StatusCode::OK));
    drop((endless, one));
    let free = async || world.try_get(Some(&search), "/v1/whoami").await.ok().filter(|status| status.is_success());
    wait_until(SOON, "a permit of the cluster to be free", free).await;
}

fn calls_of(world: &GatewayWorld) -> u64 {
    world.stats.requests.get().try_into().unwrap()
}

#[tokio::test]
async fn a_client_that_gives_up_its_requests_loses_its_connection() {
    let backend = format!("http://{}", backend::start().await);
    let world = GatewayWorld::start(vec![route("/", &backend)]).await;
    let mut h2 = world.connect_h2(&world.agent()).await;
    let request = |path: &str| Request::get(format!("https://gateway.example{path}")).body(Full::default()).unwrap();
    assert_eq!(h2.send_request(request("/v1/whoami")).await.unwrap().status(), StatusCode::OK);
    let mut begun = 1;
    let ended = async || {
        let calls: Vec<_> =
            (0..50).map(|_| tokio::spawn(h2.send_request(request("/addons/telemetry/never")))).collect();
        begun += 50;
        while world.sum("requests_total") + calls_of(&world) < begun && !h2.is_closed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        h2.is_closed().then_some(begun)
    };
    let begun = wait_until(SOON, "the connection to be ended", ended).await;
    assert!(begun > 101, "so many are allowed: {begun}");
    assert_eq!(world.try_get(Some(&world.agent()), "/v1/whoami").await, Ok(StatusCode::OK));
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
    let backend = format!("http://{}", backend::start().await);
    let limits = Limits { drain_timeout: Duration::from_secs(1), ..Limits::default() };
    let mut world = GatewayWorld::start_with(vec![route("/", &backend)], limits).await;
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

/// A request that is under way when its connection is closed is lost, unless its client repeats it.
#[tokio::test]
async fn a_stop_ends_idle_connections_with_their_next_answers() {
    let mut world = GatewayWorld::start(Vec::new()).await;
    let agent = world.agent();
    let mut asked = world.connect(&agent).await;
    assert_eq!(asked.get("/v1/whoami").await.status, StatusCode::OK);
    let mut new = join_all((0..10).map(|_| world.connect(&agent))).await;
    let without_tls = TcpStream::connect(world.address).await.unwrap();
    world.stop.cancel();
    let late = world.tls_over(without_tls, Arc::new(world.client_config(Some(&agent)))).await.unwrap();
    new.push(Connection::over(late).await);
    tokio::time::sleep(Duration::from_millis(100)).await; // as long as a question may be under way
    for connection in new.iter_mut().chain([&mut asked]) {
        assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
        timeout(SOON, &mut connection.driver).await.unwrap().unwrap().unwrap();
    }
    timeout(SOON, &mut world.running).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_gateway_whose_inputs_end_stops() {
    let mut world = GatewayWorld::start(Vec::new()).await;
    world.trust = tokio::sync::watch::channel(Default::default()).0;
    let ended = timeout(SOON, &mut world.running).await.unwrap().unwrap();
    assert!(matches!(ended, Err(GatewayError::InputEnded("whom to trust"))), "{ended:?}");
}

/// As a client that has sent what nobody reads, the gateway's refusal before a body as well as a backend's.
#[tokio::test]
async fn an_answer_before_the_end_of_a_body_is_followed_by_no_reset() {
    const BODY: usize = 64 << 10;
    let backend = format!("http://{}", backend::start().await);
    let world = GatewayWorld::start(vec![route("/", &backend)]).await;
    for (path, length, status) in [("early", 1 << 20, "200"), ("early", 2 << 20, "413")] {
        let mut tls = world.tls(world.client_config(Some(&world.agent()))).await.unwrap();
        let head = format!(
            "POST /addons/telemetry/{path} HTTP/1.1\r\nhost: gateway.example\r\ncontent-length: {length}\r\n\r\n"
        );
        tls.write_all(head.as_bytes()).await.unwrap();
        tls.write_all(&vec![b'x'; BODY]).await.unwrap();
        let mut answer = [0; 12];
        tls.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"));
        // The client sees the answer only now.
        tls.write_all(&vec![b'x'; BODY]).await.unwrap();
        let mut rest = Vec::new();
        timeout(SOON, tls.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_stop_resets_none_that_wait_to_be_accepted() {
    const MANY: usize = 300;
    let mut world = GatewayWorld::start(Vec::new()).await;
    // The gateway does not run meanwhile.
    let mut waiting: Vec<_> = (0..MANY).map(|_| std::net::TcpStream::connect(world.address).unwrap()).collect();
    world.stop.cancel();
    timeout(SOON, &mut world.running).await.unwrap().unwrap().unwrap();
    for client in &mut waiting {
        assert_eq!(std::io::Read::read(client, &mut [0]).unwrap(), 0, "its end, and no error");
    }
}
