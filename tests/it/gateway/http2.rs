//! Backends that speak HTTP/2: streams both ways, trailers, cancellation.

use std::time::Duration;

use addon_signer_core::gateway::route::{Protocol, Route, RouteLimits};
use addon_signer_core::registry::{AddOnFacts, ClusterFacts};
use http_body_util::{BodyExt, Collected};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::http_backend::{Content, HttpBackend, echo, endless, piece, pieces, text};
use test_kit::gateway::{GatewayWorld, HOUR, LIMITS, SOON};
use test_kit::issue::Leaf;

/// A client of HTTP/2 whose bodies may break off.
pub(super) async fn client(world: &GatewayWorld) -> SendRequest<Content> {
    client_with(world, None).await
}

/// The certificate of an agent of c2, which may call too.
pub(super) fn mk_other_cluster(world: &GatewayWorld) -> Leaf {
    world.registry.write(|registry| {
        registry.set_cluster("c2".parse().unwrap(), Some(ClusterFacts::ACCEPTED));
        registry.set_addon("c2".parse().unwrap(), "telemetry".parse().unwrap(), Some(AddOnFacts::Installed));
    });
    world.telemetry.client("c2", "telemetry", world.clock.now(), HOUR)
}

/// A client with so much room for each answer that it does not read.
pub(super) async fn client_with(world: &GatewayWorld, window: Option<u32>) -> SendRequest<Content> {
    let mut config = world.client_config(Some(&world.agent()));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let io = TokioIo::new(world.tls(config).await.unwrap());
    let mut builder = Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.initial_stream_window_size(window).handshake(io).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(super) fn post(path: &str, body: Content) -> Request<Content> {
    let uri = format!("https://gateway.example{path}");
    Request::post(uri).header("te", "trailers").header("trailer", "x-sum").body(body).unwrap()
}

fn trailers(fields: &[&'static str]) -> Frame<Bytes> {
    let field = |name: &&'static str| (name.parse().unwrap(), HeaderValue::from_static("yes"));
    Frame::trailers(HeaderMap::from_iter(fields.iter().map(field)))
}

async fn next(body: &mut Incoming) -> Bytes {
    timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap().into_data().unwrap()
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    for protocol in [Protocol::Http, Protocol::H2c] {
        let backend = HttpBackend::start(async |request| {
            assert_eq!(request.headers()["te"], "trailers");
            let mut answer = echo(request);
            answer.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
            answer
        });
        let world = GatewayWorld::start(vec![backend.await.route(protocol)]).await;
        let (pieces, body) = pieces();
        pieces.unbounded_send(piece("all")).unwrap();
        pieces.unbounded_send(Ok(trailers(&["x-sum", "x-remote-user"]))).unwrap();
        let answer = client(&world).await.send_request(post("/x", body.boxed_unsync())).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let answer = answer.into_body().collect().await.unwrap();
        let fields: Vec<_> = answer.trailers().unwrap().keys().map(|name| name.as_str().to_owned()).collect();
        assert_eq!((fields, answer.to_bytes().as_ref()), (vec!["x-sum".to_owned()], b"all".as_ref()), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_request_has_so_many_headers() {
    let backend = HttpBackend::start(async |_| text("passed")).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::H2c)]).await;
    let mut h2 = client(&world).await;
    for (count, status) in [(99, 200), (100, 431)] {
        let mut request = post("/x", text("").into_body()); // hyper adds its length
        let present = request.headers().len();
        for number in present..count {
            request.headers_mut().insert(format!("x-{number}").parse::<HeaderName>().unwrap(), "".parse().unwrap());
        }
        assert_eq!(h2.send_request(request).await.unwrap().status(), status);
    }
}

#[tokio::test]
async fn streams_go_both_ways_side_by_side() {
    let backend = HttpBackend::start(async |request| echo(request)).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::H2c)]).await;
    let mut h2 = client(&world).await;
    let (pieces, body) = pieces();
    let mut answer = h2.send_request(post("/x", body.boxed_unsync())).await.unwrap().into_body(); // before any piece
    for text in ["one", "two", "three"] {
        pieces.unbounded_send(piece(text)).unwrap();
        assert_eq!(next(&mut answer).await, text);
    }
    drop(pieces); // the client's half ends, then the backend's
    assert!(timeout(SOON, answer.collect()).await.unwrap().unwrap().to_bytes().is_empty());
    for _ in 0..10 {
        let answer = h2.send_request(post("/x", text("y").into_body())).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "y");
    }
    assert_eq!(backend.connections(), 1, "calls share a connection");
}

#[tokio::test]
async fn a_request_that_its_client_cancels_is_reset_at_the_backend() {
    for protocol in [Protocol::Http, Protocol::H2c] {
        for is_answered in [false, true] {
            let (telling, mut reported) = unbounded_channel();
            let backend = HttpBackend::start(move |request: Request<Incoming>| {
                let telling = telling.clone();
                async move {
                    let (pieces, body) = pieces();
                    pieces.unbounded_send(piece("begins")).unwrap();
                    telling.send("call").unwrap();
                    tokio::spawn(async move {
                        let _pieces = pieces;
                        let upload = request.into_body().collect().await;
                        telling.send(if upload.is_err() { "reset" } else { "whole upload" }).unwrap();
                    });
                    if is_answered { Response::new(body.boxed_unsync()) } else { std::future::pending().await }
                }
            });
            let world = GatewayWorld::start(vec![backend.await.route(protocol)]).await;
            let mut h2 = client(&world).await;
            let (pieces, body) = pieces();
            pieces.unbounded_send(piece("x")).unwrap();
            let mut calling = Box::pin(h2.send_request(post("/x", body.boxed_unsync())));
            let mut answer = None;
            if is_answered {
                let body = answer.insert(calling.as_mut().await.unwrap().into_body());
                assert_eq!(next(body).await, "begins");
                assert_eq!(reported.recv().await, Some("call"));
            } else {
                tokio::select! {
                    answer = calling.as_mut() => panic!("answered: {answer:?}"),
                    event = timeout(SOON, reported.recv()) => assert_eq!(event.unwrap(), Some("call")),
                }
            }
            pieces.unbounded_send(Err(std::io::Error::other("cancelled"))).unwrap();
            drop((calling, answer));
            assert_eq!(timeout(SOON, reported.recv()).await.unwrap(), Some("reset"));
        }
    }
}

