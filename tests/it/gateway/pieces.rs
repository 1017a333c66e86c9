//! Pieces of bodies that no backend takes: each keeps the whole buffer that the gateway read it into.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use addon_signer_core::gateway::route::{Backend, Protocol, Route, RouteLimits};
use futures::future::join_all;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::frames::{self, field, frame, head_of};
use super::http_backend::{HttpBackend, endless, mk_tls, route_to, text};
use super::memory::start_unreading;
use test_kit::gateway::{GatewayWorld, LIMITS, SOON, mk_backend};
use test_kit::issue::Ca;
use test_kit::wait::{TIMEOUT, wait_for};
use test_kit::wait_until;

/// More than the gateway keeps, and than sockets and TLS hold beside it.
const MANY: usize = 2_000;
const WINDOW_UPDATE: u8 = 8;
/// The stream whose backend reads nothing.
const STALLED: u32 = 3;
/// The one whose backend reads all.
const TAKEN: u32 = 1;

/// What the gateway has said.
#[derive(Default)]
struct Said {
    /// Whether its windows are known.
    is_set: bool,
    /// How many bytes each stream may have sent; stream 0 is the connection.
    windows: BTreeMap<u32, u64>,
    /// The streams with a response.
    begun: Vec<u32>,
    ended: Vec<u32>,
}

/// A client that sends frame by frame, and respects the windows.
struct Client {
    write: WriteHalf<TlsStream<TcpStream>>,
    said: watch::Receiver<Said>,
    sent: BTreeMap<u32, u64>,
}

impl Client {
    /// A connection with an upload that its backend reads.
    async fn start(world: &GatewayWorld) -> Self {
        let mut config = world.client_config(Some(&world.agent()));
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (read, mut write) = tokio::io::split(world.tls_shared(Arc::new(config)).await.unwrap());
        let room = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()); // for all answers
        let begin = [frames::PREFACE, &frame(frames::SETTINGS, 0, 0, &[]), &room];
        write.write_all(&begin.concat()).await.unwrap();
        let (saying, said) = watch::channel(Said::default());
        tokio::spawn(listen(read, saying));
        let mut client = Self { write, said, sent: BTreeMap::new() };
        client.wait(|said| said.is_set).await;
        client.send(&frame(frames::SETTINGS, 1, 0, &[])).await.unwrap();
        client.send(&post(TAKEN, "/taken", 0)).await.unwrap();
        client
    }

    /// Begins the upload that its backend does not read.
    async fn stall(&mut self) {
        self.send(&post(STALLED, "/stalled", 0)).await.unwrap();
    }

    async fn send(&mut self, frames: &[u8]) -> std::io::Result<()> {
        self.write.write_all(frames).await?;
        self.write.flush().await
    }

    /// Sends a piece once there is room for it; an error means that the connection has ended.
    async fn piece(&mut self, stream: u32, bytes: usize) -> std::io::Result<()> {
        let length = bytes as u64;
        let sent = |sent: &BTreeMap<u32, u64>, stream| sent.get(&stream).copied().unwrap_or_default() + length;
        let (of_all, of_stream) = (sent(&self.sent, 0), sent(&self.sent, stream));
        let has_room = |said: &Said| {
            let window = |stream| said.windows.get(&stream).copied().unwrap_or_default();
            of_all <= 65_535 + window(0) && of_stream <= 131_072 + window(stream)
        };
        let waiting = timeout(SOON * 6, self.said.wait_for(has_room)).await.expect("room in the windows");
        waiting.map_err(std::io::Error::other)?;
        self.sent.extend([(0, of_all), (stream, of_stream)]);
        self.send(&frame(frames::DATA, 0, stream, &vec![b'x'; bytes])).await
    }

    /// Sends these of many requests that are refused.
    async fn refused(&mut self, which: Range<u32>) {
        let end = which.end as usize;
        for n in which {
            let stream = 2 * n + 5;
            self.wait(|said| said.ended.len() + 32 > n as usize).await;
            self.send(&post(stream, "/no-route", 0)).await.unwrap();
            self.piece(stream, 4_000).await.unwrap();
            self.piece(stream, 4_000).await.unwrap();
            self.send(&frame(frames::DATA, frames::END_STREAM, stream, &[])).await.unwrap();
        }
        self.wait(|said| said.ended.len() >= end).await;
    }

    async fn wait(&mut self, what: impl FnMut(&Said) -> bool) {
        wait_for(TIMEOUT, "what the gateway is to say", self.said.wait_for(what)).await.unwrap();
    }
}

