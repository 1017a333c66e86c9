//! Connections to backends: kept, shared, dropped. And which requests of a route are let in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use addon_signer_core::gateway::route::{Backend, Clusters, Protocol, Route, RouteLimits};
use futures::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::http_backend::{HttpBackend, echo, endless, route_to, text};
use super::http2::{client, mk_other_cluster, post};
use test_kit::gateway::{ANY, Connection, FullAnswer, GatewayWorld, LIMITS, SOON, collect, get, mk_backend};
use test_kit::wait_until;

async fn ask(connection: &mut Connection) -> FullAnswer {
    let request = Request::post("/x").body(Full::from("some")).unwrap();
    collect(connection.send(request).await.unwrap()).await
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request_of_anybody() {
    let backend = HttpBackend::start(async |request| echo(request)).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::Http)]).await;
    for _ in 0..3 {
        let mut connection = world.connect(&world.agent()).await;
        for _ in 0..3 {
            assert_eq!(ask(&mut connection).await.body, "some");
            assert_eq!(connection.get("/empty").await.body, "");
        }
    }
    assert_eq!(backend.connections(), 1);
}

/// Closes each connection after its answer, without having said so.
async fn start_closing(answer: &'static str) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = tcp.read(&mut request).await.unwrap();
            request.truncate(length);
            asked.send(String::from_utf8(request).unwrap()).unwrap();
            tcp.write_all(answer.as_bytes()).await.unwrap();
            tcp.shutdown().await.unwrap();
        }
    });
    (address, seen)
}

#[tokio::test]
async fn a_connection_that_closed_while_idle_is_not_used() {
    let (address, mut seen) = start_closing("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine").await;
    let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::Http))]).await;
    let mut connection = world.connect(&world.agent()).await;
    for _ in 0..20 {
        assert_eq!(ask(&mut connection).await.body, "fine");
    }
    let seen: Vec<_> = std::iter::from_fn(|| seen.try_recv().ok()).collect();
    assert_eq!(seen.len(), 20, "each request once");
    assert!(seen.iter().all(|request| request.starts_with("POST /x HTTP/1.1\r\n")), "{seen:?}");
}

#[tokio::test]
async fn a_request_that_the_backend_may_have_seen_is_not_sent_again() {
    let (address, mut seen) = start_closing("HTTP/1.1 200 OK\r\ncontent-le").await;
    let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::Http))]).await;
    let answer = ask(&mut world.connect(&world.agent()).await).await;
    assert_eq!(answer.problem(), (502, "backend".to_owned()));
    assert!(seen.try_recv().is_ok());
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn connections_to_addresses_that_are_gone_are_not_used() {
    for protocol in [Protocol::Http, Protocol::H2c] {
        let answer = |name: &'static str| HttpBackend::start(move |_| async move { text(name) });
        let (one, two) = (answer("one").await, answer("two").await);
        let at = |backends: &[&HttpBackend]| {
            let addresses = backends.iter().map(|backend| backend.address).collect();
            route_to(Backend { authority: "receive.svc:80".to_owned(), addresses, ..mk_backend(ANY, protocol) })
        };
        let world = GatewayWorld::start(vec![at(&[&one])]).await;
        let mut connection = world.connect(&world.agent()).await;
        assert_eq!(connection.get("/x").await.body, "one");
        world.set_routes(vec![at(&[&two])]);
        assert_eq!(connection.get("/x").await.body, "two");
        let closed = TcpListener::bind(ANY).await.unwrap().local_addr().unwrap();
        world.set_routes(vec![route_to(Backend {
            authority: "receive.svc:80".to_owned(),
            addresses: vec![closed, one.address],
            ..mk_backend(ANY, protocol)
        })]);
        for _ in 0..4 {
            assert_eq!(connection.get("/x").await.body, "one", "an address that refuses is passed over");
        }
    }
}

#[tokio::test]
async fn connections_end_when_no_route_has_their_backend() {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let world = GatewayWorld::start(vec![route_to(mk_backend(listener.local_addr().unwrap(), Protocol::Http))]).await;
    let mut connection = world.connect(&world.agent()).await;
    let serving = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        assert!(tcp.read(&mut [0; 4096]).await.unwrap() > 0);
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        tcp
    };
    let (answer, mut tcp) = futures::join!(connection.get("/x"), serving);
    assert_eq!(answer.status, StatusCode::OK);
    world.set_routes(Vec::new());
    assert_eq!(timeout(SOON, tcp.read(&mut [0])).await.unwrap().unwrap(), 0, "it ends well");
}

#[tokio::test]
async fn a_connection_has_the_requests_of_one_cluster() {
    let answer = async |_| text("fine");
    let (one, two) = (HttpBackend::start(answer).await, HttpBackend::start(answer).await);
    let addresses = vec![one.address, two.address];
    let world = GatewayWorld::start(vec![route_to(Backend { addresses, ..mk_backend(ANY, Protocol::H2c) })]).await;
    let h2 = client(&world).await;
    let calls = (0..40).map(|_| h2.clone().send_request(post("/x", text("").into_body())));
    assert!(join_all(calls).await.iter().all(|answer| answer.as_ref().unwrap().status() == StatusCode::OK));
    for _ in 0..4 {
        h2.clone().send_request(post("/x", text("").into_body())).await.unwrap();
    }
    assert_eq!(one.connections() + two.connections(), 1);
    let mut another = world.connect_h2(&mk_other_cluster(&world)).await;
    let request = Request::get("https://gateway.example/x").body(Full::default()).unwrap();
    another.send_request(request).await.unwrap();
    assert_eq!((one.connections(), two.connections()), (1, 1), "the addresses take turns");
}