#[tokio::test]
async fn a_stream_that_the_backend_resets_is_reset_for_the_client() {
    let (answering, mut answers) = unbounded_channel();
    let backend = HttpBackend::start(move |_| {
        let answering = answering.clone();
        async move {
            let (pieces, body) = pieces();
            pieces.unbounded_send(piece("begins")).unwrap();
            answering.send(pieces).unwrap();
            Response::new(body.boxed_unsync())
        }
    });
    let world = GatewayWorld::start(vec![backend.await.route(Protocol::H2c)]).await;
    let mut h2 = client(&world).await;
    for _ in 0..3 {
        let mut answer = h2.send_request(post("/x", text("").into_body())).await.unwrap().into_body();
        assert_eq!(next(&mut answer).await, "begins");
        answers.recv().await.unwrap().unbounded_send(Err(std::io::Error::other("broken"))).unwrap();
        let error = timeout(SOON, answer.frame()).await.unwrap().unwrap().unwrap_err();
        assert!(format!("{error:?}").contains("INTERNAL_ERROR"), "the backend's code: {error:?}");
    }
}

/// What a backend gets of a request's body.
type Received = JoinHandle<hyper::Result<Collected<Bytes>>>;

/// A backend that answers at once, with more than a small window takes.
async fn start_talkative() -> (HttpBackend, UnboundedReceiver<Received>) {
    let (receiving, received) = unbounded_channel();
    let backend = HttpBackend::start(move |request: Request<Incoming>| {
        receiving.send(tokio::spawn(request.into_body().collect())).unwrap();
        async { text(vec![b'x'; 1 << 20]) }
    });
    (backend.await, received)
}

#[tokio::test]
async fn an_upload_goes_on_while_its_client_reads_no_answer() {
    let (backend, mut received) = start_talkative().await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::H2c)]).await;
    let (pieces, body) = pieces();
    let mut h2 = client_with(&world, Some(1)).await;
    let _unread = h2.send_request(post("/x", body.boxed_unsync())).await.unwrap();
    for _ in 0..64 {
        pieces.unbounded_send(Ok(Frame::data(vec![b'x'; 16 << 10].into()))).unwrap();
    }
    drop(pieces);
    let upload = timeout(SOON, received.recv().await.unwrap()).await.unwrap().unwrap();
    assert_eq!(upload.unwrap().to_bytes().len(), 1 << 20);
}

#[tokio::test]
async fn an_upload_ends_with_its_route_though_nothing_is_read() {
    let (backend, mut received) = start_talkative().await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::H2c)]).await;
    let (_pieces, body) = pieces();
    let mut h2 = client_with(&world, Some(1)).await;
    let _unread = h2.send_request(post("/x", body.boxed_unsync())).await.unwrap();
    world.set_routes(Vec::new());
    let upload = timeout(Duration::from_secs(2), received.recv().await.unwrap()).await.unwrap().unwrap();
    assert!(upload.is_err());
}

#[tokio::test]
async fn an_upload_that_fails_breaks_off_its_answer() {
    let backend = HttpBackend::start(async |_| endless()).await;
    let small = RouteLimits { max_body: 3, ..LIMITS };
    for protocol in [Protocol::Http, Protocol::H2c] {
        let world = GatewayWorld::start(vec![Route { limits: small, ..backend.route(protocol) }]).await;
        let (pieces, body) = pieces();
        let mut answer = client(&world).await.send_request(post("/x", body.boxed_unsync())).await.unwrap().into_body();
        assert_eq!(next(&mut answer).await, "begins");
        pieces.unbounded_send(piece("four")).unwrap();
        assert!(timeout(SOON, answer.frame()).await.unwrap().unwrap().is_err(), "{protocol:?}");
    }
}

/// They share a connection to the backend, and its window.
#[tokio::test]
async fn clients_that_do_not_read_hold_up_nobody_else() {
    let backend = HttpBackend::start(async |request: Request<Incoming>| match request.uri().path() {
        "/large" => text(vec![b'x'; 1 << 20]),
        _ => text("fine"),
    });
    let backend = backend.await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::H2c)]).await;
    let mut unread = Vec::new();
    let mut h2 = client(&world).await;
    for _ in 0..60 {
        unread.push(h2.send_request(post("/large", text("").into_body())).await.unwrap());
    }
    let mut another = client(&world).await;
    for _ in 0..5 {
        let answer = timeout(SOON, another.send_request(post("/x", text("").into_body()))).await.unwrap().unwrap();
        assert_eq!(timeout(SOON, answer.into_body().collect()).await.unwrap().unwrap().to_bytes(), "fine");
    }
    assert_eq!(backend.connections(), 1);
}