fn post(stream: u32, path: &str, filling: usize) -> Vec<u8> {
    let fields = [(":method", "POST"), (":scheme", "https"), (":authority", "gateway.example"), (":path", path)];
    let fields = fields.iter().flat_map(|(name, value)| field(name, value));
    head_of(stream, &fields.chain(field("x-filling", &"x".repeat(filling))).collect::<Vec<_>>())
}

/// Reads what the gateway says until it ends the connection.
async fn listen(mut read: ReadHalf<TlsStream<TcpStream>>, saying: watch::Sender<Said>) {
    let mut head = [0; 9];
    while read.read_exact(&mut head).await.is_ok() {
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; usize::from_be_bytes([0, 0, 0, 0, 0, high, middle, low])];
        if read.read_exact(&mut payload).await.is_err() {
            break;
        }
        let stream = u32::from_be_bytes(stream);
        saying.send_modify(|said| match kind {
            frames::SETTINGS => said.is_set = true,
            WINDOW_UPDATE => {
                let increment = u32::from_be_bytes(payload.try_into().unwrap());
                *said.windows.entry(stream).or_default() += u64::from(increment);
            }
            frames::DATA | frames::HEADERS => {
                if kind == frames::HEADERS {
                    said.begun.push(stream);
                }
                if flags & frames::END_STREAM != 0 {
                    said.ended.push(stream);
                }
            }
            _ => {}
        });
    }
}

/// A gateway with a backend that reads nothing, and one that reads all.
async fn start() -> GatewayWorld {
    let taking = HttpBackend::start(async |request: hyper::Request<hyper::body::Incoming>| {
        let mut body = request.into_body();
        while let Some(Ok(_)) = body.frame().await {}
        text("taken")
    });
    let world = GatewayWorld::start(Vec::new()).await;
    let early = HttpBackend::start(async |_: hyper::Request<hyper::body::Incoming>| endless());
    let limits = RouteLimits { connect: SOON * 12, first_byte: SOON * 12, max_body: u64::MAX, ..LIMITS };
    // It never answers the handshake, so nothing of an upload is taken.
    let ca = Ca::new("backends", world.clock.now());
    let tls = Some(mk_tls(&ca, "backend.example"));
    let stalled = route_to(Backend { tls, ..mk_backend(start_unreading(), Protocol::Http) });
    let stalled = Route { path: "/stalled".parse().unwrap(), ..stalled };
    let taken = Route { path: "/taken".parse().unwrap(), ..taking.await.route(Protocol::Http) };
    let early = Route { path: "/early".parse().unwrap(), ..early.await.route(Protocol::Http) };
    world.set_routes([stalled, taken, early].map(|route| Route { limits, ..route }).into());
    world
}

/// What comes between two pieces, so that each is in a buffer of its own.
#[derive(Debug, Clone, Copy)]
enum Filling {
    /// Frames of a type that does not exist, which a receiver ignores (RFC 9113 section 5.5).
    Ignored,
    /// The same, so that h2 makes the buffer as large as it can.
    Grown,
    /// Pieces of an upload that its backend takes.
    Taken,
    /// Requests that are refused.
    Refused,
}

impl Client {
    async fn fill(&mut self, filling: Filling, n: usize) -> std::io::Result<()> {
        match filling {
            Filling::Ignored => self.send(&frame(0xfa, 0, 0, &[0; 8_200])).await,
            Filling::Grown => {
                let frames = [8_180, 16_384, 8_181, 16_384].map(|length| frame(0xfa, 0, 0, &vec![0; length]));
                self.send(&frames.concat()).await
            }
            Filling::Taken => self.piece(TAKEN, 8_200).await,
            Filling::Refused => {
                for stream in [4 * n + 5, 4 * n + 7].map(|stream| u32::try_from(stream).unwrap()) {
                    let head = post(stream, "/no-route", 3_900);
                    self.send(&[head, frame(frames::DATA, frames::END_STREAM, stream, &[])].concat()).await?;
                }
                Ok(())
            }
        }
    }
}