#[tokio::test]
async fn a_silent_backend_holds_no_request_of_another_route() {
    let silent = TcpListener::bind(ANY).await.unwrap(); // accepts, and says nothing
    let fine = HttpBackend::start(async |_| text("fine")).await;
    let at = |path: &str, route: Route| Route { path: path.parse().unwrap(), ..route };
    let silent = route_to(mk_backend(silent.local_addr().unwrap(), Protocol::H2c));
    let world = GatewayWorld::start(vec![at("/silent", silent), at("/fine", fine.route(Protocol::H2c))]).await;
    let h2 = client(&world).await;
    let calls: Vec<_> =
        (0..10).map(|_| tokio::spawn(h2.clone().send_request(post("/silent", text("").into_body())))).collect();
    let answer = timeout(SOON, h2.clone().send_request(post("/fine", text("").into_body()))).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(calls.iter().all(|call| !call.is_finished()));
}

#[tokio::test]
async fn a_route_bounds_the_requests_of_each_caller() {
    let backend = HttpBackend::start(async |request: Request<_>| {
        if request.uri().path() == "/quick" {
            return text("fine");
        }
        endless()
    });
    let limits = RouteLimits { requests_per_identity: Some(1), ..LIMITS };
    let world = GatewayWorld::start(vec![Route { limits, ..backend.await.route(Protocol::Http) }]).await;
    let mut one = world.connect(&world.agent()).await;
    let mut two = world.connect(&world.agent()).await;
    let open = one.send(get("/long")).await.unwrap();
    let refusal = two.get("/quick").await;
    assert_eq!(refusal.problem(), (429, "too-many-requests".to_owned()));
    assert_eq!(refusal.headers["retry-after"], "1");
    assert_eq!(two.get("/v1/whoami").await.status, StatusCode::OK, "only the route is full");
    drop((open, one));
    wait_until(SOON, "the request to end", async || (two.get("/quick").await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn calls_in_flight_end_with_their_route() {
    let backend = HttpBackend::start(async |_| endless()).await;
    let nobody = Clusters::Names(["c9".parse().unwrap()].into());
    let route = || backend.route(Protocol::Http);
    for after in [Vec::new(), vec![Route { clusters: Arc::new(nobody), ..route() }]] {
        let world = GatewayWorld::start(vec![route()]).await;
        let mut connection = world.connect(&world.agent()).await;
        let mut body = connection.send(get("/x")).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        world.set_routes(vec![Route { limits: RouteLimits { max_body: 1, ..LIMITS }, ..route() }]);
        let other_limits = timeout(Duration::from_millis(1_500), body.frame()).await;
        assert!(other_limits.is_err(), "the route is still there");
        world.set_routes(after);
        let ended = timeout(Duration::from_secs(2), body.frame()).await.unwrap();
        assert!(ended.unwrap().is_err());
    }
}

#[tokio::test]
async fn calls_for_other_hosts_are_misdirected() {
    let backend = HttpBackend::start(async |request: Request<_>| {
        text(format!("{{{}}}", request.headers()["host"].to_str().unwrap()))
    })
    .await;
    let named = Backend { authority: "receive.svc:80".to_owned(), ..mk_backend(backend.address, Protocol::Http) };
    let world = GatewayWorld::start(vec![route_to(named)]).await;
    let mut tls = world.tls(world.client_config(Some(&world.agent()))).await.unwrap();
    for (hosts, expected) in [
        ("host: gateway.example\r\n", "200 "),
        ("host: GATEWAY.example.:8443\r\n", "200 "),
        ("host: 127.0.0.1\r\n", "200 "),
        ("host: [2001:0DB8:0::7]:8443\r\n", "200 "),
        ("host: [127.0.0.1]:8443\r\n", "421 "),
        ("host: 127.0.0.1:00008443\r\n", "421 "),
        ("", "421 "),
        ("host: \r\n", "421 "),
        ("host: other.example\r\n", "421 "),
        ("host: gateway.example\r\nhost: other.example\r\n", "421 "),
        ("host: gateway.example\r\nhost: gateway.example\r\n", "421 "),
    ] {
        tls.write_all(format!("GET /x HTTP/1.1\r\n{hosts}\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        let is_whole = |answer: &str| answer.split_once("\r\n\r\n").is_some_and(|(_, body)| body.ends_with('}'));
        while !is_whole(&answer) {
            answer.push(timeout(SOON, tls.read_u8()).await.unwrap().unwrap().into());
        }
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{hosts:?}: {answer}");
        assert!(expected != "200 " || answer.ends_with("{receive.svc:80}"), "{answer}");
    }
    let absolute = Arc::new("GET https://other.example/x HTTP/1.1\r\nhost: gateway.example\r\n\r\n");
    tls.write_all(absolute.as_bytes()).await.unwrap();
    let mut start = [0; 13];
    tls.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 421 ");
}
