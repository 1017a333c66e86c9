//! What says where a backend's answer ends, and what one protocol has and the other forbids: the rules of RFC 9110,
//! 9112 and 9113, with HTTP/1.1 and HTTP/2 on both sides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use addon_signer_core::gateway::route::{Protocol, Route, RouteLimits};
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::{Method, Request, Response};
use tokio::time::timeout;

use super::faults::start_http1;
use super::frames::{self, Act, Frame, field, frame};
use super::http_backend::route_to;
use test_kit::gateway::{GatewayWorld, LIMITS, SOON, mk_backend};

/// A case: what is special, and what a client gets of an answer to this method.
type Case<A> = (&'static str, Method, A, &'static str);

/// Status, lengths and content.
const WHOLE: &str = "200 [4] fine";
const WITHOUT_LENGTH: &str = "200 [] fine";
const REFUSED: &str = "502";
const BROKEN: &str = "200 broken";

/// The heads of answers of HTTP/1.1 that have the content `fine`, with what every client gets of them.
fn http1_heads() -> Vec<(&'static str, String, &'static str)> {
    let ok = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}");
    let sized = |fields: &str| ok(&format!("content-length: 4\r\n{fields}"));
    let of_one_connection = "connection: x-listed, Keep-Alive\r\nconnection: te\r\nx-listed: 1\r\n\
        keep-alive: timeout=5\r\nproxy-connection: close\r\nupgrade: h2c\r\nte: trailers\r\n";
    vec![
        ("one length", sized(""), WHOLE),
        ("a length twice", sized("Content-Length: 4\r\n"), WHOLE),
        ("a list of equal lengths", ok("content-length: 4, 4\r\n"), WHOLE),
        ("two lengths", sized("content-length: 5\r\n"), REFUSED),
        ("a list of two lengths", ok("content-length: 4, 5\r\n"), REFUSED),
        ("a length with a sign", ok("content-length: +4\r\n"), REFUSED),
        ("a negative length", ok("content-length: -4\r\n"), REFUSED),
        ("an empty length", ok("content-length:\r\n"), REFUSED),
        ("a length that overflows", ok("content-length: 18446744073709551620\r\n"), REFUSED),
        ("a length and chunks", sized("transfer-encoding: chunked\r\n"), REFUSED),
        ("chunks and a length", ok("transfer-encoding: chunked\r\ncontent-length: 4\r\n"), REFUSED),
        ("another coding", ok("transfer-encoding: gzip\r\n"), REFUSED),
        ("a coding and chunks", ok("transfer-encoding: gzip, chunked\r\n"), REFUSED),
        ("chunks twice", ok("transfer-encoding: chunked, chunked\r\n"), REFUSED),
        ("chunks of HTTP/1.0", "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n".to_owned(), REFUSED),
        ("a space before the colon", sized("content-length : 5\r\n"), REFUSED),
        ("a folded line", sized("x-a: 1\r\n 2\r\n"), REFUSED),
        ("a NUL", sized("x-a: 1\0\r\n"), REFUSED),
        ("a pseudo-header", sized(":status: 500\r\n"), REFUSED),
        ("fields of one connection", sized(of_one_connection), WHOLE),
        ("fields that name themselves", sized("connection: content-type\r\ncontent-type: a\r\n"), WHOLE),
        ("97 headers", sized(&"x-a: 1\r\n".repeat(96)), WHOLE),
        ("101 headers", sized(&"x-a: 1\r\n".repeat(100)), REFUSED),
        ("a head of 15 KB", sized(&format!("x-a: {}\r\n", "x".repeat(15_000))), WHOLE),
        ("a head of 40 KB", sized(&format!("x-a: {}\r\n", "x".repeat(40_000))), REFUSED),
    ]
}

fn http1_cases() -> Vec<Case<Act>> {
    let whole = |(what, head, expected): (&'static str, String, &'static str)| {
        (what, Method::GET, Act::Send(format!("{head}\r\nfine").into_bytes()), expected)
    };
    let send = |text: &str| Act::Send(text.as_bytes().to_vec());
    let mut cases: Vec<Case<Act>> = http1_heads().into_iter().map(whole).collect();
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n4\r\nfine\r\n0\r\n";
    let length = "content-length: 4\r\n";
    cases.extend([
        ("chunks", Method::GET, send(&format!("{chunks}\r\n")), WITHOUT_LENGTH),
        ("chunks, a length after them", Method::GET, send(&format!("{chunks}{length}\r\n")), WITHOUT_LENGTH),
        ("neither", Method::GET, Act::Close(b"HTTP/1.1 200 OK\r\n\r\nfine".to_vec()), WITHOUT_LENGTH),
        ("204 with a length", Method::GET, send("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"), "204 [] "),
        ("204 with another", Method::GET, send(&format!("HTTP/1.1 204 No Content\r\n{length}\r\n")), "204 [] "),
        ("304 of two lengths", Method::GET, send("HTTP/1.1 304 a\r\ncontent-length: 4, 5\r\n\r\n"), REFUSED),
        ("HEAD", Method::HEAD, send(&format!("HTTP/1.1 200 OK\r\n{length}\r\n")), "200 [4] "),
        ("HEAD, twice", Method::HEAD, send(&format!("HTTP/1.1 200 OK\r\n{length}{length}\r\n")), "200 [4] "),
        ("HEAD, two", Method::HEAD, send(&format!("HTTP/1.1 200 OK\r\n{length}content-length: 5\r\n\r\n")), REFUSED),
        ("HEAD, chunks", Method::HEAD, send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), "200 [] "),
    ]);
    cases
}

