//! Answers that the client does not read: each keeps its request's permit, so that the memory of requests bounds them
//! all.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use addon_signer_core::gateway::permits::MinRate;
use addon_signer_gateway::Limits;
use futures::future::join_all;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::backend;
use test_kit::gateway::{Connection, GatewayWorld, SOON, route};
use test_kit::wait_until;

/// How long nothing changes before nothing will.
const QUIET: Duration = Duration::from_millis(500);
const SMALL: u32 = 16 * 1024;

/// A connection that can stop to read.
struct Deaf {
    tls: TlsStream<TcpStream>,
    is_deaf: Arc<AtomicBool>,
}

impl AsyncRead for Deaf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if this.is_deaf.load(Ordering::Relaxed) { Poll::Pending } else { Pin::new(&mut this.tls).poll_read(cx, buf) }
    }
}

impl AsyncWrite for Deaf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().tls).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().tls).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().tls).poll_shutdown(cx)
    }
}

/// A connection of HTTP/2 with room for one byte of each answer, and its switch.
async fn connect(world: &GatewayWorld) -> (http2::SendRequest<Full<Bytes>>, Arc<AtomicBool>) {
    let mut config = world.client_config(Some(&world.agent()));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(SMALL).unwrap();
    let tcp = socket.connect(world.address).await.unwrap();
    let tls = TlsConnector::from(Arc::new(config)).connect(ServerName::IpAddress(world.address.ip().into()), tcp);
    let is_deaf = Arc::<AtomicBool>::default();
    let io = TokioIo::new(Deaf { tls: tls.await.unwrap(), is_deaf: Arc::clone(&is_deaf) });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.initial_stream_window_size(1).handshake(io).await.unwrap();
    tokio::spawn(connection);
    (sender, is_deaf)
}

async fn start(limits: Limits) -> GatewayWorld {
    let backend = format!("http://{}", backend::start().await);
    GatewayWorld::start_with(vec![route("/", &backend)], limits).await
}

fn request(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("https://gateway.example/addons/telemetry/{path}")).body(Full::default()).unwrap()
}

/// Whether a further request of the addon gets a permit.
async fn has_permit(another: &mut Connection) -> bool {
    match another.get("/v1/whoami").await.status {
        StatusCode::OK => true,
        StatusCode::TOO_MANY_REQUESTS => false,
        other => panic!("{other}"),
    }
}

/// One answer says its length, the other one does not.
#[tokio::test]
async fn an_answer_keeps_its_permit_until_its_last_piece_is_sent() {
    let world = start(Limits { max_identity_requests: 2, ..Limits::default() }).await;
    let mut another = world.connect(&world.agent()).await;
    let (mut h2, _) = connect(&world).await;
    let unread = join_all(["piece", "tick"].map(|path| h2.send_request(request(path)))).await;
    tokio::time::sleep(QUIET).await;
    assert!(!has_permit(&mut another).await, "the gateway has both answers in memory");
    assert!(unread.iter().all(|answer| answer.as_ref().unwrap().status() == StatusCode::OK));
    drop(unread);
    let free = async || has_permit(&mut another).await.then_some(());
    wait_until(SOON, "the permits to be free", free).await;
}

#[tokio::test]
async fn a_head_keeps_its_permit_until_it_is_sent() {
    let world = start(Limits { max_identity_requests: 4, client_socket: SMALL, ..Limits::default() }).await;
    let mut another = world.connect(&world.agent()).await;
    let (mut h2, is_deaf) = connect(&world).await;
    assert_eq!(h2.send_request(request("seen")).await.unwrap().status(), StatusCode::OK);
    is_deaf.store(true, Ordering::Relaxed);
    let mut asked = Vec::new();
    // The first heads fill the sockets.
    let all_taken = async || {
        asked.push(tokio::spawn(h2.send_request(request("fields"))));
        (!has_permit(&mut another).await).then_some(())
    };
    wait_until(SOON, "all permits to be taken", all_taken).await;
    tokio::time::sleep(QUIET).await;
    assert!(!has_permit(&mut another).await, "the gateway has the heads of {} requests in memory", asked.len());
}

#[tokio::test]
async fn a_client_that_leaves_the_end_of_an_answer_is_closed() {
    for path in ["piece", "tick", "piece-and-no-more"] {
        let min_rate = MinRate { bytes_per_second: 256, grace: QUIET };
        let world = start(Limits { min_rate, ..Limits::default() }).await;
        let (mut h2, _) = connect(&world).await;
        let _unread = h2.send_request(request(path)).await.unwrap();
        let ended = async || (world.stats.idle_ended.get() == 1).then_some(());
        wait_until(SOON, "the connection to be given up", ended).await;
    }
}
