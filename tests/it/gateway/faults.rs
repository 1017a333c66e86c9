//! What a caller gets from a backend that breaks the protocol or stops, and that this spoils no further request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use addon_signer_core::gateway::route::{Protocol, Route, RouteLimits};
use h2::Reason;
use http_body_util::{BodyExt, Collected};
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::frames::{self, Act, Frame, Treat, field, frame};
use super::http_backend::{HttpBackend, piece, pieces, route_to, text};
use super::http2::{client, client_with, mk_other_cluster, post};
use test_kit::gateway::{ANY, GatewayWorld, LIMITS, SOON, get, mk_backend};

/// What a caller gets.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// 200, and all of the body.
    Whole,
    /// 200, and a body that does not end well.
    Broken,
    Status(u16),
}

use Outcome::{Broken, Status, Whole};

/// The start of a response of HTTP/2.
fn begun(stream: u32) -> Vec<u8> {
    [frames::head(stream, "200"), frame(frames::DATA, 0, stream, b"fi")].concat()
}

/// An answer with trailers in so many frames of 16 KB. The limit is 32 KB.
fn trailers(stream: u32, count: usize, is_whole: bool) -> Vec<u8> {
    let block = field("x-long", &"x".repeat(100)).repeat(150);
    let frames = (0..count).flat_map(|index| {
        let kind = if index == 0 { frames::HEADERS } else { frames::CONTINUATION };
        let end_stream = if index == 0 { frames::END_STREAM } else { 0 };
        let end_headers = if is_whole && index + 1 == count { frames::END_HEADERS } else { 0 };
        frame(kind, end_stream | end_headers, stream, &block)
    });
    let start = [frames::head(stream, "200"), frame(frames::DATA, 0, stream, b"fine")].concat();
    start.into_iter().chain(frames).collect()
}

fn http2_faults() -> Vec<(&'static str, Outcome, Treat)> {
    vec![
        ("100 informational answers", Whole, |stream| {
            Act::Send([frames::head(stream, "103").repeat(100), frames::answer(stream, "fine")].concat())
        }),
        ("trailers that stop", Broken, |stream| Act::Send(trailers(stream, 1, false))),
        ("trailers without end", Broken, |stream| Act::Send(trailers(stream, 100, false))),
        // h2 leaves out those above it, and does not say so.
        ("trailers above the limit", Whole, |stream| Act::Send(trailers(stream, 3, true))),
        ("GOAWAY for an answer that has begun", Broken, |stream| {
            Act::Send([begun(stream), frames::go_away(stream - 1)].concat())
        }),
        ("GOAWAY and a close in an answer", Broken, |stream| {
            Act::Close([begun(stream), frames::go_away(stream)].concat())
        }),
        ("a reset without an error in an answer", Broken, |stream| {
            Act::Send([begun(stream), frames::reset(stream, Reason::NO_ERROR)].concat())
        }),
        ("half a head", Status(504), |stream| Act::Send(frame(frames::HEADERS, 0, stream, &field(":status", "200")))),
        ("half a head and a close", Status(502), |stream| {
            Act::Close(frame(frames::HEADERS, 0, stream, &field(":status", "200")))
        }),
    ]
}

fn http1_faults() -> Vec<(&'static str, Outcome, Act)> {
    let send = |parts: [&str; 3]| Act::Send(parts.concat().into_bytes());
    let begun = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n";
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".repeat(100);
    let many = "x-long: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n".repeat(1000);
    vec![
        ("100 informational answers", Whole, send([&hints, FINE, ""])),
        ("trailers that stop", Broken, send([begun, "x-sum: 1\r\n", ""])),
        ("trailers without end", Broken, send([begun, &many, ""])),
        ("trailers above the limit", Broken, send([begun, &many, "\r\n"])),
        ("half a head", Status(504), send(["HTTP/1.1 200 OK\r\ncontent-le", "", ""])),
        ("half a head and a close", Status(502), Act::Close(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec())),
    ]
}

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";

