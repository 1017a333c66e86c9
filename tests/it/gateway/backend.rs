//! An addon's backend that answers with what it saw, and can be slow, endless or invalid.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use futures::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use test_kit::gateway::ANY;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Starts a backend, which runs as long as the test's runtime.
pub(crate) async fn start() -> SocketAddr {
    start_at(ANY).await
}

/// Starts a backend at this address.
pub(crate) async fn start_at(address: SocketAddr) -> SocketAddr {
    start_on(TcpListener::bind(address).await.unwrap())
}

/// Starts a backend whose sockets take little that it has not read.
pub(crate) async fn start_small(receive_buffer: u32) -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(receive_buffer).unwrap();
    socket.bind(ANY).unwrap();
    start_on(socket.listen(16).unwrap())
}

fn start_on(listener: TcpListener) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            tcp.set_nodelay(true).unwrap();
            let serving = http1::Builder::new().serve_connection(TokioIo::new(tcp), service_fn(answer));
            // Serving fails if a client leaves early, which is part of the tests.
            tokio::spawn(async move { serving.await.ok() });
        }
    });
    address
}

/// A server that answers any bytes with `garbage` and closes.
pub(crate) async fn start_garbage(garbage: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut some = [0; 1024];
            assert!(tcp.read(&mut some).await.is_ok());
            assert!(tcp.write_all(garbage.as_bytes()).await.is_ok());
        }
    });
    address
}

async fn answer(request: Request<Incoming>) -> Result<Answer, Infallible> {
    let path = request.uri().path();
    let answer = match path.strip_prefix("/api").unwrap_or(path) {
        "/never" => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            text(String::new())
        }
        "/ticks" => streaming(ticks(5, Duration::from_millis(100))),
        "/endless" => streaming(ticks(1_000_000, Duration::from_millis(50))),
        "/flood" => streaming(ticks(1_000_000, Duration::ZERO)),
        "/one-tick" => streaming(ticks(2, Duration::from_secs(3600))),
        "/piece" => text("x".repeat(20_000)),
        "/tick" => streaming(ticks(1, Duration::from_secs(1))),
        "/piece-and-no-more" => streaming(first_piece()),
        "/fields" => fields(),
        "/upload" => upload(request).await,
        "/early" => {
            tokio::spawn(request.into_body().collect());
            text(String::new())
        }
        "/early-and-deaf" => {
            tokio::spawn(unread::<()>(request));
            text(String::new())
        }
        "/deaf" => unread(request).await,
        "/echo" => streaming(request.into_body().map_err(|error| panic!("{error}"))),
        _ => text(seen(&request)),
    };
    Ok(answer)
}

/// Method, path with query, and the headers, one per line.
fn seen(request: &Request<Incoming>) -> String {
    let first = format!("{} {}\n", request.method(), request.uri());
    let headers = request.headers().iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
    headers.fold(first, |text, line| text + &line)
}

async fn upload(request: Request<Incoming>) -> Answer {
    match request.into_body().collect().await {
        Ok(body) => text(body.to_bytes().len().to_string()),
        Err(_) => {
            let mut broken = text("broken".to_owned());
            *broken.status_mut() = StatusCode::BAD_REQUEST;
            broken
        }
    }
}

/// Keeps the request, and reads nothing of it.
async fn unread<T>(_request: Request<Incoming>) -> T {
    std::future::pending().await
}

/// 20,000 bytes, and then nothing.
fn first_piece() -> impl Body<Data = Bytes, Error = Infallible> + Send + 'static {
    let piece = Ok(Frame::data(Bytes::from(vec![b'x'; 20_000])));
    StreamBody::new(stream::iter([piece]).chain(stream::pending()))
}

/// No body, and a head of 20,000 bytes.
fn fields() -> Answer {
    let mut answer = text(String::new());
    answer.headers_mut().insert("x-large", "x".repeat(20_000).parse().unwrap());
    answer
}

fn text(text: String) -> Answer {
    let mut answer = Response::new(Full::new(text.into()).boxed_unsync());
    answer.headers_mut().insert("x-backend", "yes".parse().unwrap());
    answer.headers_mut().insert("keep-alive", "timeout=5".parse().unwrap());
    answer
}

fn streaming(body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Answer {
    let mut answer = Response::new(body.boxed_unsync());
    answer.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    answer
}

/// `count` events; the first at once, the others `pause` apart.
fn ticks(count: u32, pause: Duration) -> impl Body<Data = Bytes, Error = Infallible> + Send + 'static {
    StreamBody::new(stream::unfold(0, move |index| async move {
        if index >= count {
            return None;
        }
        if index > 0 {
            tokio::time::sleep(pause).await;
        }
        let data = if pause.is_zero() { Bytes::from(vec![b'x'; 65_536]) } else { format!("data: {index}\n\n").into() };
        Some((Ok(Frame::data(data)), index + 1))
    }))
}
