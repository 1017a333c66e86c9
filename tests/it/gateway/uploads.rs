//! Uploads end with their answers and with their clients, whatever the backend reads: each has the permit of its
//! request.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use addon_signer_core::gateway::route::{Route, RouteLimits};
use addon_signer_gateway::Limits;
use futures::SinkExt;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Bytes, Frame};
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::backend;
use test_kit::gateway::{Connection, GatewayWorld, LIMITS, SOON, collect, route};
use test_kit::wait_until;

/// More than the sockets and the gateway take.
const MUCH: usize = 4 << 20;
/// The size of small sockets and, where a test counts pieces, of those.
const SMALL: usize = 16 << 10;

type Piece = Result<Frame<Bytes>, Infallible>;

/// A gateway whose addons have one request at a time.
async fn start() -> GatewayWorld {
    start_with(&backend::start().await, Limits::default()).await
}

async fn start_with(backend: &SocketAddr, limits: Limits) -> GatewayWorld {
    let route =
        Route { limits: RouteLimits { max_body: 64 << 20, ..LIMITS }, ..route("/", &format!("http://{backend}")) };
    GatewayWorld::start_with(vec![route], Limits { max_identity_requests: 1, ..limits }).await
}

/// A request whose body goes on until the sender is dropped.
fn upload(path: &str) -> (UnboundedSender<Piece>, Request<StreamBody<UnboundedReceiver<Piece>>>) {
    let (pieces, rest) = mpsc::unbounded();
    (pieces, post(path, rest))
}

fn post<S>(path: &str, pieces: S) -> Request<StreamBody<S>> {
    let uri = format!("https://gateway.example/addons/telemetry/{path}");
    Request::post(uri).header("host", "gateway.example").body(StreamBody::new(pieces)).unwrap()
}

fn piece(length: usize) -> Piece {
    Ok(Frame::data(vec![b'x'; length].into()))
}

async fn permit_comes_back(another: &mut Connection, path: &str) {
    let free = async || (another.get("/v1/whoami").await.status == StatusCode::OK).then_some(());
    wait_until(SOON, &format!("the request of {path} to have ended"), free).await;
}

#[tokio::test]
async fn an_upload_ends_with_its_answer_whatever_its_backend_reads() {
    let world = start().await;
    let mut another = world.connect(&world.agent()).await;
    let mut h2 = world.connect_h2_for(&world.agent()).await;
    for (path, length) in [("early", 1), ("early", MUCH), ("early-and-deaf", 1), ("early-and-deaf", MUCH)] {
        let (uploading, request) = upload(path);
        uploading.unbounded_send(piece(length)).unwrap();
        let answer = collect(h2.send_request(request).await.unwrap()).await;
        assert_eq!(answer.status, StatusCode::OK, "{path} {length}");
        permit_comes_back(&mut another, path).await;
    }
    assert!(!h2.is_closed(), "other requests of the connection go on");
}

/// In HTTP/2, where the gateway reads on. In HTTP/1.1 nobody sees a client's end behind bytes that nobody reads, so the
/// route's limits bound that.
#[tokio::test]
async fn an_upload_ends_with_its_client() {
    let small = u32::try_from(SMALL).unwrap();
    let limits = Limits { backend_socket: small / 4, call_buffer: 4 * SMALL, ..Limits::default() };
    // A request waits for its backend when this is taken: more than the client may send ahead, and the sockets take.
    let pieces = usize::try_from(limits.stream_window).unwrap() / SMALL + 3;
    let backend = backend::start_small(small / 4).await;
    for path in ["deaf", "never", "endless"] {
        let world = start_with(&backend, limits.clone()).await;
        let mut another = world.connect(&world.agent()).await;
        let mut config = world.client_config(Some(&world.agent()));
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (mut uploading, rest) = mpsc::channel(0);
        let client = Runtime::new().unwrap();
        let calling = client.spawn(call(world.address, config, post(path, rest)));
        let filled = async {
            for _ in 0..pieces {
                uploading.send(piece(SMALL)).await.unwrap();
            }
        };
        timeout(SOON, filled).await.unwrap();
        assert!(!calling.is_finished());
        client.shutdown_background();
        permit_comes_back(&mut another, path).await;
    }
}

/// Sends a request, and waits for nothing.
async fn call<B>(address: SocketAddr, config: ClientConfig, request: Request<B>)
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let tcp = TcpStream::connect(address).await.unwrap();
    let tls = TlsConnector::from(Arc::new(config)).connect(ServerName::IpAddress(address.ip().into()), tcp);
    let io = TokioIo::new(tls.await.unwrap());
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let _answer = client.send_request(request).await.unwrap();
    pending::<()>().await;
}

#[tokio::test]
async fn an_upload_and_its_answer_go_on_side_by_side() {
    let world = start().await;
    let mut h2 = world.connect_h2_for(&world.agent()).await;
    let (uploading, request) = upload("echo");
    let sending = h2.send_request(request);
    uploading.unbounded_send(piece(1)).unwrap();
    let mut answer = sending.await.unwrap().into_body();
    for length in [1, 2, 3] {
        let echoed = answer.frame().await.unwrap().unwrap();
        assert_eq!(echoed.into_data().unwrap().len(), length);
        uploading.unbounded_send(piece(length + 1)).unwrap();
    }
    drop(uploading);
    let rest = answer.collect().await.unwrap().to_bytes();
    assert_eq!(rest.len(), 4);
    permit_comes_back(&mut world.connect(&world.agent()).await, "echo").await;
}