/// A backend of HTTP/1.1 that does so at the first request, and answers the others.
pub(super) async fn start_http1(act: Act) -> SocketAddr {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (act, requests) = (Arc::new(act), Arc::<AtomicUsize>::default());
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let serving = serve_http1(tcp, Arc::clone(&act), Arc::clone(&requests));
            // It fails if the gateway leaves, which is part of the tests.
            tokio::spawn(async move { serving.await.ok() });
        }
    });
    address
}

async fn serve_http1(mut tcp: TcpStream, act: Arc<Act>, requests: Arc<AtomicUsize>) -> std::io::Result<()> {
    while tcp.read(&mut [0; 4096]).await? > 0 {
        match &*act {
            _ if requests.fetch_add(1, Ordering::Relaxed) > 0 => tcp.write_all(FINE.as_bytes()).await?,
            Act::Send(bytes) => tcp.write_all(bytes).await?,
            Act::Close(bytes) => {
                tcp.write_all(bytes).await?;
                return tcp.shutdown().await;
            }
        }
    }
    Ok(())
}

async fn outcome(world: &GatewayWorld, is_h2: bool) -> Outcome {
    let answering = async {
        if is_h2 {
            client(world).await.send_request(post("/x", text("").into_body())).await.unwrap()
        } else {
            world.connect(&world.agent()).await.send(get("/x")).await.unwrap()
        }
    };
    let answer = timeout(SOON, answering).await.unwrap();
    let status = answer.status().as_u16();
    match (status, timeout(SOON, answer.into_body().collect()).await.unwrap().map(Collected::to_bytes)) {
        (200, Ok(body)) if body == "fine" => Whole,
        (200, Err(_)) => Broken,
        (status, _) => Status(status),
    }
}

/// The first request gets what is expected, and another client's request right after it an answer.
async fn check(fault: &str, protocol: Protocol, address: SocketAddr, is_h2: bool, expected: &Outcome) {
    let short = Duration::from_secs(1);
    let limits = RouteLimits { first_byte: short, idle: short, ..LIMITS };
    let world = GatewayWorld::start(vec![Route { limits, ..route_to(mk_backend(address, protocol)) }]).await;
    let got = outcome(&world, is_h2).await;
    assert_eq!(got, *expected, "{fault} over {protocol:?}, to a client of HTTP/2: {is_h2}");
    assert_eq!(outcome(&world, is_h2).await, Whole, "after {fault} over {protocol:?}");
}

#[tokio::test]
async fn faults_of_an_http2_backend_reach_its_caller_alone() {
    for is_h2 in [true, false] {
        for (fault, expected, act) in http2_faults() {
            let act = move |frame: &Frame, requests: usize| match frame.flags & frames::END_STREAM {
                0 => Act::Send(Vec::new()),
                _ if requests == 1 => act(frame.stream),
                _ => Act::Send(frames::answer(frame.stream, "fine")),
            };
            check(fault, Protocol::H2c, frames::start(act).await.0, is_h2, &expected).await;
        }
    }
}

#[tokio::test]
async fn faults_of_an_http1_backend_reach_its_caller_alone() {
    for is_h2 in [true, false] {
        for (fault, expected, act) in http1_faults() {
            check(fault, Protocol::Http, start_http1(act).await, is_h2, &expected).await;
        }
    }
}

/// RFC 9113 section 8.1.
#[tokio::test]
async fn a_whole_answer_may_ask_to_leave_out_the_request() {
    let act = |frame: &Frame, _| {
        Act::Send([frames::answer(frame.stream, "fine"), frames::reset(frame.stream, Reason::NO_ERROR)].concat())
    };
    let (address, _) = frames::start(act).await;
    let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::H2c))]).await;
    let (_open, body) = pieces();
    let answer = client(&world).await.send_request(post("/x", body.boxed_unsync())).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "fine");
}