/// The head of an answer of HTTP/2, and its content.
fn answered(head: Vec<u8>, content: &'static str) -> impl Fn(u32) -> Vec<u8> {
    move |stream| {
        [frames::head_of(stream, &head), frame(frames::DATA, frames::END_STREAM, stream, content.as_bytes())].concat()
    }
}

type Http2 = Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>;

fn http2_cases() -> Vec<Case<Http2>> {
    let of = |fields: &[(&str, &str)]| fields.iter().flat_map(|(name, value)| field(name, value)).collect::<Vec<u8>>();
    let ok = |fields: &[(&str, &str)]| [field(":status", "200"), of(fields)].concat();
    let length = ("content-length", "4");
    let whole = |what, head: Vec<u8>, expected| {
        let answer: Http2 = Box::new(answered(head, "fine"));
        (what, Method::GET, answer, expected)
    };
    let with = |what, method, (head, content), expected| {
        let answer: Http2 = Box::new(answered(head, content));
        (what, method, answer, expected)
    };
    let trailers = move |stream| {
        let block = of(&[("content-length", "4"), ("te", "trailers"), ("x-sum", " 1 ")]);
        let data = frame(frames::DATA, 0, stream, b"fine");
        let last = frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &block);
        [frames::head(stream, "200"), data, last].concat()
    };
    vec![
        whole("no length", ok(&[]), WITHOUT_LENGTH),
        whole("a length twice", ok(&[length, length]), WHOLE),
        whole("two lengths", ok(&[length, ("content-length", "5")]), REFUSED),
        whole("a list of equal lengths", ok(&[("content-length", "4, 4")]), REFUSED),
        whole("a length above the content's", ok(&[("content-length", "5")]), BROKEN),
        whole("a length below the content's", ok(&[("content-length", "3")]), BROKEN),
        whole("connection", ok(&[("connection", "close")]), REFUSED),
        whole("keep-alive", ok(&[("keep-alive", "timeout=5")]), REFUSED),
        whole("proxy-connection", ok(&[("proxy-connection", "close")]), REFUSED),
        whole("transfer-encoding", ok(&[("transfer-encoding", "chunked")]), REFUSED),
        whole("upgrade", ok(&[("upgrade", "h2c")]), REFUSED),
        whole("te", ok(&[("te", "trailers"), ("proxy-authenticate", "a"), length]), WHOLE),
        whole("space around a value", ok(&[("x-padded", " a\t"), length]), WHOLE),
        whole("a line break in a value", ok(&[("x-a", "1\r\nx-b: 2")]), REFUSED),
        whole("a name in capitals", ok(&[("X-A", "1")]), REFUSED),
        whole("no status", of(&[length]), REFUSED),
        whole("two statuses", ok(&[(":status", "204")]), REFUSED),
        whole("a status below a field", of(&[length, (":status", "200")]), REFUSED),
        whole("97 headers", ok(&[("x-a", "1"); 97]), WITHOUT_LENGTH),
        whole("101 headers", ok(&[("x-a", "1"); 101]), REFUSED),
        whole("a head of 15 KB", ok(&[("x-a", &"x".repeat(15_000))]), WITHOUT_LENGTH),
        whole("a head of 40 KB", ok(&[("x-a", &"x".repeat(40_000))]), REFUSED),
        with("204 with a length", Method::GET, (of(&[(":status", "204"), ("content-length", "0")]), ""), "204 [] "),
        with("HEAD, twice", Method::HEAD, (ok(&[length, length]), ""), "200 [4] "),
        ("a length in trailers", Method::GET, Box::new(trailers), WITHOUT_LENGTH),
    ]
}

/// What a client gets. Whatever it is, it has no field of the connection to the backend.
async fn got(world: &GatewayWorld, method: &Method, is_h2: bool) -> String {
    let request = |uri: &str| Request::builder().method(method).uri(uri).header("te", "trailers");
    let answering = async {
        if is_h2 {
            let request = request("https://gateway.example/x").body(Full::default()).unwrap();
            world.connect_h2(&world.agent()).await.send_request(request).await.map_err(|error| error.to_string())
        } else {
            let request = request("/x").header("connection", "te").body(Full::default()).unwrap();
            world.connect(&world.agent()).await.send(request).await
        }
    };
    match timeout(SOON, answering).await.unwrap() {
        Ok(answer) => described(answer, is_h2).await,
        Err(error) => error,
    }
}