#[tokio::test]
async fn a_client_with_a_piece_in_each_buffer_loses_its_connection() {
    let world = start().await;
    let mut other = world.connect(&world.agent()).await;
    let fillings = [Filling::Ignored, Filling::Grown, Filling::Taken, Filling::Refused];
    for (ended, filling) in (1..).zip(fillings) {
        let mut client = Client::start(&world).await;
        client.stall().await;
        let mut pieces = 0;
        for n in 0..MANY {
            if client.piece(STALLED, 1).await.is_err() || client.fill(filling, n).await.is_err() {
                break;
            }
            pieces = n;
        }
        // Sockets hold some that the gateway never reads. A buffer may count for three.
        assert!((40..MANY - 1).contains(&pieces), "{filling:?}: {pieces} pieces were taken");
        assert_eq!(world.stats.unread_bodies_ended.get(), ended, "{filling:?}");
    }
    assert_eq!(other.get("/v1/whoami").await.status, 200);
}

#[tokio::test]
async fn stalled_uploads_leave_those_beside_them_alone() {
    let world = start().await;
    for size in [100, 1_000, 4_000, 16_000] {
        let mut client = Client::start(&world).await;
        client.stall().await;
        // As much as the stream's window takes; h2 refuses more than 514 small pieces.
        for _ in 0..(120_000 / size).min(400) {
            client.piece(STALLED, size).await.unwrap();
        }
        for _ in 0..500 {
            client.piece(TAKEN, 16_000).await.unwrap();
        }
        client.send(&frame(frames::DATA, frames::END_STREAM, TAKEN, &[])).await.unwrap();
        client.wait(|said| said.ended.contains(&TAKEN)).await;
        assert_eq!(world.stats.unread_bodies_ended.get(), 0, "pieces of {size} bytes");
    }
}

/// hyper does not poll the body of a request while it cannot send the response, whether or not the body has a piece.
#[tokio::test]
async fn pieces_count_while_the_client_does_not_read_the_response() {
    let world = start().await;
    let mut client = Client::start(&world).await;
    client.send(&frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await.unwrap(); // no window for responses
    client.send(&post(STALLED, "/early", 0)).await.unwrap();
    client.wait(|said| said.begun.contains(&STALLED)).await;
    // Each hundred alone is allowed.
    for n in 0..200 {
        if n == 100 {
            assert_eq!(world.stats.unread_bodies_ended.get(), 0);
            sweep(&world).await;
        }
        if client.piece(STALLED, 1).await.is_err() || client.fill(Filling::Ignored, n).await.is_err() {
            break;
        }
    }
    let ended = async || (world.stats.unread_bodies_ended.get() == 1).then_some(());
    wait_until(SOON, "the connection to end", ended).await;
}

/// Waits until the connection, which has a request, was swept at least twice: each time the certificate is in use.
async fn sweep(world: &GatewayWorld) {
    world.usage.drain(world.clock.now());
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(120));
        let is_used = async || (!world.usage.drain(world.clock.now()).is_empty()).then_some(());
        wait_until(SOON, "a sweep", is_used).await;
    }
}

/// The gateway drops their bodies, of which hyper does not tell.
#[tokio::test]
async fn bodies_of_refused_requests_are_forgotten() {
    let world = start().await;
    let mut clients = join_all((0..16).map(|_| Client::start(&world))).await;
    for round in 0..8 {
        // The buffers of one connection become those of others, so none learns from its own that they are free.
        join_all(clients.iter_mut().map(|client| client.refused(50 * round..50 * (round + 1)))).await;
        assert_eq!(world.stats.unread_bodies_ended.get(), 0, "{round}");
        sweep_all(&world, clients.len()).await;
    }
}

/// Waits until each of so many connections, which have a request each, was swept at least twice since this began.
async fn sweep_all(world: &GatewayWorld, connections: usize) {
    // The first use of a certificate may be from before.
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(120));
        let mut swept = BTreeSet::new();
        let are_used = async || {
            swept.extend(world.usage.drain(world.clock.now()).into_iter().map(|used| used.serial.to_string()));
            (swept.len() == connections).then_some(())
        };
        wait_until(SOON, "a sweep of each connection", are_used).await;
    }
}
