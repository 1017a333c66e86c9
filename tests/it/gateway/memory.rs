//! How many bytes the gateway takes from a client that sends to a backend that does not read.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use addon_signer_core::gateway::route::{Route, RouteLimits};
use addon_signer_gateway::Limits;
use futures::stream;
use http_body_util::StreamBody;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame};
use tokio::net::TcpSocket;

use test_kit::gateway::{ANY, GatewayWorld, LIMITS, SOON, route};
use test_kit::wait_until;

const PIECE: usize = 4 * 1024;
/// The largest frame of HTTP/2 that the gateway reads at once.
const FRAME: u64 = 16 * 1024;
/// What Linux may add to a socket buffer that is almost full.
const SEGMENT: u64 = 64 * 1024;
/// The backend's own socket buffer.
const UNREAD: u32 = 16 * 1024;
/// How long nothing more is taken before all is taken.
const QUIET: Duration = Duration::from_millis(500);

/// A backend that accepts connections and reads nothing.
pub(super) fn start_unreading() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(UNREAD).unwrap();
    socket.bind(ANY).unwrap();
    let listener = socket.listen(1024).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut connections = Vec::new();
        loop {
            connections.push(listener.accept().await.unwrap());
        }
    });
    address
}

/// A body without an end; counts the bytes for which the gateway has given room.
fn endless(taken: &Arc<AtomicU64>) -> impl Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static {
    let taken = Arc::clone(taken);
    StreamBody::new(stream::iter(std::iter::repeat_with(move || {
        taken.fetch_add(PIECE as u64, Ordering::Relaxed);
        Ok(Frame::data(Bytes::from_static(&[b'x'; PIECE])))
    })))
}

/// How many bytes the gateway takes from so many uploads on one connection.
async fn taken_of(uploads: u32) -> u64 {
    let limits = RouteLimits { first_byte: SOON * 12, max_body: u64::MAX, ..LIMITS };
    let lenient = Route { limits, ..route("/", &format!("http://{}", start_unreading())) };
    let world = GatewayWorld::start(vec![lenient]).await;
    let taken = Arc::<AtomicU64>::default();
    let mut h2 = world.connect_h2_for(&world.agent()).await;
    let sending = (0..uploads).map(|_| {
        let request = Request::post("https://gateway.example/addons/telemetry/x").body(endless(&taken)).unwrap();
        tokio::spawn(h2.send_request(request))
    });
    let sending: Vec<_> = sending.collect();
    let all_asked = async || (world.stats.requests.get() == i64::from(uploads)).then_some(());
    wait_until(SOON, "all uploads to begin", all_asked).await;
    let mut before = 0;
    let settled = async || {
        let now = taken.load(Ordering::Relaxed);
        tokio::time::sleep(QUIET).await;
        let is_settled = now > 0 && now == std::mem::replace(&mut before, now);
        is_settled.then_some(now)
    };
    let taken = wait_until(SOON * 6, "nothing more to be taken", settled).await;
    assert!(sending.iter().all(|upload| !upload.is_finished()), "no upload was answered");
    taken
}

/// What a request holds on its way to a backend that does not read: in the gateway, in its socket, in the backend's.
fn most_per_request(limits: &Limits) -> u64 {
    let gateway = limits.call_buffer as u64 + FRAME;
    let sockets = 2 * u64::from(limits.backend_socket) + 2 * u64::from(UNREAD) + SEGMENT;
    gateway + sockets + PIECE as u64 // the piece that the client has in its hand
}

#[tokio::test]
async fn an_upload_that_nobody_reads_is_taken_up_to_its_window() {
    let limits = Limits::default();
    let taken = taken_of(1).await;
    let most = u64::from(limits.stream_window) + most_per_request(&limits);
    assert!(taken <= most, "{taken} bytes were taken, and {most} are allowed");
}

#[tokio::test]
async fn unread_uploads_share_the_window_of_their_connection() {
    let limits = Limits::default();
    let taken = taken_of(limits.max_streams).await;
    let most = u64::from(limits.connection_window) + u64::from(limits.max_streams) * most_per_request(&limits);
    assert!(taken <= most, "{taken} bytes were taken, and {most} are allowed");
    println!("{taken} bytes of {} uploads, {most} allowed", limits.max_streams);
}
