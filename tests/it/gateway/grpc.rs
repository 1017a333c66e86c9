//! What a client of gRPC is told.

use std::error::Error;
use std::time::Duration;

use addon_signer_core::gateway::permits::MinRate;
use addon_signer_core::gateway::route::{Backend, Protocol, Route, RouteLimits};
use addon_signer_gateway::Limits;
use h2::Reason;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::time::timeout;

use super::frames::{self, Act, Frame};
use super::http_backend::{Content, HttpBackend, echo, mk_server_tls, mk_tls, piece, pieces, route_to, text};
use super::http2::{client, post};
use test_kit::gateway::{GatewayWorld, HOUR, LIMITS, SOON, collect, mk_backend};
use test_kit::issue::Ca;

fn call(path: &str, body: Content) -> Request<Content> {
    let mut request = post(path, body);
    request.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
    request
}

/// The status of gRPC. The answer must have only trailers.
async fn status<B: hyper::body::Body>(answer: Response<B>) -> String {
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-type"]),
        (200, &"application/grpc".parse().unwrap())
    );
    assert!(!answer.headers()["grpc-message"].is_empty());
    assert!(answer.body().is_end_stream());
    answer.headers()["grpc-status"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn refusals_are_answers_of_grpc() {
    let backend = HttpBackend::start(async |request| echo(request)).await;
    let route = |path: &str, limits| Route { path: path.parse().unwrap(), limits, ..backend.route(Protocol::H2c) };
    let missing = Route { backend: Err("there is none".to_owned()), ..route("/missing.S", LIMITS) };
    let full = RouteLimits { requests_per_identity: Some(0), ..LIMITS };
    let small = RouteLimits { max_body: 3, ..LIMITS };
    let get_only = Route { methods: ["GET".to_owned()].into(), ..route("/get.S", LIMITS) };
    let routes = vec![route("/full.S", full), route("/small.S", small), route("/a.S/M", LIMITS), missing, get_only];
    let world = GatewayWorld::start(routes).await;
    let mut h2 = client(&world).await;
    for (path, expected) in [
        ("/a.S/Other", "12"),
        ("/a.S/../x", "3"),
        ("/addons/search/a.S/M", "7"),
        ("/get.S/M", "12"),
        ("/small.S/M", "8"),
        ("/full.S/M", "14"),
        ("/missing.S/M", "14"),
    ] {
        let answer = h2.send_request(call(path, text("four").into_body())).await.unwrap();
        assert_eq!(status(answer).await, expected, "{path}");
    }
    let misdirected = Request::post("https://other.example/a.S/M").header("content-type", "application/grpc");
    let answer = h2.send_request(misdirected.body(text("").into_body()).unwrap()).await.unwrap();
    assert_eq!(status(answer).await, "12");
}

/// A client that gets CANCEL after its deadline says that the deadline has passed.
#[tokio::test]
async fn a_reset_before_an_answer_keeps_its_code_for_grpc() {
    const CODES: [Reason; 4] =
        [Reason::CANCEL, Reason::ENHANCE_YOUR_CALM, Reason::REFUSED_STREAM, Reason::INTERNAL_ERROR];
    let act = |frame: &Frame, requests: usize| match frame.flags & frames::END_STREAM {
        0 => Act::Send(Vec::new()),
        _ => Act::Send(frames::reset(frame.stream, CODES[(requests - 1) % CODES.len()])),
    };
    let (address, _) = frames::start(act).await;
    let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::H2c))]).await;
    let mut h2 = client(&world).await;
    for code in CODES {
        let error = h2.send_request(call("/a.S/M", text("four").into_body())).await.unwrap_err();
        let error = error.source().and_then(|source| source.downcast_ref::<h2::Error>()).unwrap();
        assert_eq!(error.reason(), Some(code));
    }
    assert_eq!(h2.send_request(post("/x", text("four").into_body())).await.unwrap().status(), 502);
    let mut http1 = world.connect(&world.agent()).await;
    let post = Request::post("/x").body(http_body_util::Full::from("four")).unwrap();
    assert_eq!(collect(http1.send(post).await.unwrap()).await.problem(), (502, "backend".to_owned()));
}

#[tokio::test]
async fn a_caller_without_eligibility_is_unauthenticated() {
    let backend = HttpBackend::start(async |_| std::future::pending().await).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::H2c)]).await;
    let mut h2 = client(&world).await;
    let (_open, body) = pieces();
    let waiting = h2.send_request(call("/a.S/M", body.boxed_unsync()));
    let ending = async {
        let begun = async || (backend.connections() == 1).then_some(());
        test_kit::wait_until(SOON, "the request to begin", begun).await;
        world.detach();
    };
    let (answer, ()) = futures::join!(timeout(Duration::from_secs(2), waiting), ending);
    assert_eq!(status(answer.unwrap().unwrap()).await, "16");
}

/// A stream may have nothing to say for longer than a body may pause.
#[tokio::test]
async fn silent_streams_of_grpc_last_as_long_as_their_route_says() {
    let short = Duration::from_millis(200);
    let hasty = Limits { min_rate: MinRate { bytes_per_second: 256, grace: short }, ..Limits::default() };
    let world = GatewayWorld::start_with(Vec::new(), hasty).await;
    let ca = Ca::new("backends", world.clock.now());
    let whole = async |request: Request<Incoming>| text(request.into_body().collect().await.unwrap().to_bytes());
    let plain = HttpBackend::start(whole).await;
    let secret = HttpBackend::start_with(Some(mk_server_tls(&ca, &world, &["h2", "http/1.1"])), whole).await;
    let tls = Some(mk_tls(&ca, "receive.svc"));
    let chosen = route_to(Backend { tls, ..mk_backend(secret.address, Protocol::Https) });
    for route in [plain.route(Protocol::H2c), chosen] {
        let lenient = RouteLimits { first_byte: short, idle: HOUR, ..LIMITS };
        world.set_routes(vec![Route { limits: lenient, ..route }]);
        let mut h2 = client(&world).await;
        let (sending, body) = pieces();
        let mut waiting = std::pin::pin!(h2.send_request(call("/a.S/M", body.boxed_unsync())));
        sending.unbounded_send(piece("a")).unwrap();
        assert!(timeout(5 * short, waiting.as_mut()).await.is_err(), "it is the client's turn");
        drop(sending);
        assert_eq!(waiting.await.unwrap().into_body().collect().await.unwrap().to_bytes(), "a");
    }
}