/// CVE-2023-44487. The client comes again when its connection has ended.
#[tokio::test]
async fn streams_that_are_opened_and_reset_cost_others_nothing() {
    let backend = HttpBackend::start(async |_| text("fine")).await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::H2c)]).await;
    let mut another = world.connect_h2(&mk_other_cluster(&world)).await;
    let mut config = world.client_config(Some(&world.agent()));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    let mut begun = 0;
    while begun < 10_000 {
        let mut tls = world.tls_shared(Arc::clone(&config)).await.unwrap();
        let mut bytes = [frames::PREFACE, &frame(frames::SETTINGS, 0, 0, &[])].concat();
        for stream in (1..).step_by(2) {
            bytes.extend(call(stream));
            bytes.extend(frames::reset(stream, Reason::CANCEL));
            begun += 1;
            if begun % 100 == 0 {
                if tls.write_all(&bytes).await.is_err() || tls.flush().await.is_err() || begun == 10_000 {
                    break;
                }
                bytes.clear();
            }
        }
        let request = Request::post("https://gateway.example/a.S/M").header("content-type", "application/grpc");
        let answer = timeout(SOON, another.send_request(request.body(Default::default()).unwrap())).await;
        assert_eq!(answer.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes(), "fine");
    }
}

/// The head of a request of gRPC.
fn call(stream: u32) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", "/a.S/M"),
        (":authority", "gateway.example"),
        ("content-type", "application/grpc"),
    ];
    let block: Vec<u8> = fields.into_iter().flat_map(|(name, value)| field(name, value)).collect();
    frame(frames::HEADERS, frames::END_HEADERS, stream, &block)
}

/// Allows no further streams once there is one.
fn stingy(end: u8) -> impl Fn(&Frame, usize) -> Act + Clone {
    move |seen, _| {
        let none = frame(frames::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0]);
        let answer = [frames::head(seen.stream, "200"), frame(frames::DATA, end, seen.stream, b"fine")].concat();
        Act::Send(if seen.kind == frames::HEADERS { [none, answer].concat() } else { Vec::new() })
    }
}

#[tokio::test]
async fn a_backend_that_allows_no_streams_gets_few_connections() {
    for (end, passing, after) in [(frames::END_STREAM, 20, 200), (0, 8, 502)] {
        let (address, _) = frames::start(stingy(end)).await;
        let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::H2c))]).await;
        let mut h2 = world.connect_h2(&world.agent()).await;
        let mut answers = Vec::new(); // those without an end go on
        for call in 0..=passing {
            let request = Request::get("https://gateway.example/x").body(Default::default()).unwrap();
            let answer = timeout(SOON, h2.send_request(request)).await.unwrap().unwrap();
            assert_eq!(answer.status(), if call < passing { 200 } else { after }, "{end} {call}");
            if end == frames::END_STREAM {
                answer.into_body().collect().await.unwrap();
            } else {
                answers.push(answer);
            }
        }
    }
}

/// h2 ends a connection on which too many small pieces wait.
#[tokio::test]
async fn answers_that_nobody_reads_end_no_request_of_another_cluster() {
    let (hand_over, mut bodies) = tokio::sync::mpsc::unbounded_channel();
    let backend = HttpBackend::start(move |_| {
        let (pieces, body) = pieces();
        hand_over.send(pieces).ok(); // or the test is over
        async { Response::new(body.boxed_unsync()) }
    })
    .await;
    let world = GatewayWorld::start(vec![backend.route(Protocol::H2c)]).await;
    let get = || Request::get("https://gateway.example/x").body(Default::default()).unwrap();
    let mut another = world.connect_h2(&mk_other_cluster(&world)).await;
    let calm = another.send_request(get()).await.unwrap();
    let calm_pieces = bodies.recv().await.unwrap();
    let mut greedy = client_with(&world, Some(1)).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(greedy.send_request(post("/x", text("").into_body())).await.unwrap());
    }
    let mut floods = Vec::new();
    for _ in 0..8 {
        floods.push(bodies.recv().await.unwrap());
    }
    for _ in 0..40_000 {
        floods.retain(|flood| flood.unbounded_send(piece("twenty bytes of text")).is_ok());
        tokio::task::yield_now().await;
    }
    calm_pieces.unbounded_send(piece("fine")).unwrap();
    drop(calm_pieces);
    let whole = timeout(SOON, calm.into_body().collect()).await.unwrap().unwrap();
    assert_eq!(whole.to_bytes(), "fine");
}