async fn described(answer: Response<Incoming>, is_h2: bool) -> String {
    let headers = answer.headers().clone();
    let framing = ["connection", "transfer-encoding"].into_iter().filter(|_| is_h2);
    let forbidden = ["x-listed", "keep-alive", "proxy-connection", "upgrade", "te", "proxy-authenticate"];
    for name in framing.chain(forbidden) {
        assert!(!headers.contains_key(name), "{headers:?}");
    }
    assert!(headers.get("x-padded").is_none_or(|value| value == "a"), "{headers:?}");
    let status = answer.status().as_u16();
    let lengths: Vec<&str> = headers.get_all(CONTENT_LENGTH).iter().map(text).collect();
    match timeout(SOON, answer.into_body().collect()).await.unwrap() {
        Ok(_) if status == 502 => REFUSED.to_owned(),
        Ok(body) => {
            let trailers = body.trailers().cloned().unwrap_or_default();
            assert!(trailers.is_empty() || (trailers.len() == 1 && trailers["x-sum"] == "1"), "{trailers:?}");
            let body = Collected::to_bytes(body);
            format!("{status} [{}] {}", lengths.join(","), String::from_utf8_lossy(&body))
        }
        Err(_) => format!("{status} broken"),
    }
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap()
}

/// A gateway for each answer that a client gets whole, and the content.
pub(crate) async fn worlds_of_whole_answers() -> Vec<(&'static str, GatewayWorld, &'static str)> {
    let mut worlds = Vec::new();
    let content = |method, expected: &'static str| {
        expected.split_once("] ").map(|(_, content)| content).filter(|_| method == Method::GET)
    };
    for (what, method, act, expected) in http1_cases() {
        if let Some(content) = content(method, expected) {
            worlds.push((what, world_of(start_http1(act).await, Protocol::Http).await, content));
        }
    }
    for (what, method, answer, expected) in http2_cases() {
        if let Some(content) = content(method, expected) {
            worlds.push((what, world_of(start_http2(answer).await, Protocol::H2c).await, content));
        }
    }
    worlds
}

/// A backend of HTTP/2 that answers the first request so.
async fn start_http2(answer: Http2) -> SocketAddr {
    let answer = Arc::new(answer);
    let act = move |frame: &Frame, requests: usize| match requests {
        1 => Act::Send(answer(frame.stream)),
        _ => Act::Send(frames::answer(frame.stream, "fine")),
    };
    frames::start(act).await.0
}

/// A gateway whose backend this is, with little patience.
async fn world_of(address: SocketAddr, protocol: Protocol) -> GatewayWorld {
    let short = Duration::from_secs(2);
    let limits = RouteLimits { first_byte: short, idle: short, ..LIMITS };
    let methods = ["GET", "HEAD"].map(str::to_owned).into();
    GatewayWorld::start(vec![Route { limits, methods, ..route_to(mk_backend(address, protocol)) }]).await
}

/// What a client gets that is not as expected, also of the next answer.
async fn wrong(world: &GatewayWorld, case: (&str, &Method, &'static str), is_h2: bool, next: &str) -> Option<String> {
    let (what, method, expected) = case;
    let got = [got(world, method, is_h2).await, got(world, &Method::GET, is_h2).await];
    (got != [expected, next]).then(|| format!("{what}: {got:?} instead of {expected:?}, with HTTP/2: {is_h2}"))
}

#[tokio::test]
async fn answers_of_http1_backends_are_made_one() {
    let mut all = Vec::new();
    for is_h2 in [true, false] {
        for (what, method, act, expected) in http1_cases() {
            let world = world_of(start_http1(act).await, Protocol::Http).await;
            all.extend(wrong(&world, (what, &method, expected), is_h2, WHOLE).await);
        }
    }
    assert_eq!(all, Vec::<String>::new());
}

#[tokio::test]
async fn answers_of_http2_backends_are_made_one() {
    let mut all = Vec::new();
    for is_h2 in [true, false] {
        for (what, method, answer, expected) in http2_cases() {
            let world = world_of(start_http2(answer).await, Protocol::H2c).await;
            all.extend(wrong(&world, (what, &method, expected), is_h2, WITHOUT_LENGTH).await);
        }
    }
    assert_eq!(all, Vec::<String>::new());
}

/// RFC 9110 section 6.4.1: the client of HTTP/1.1 would take the content for the next answer.
#[tokio::test]
async fn content_of_an_answer_that_has_none_reaches_nobody() {
    for status in ["204", "304"] {
        let act = move |frame: &Frame, _| Act::Send(answered(field(":status", status), "fine")(frame.stream));
        let world = world_of(frames::start(act).await.0, Protocol::H2c).await;
        assert_eq!(got(&world, &Method::GET, true).await, format!("{status} broken"));
        assert_eq!(got(&world, &Method::GET, false).await, format!("{status} [] "));
    }
}
