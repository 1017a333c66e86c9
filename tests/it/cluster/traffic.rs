//! Agents that call through the gateway all the time, as careful clients do: they connect again when they are told to,
//! and repeat a request only where they know that the gateway has not begun it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{TIMEOUT, gateway};
use crate::whole::client::ClientPair;

/// Pause before a client connects again.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a stream looks whether the gateway has told it to connect again.
const POLL: Duration = Duration::from_millis(100);
/// How long a request may take before it counts as lost.
const LONGEST: Duration = Duration::from_secs(15);

type Content = Full<Bytes>;
type Connection = TokioIo<TlsStream<TcpStream>>;
type Fault = Box<dyn Error + Send + Sync>;

/// What became of the requests.
#[derive(Default)]
pub(super) struct Counts {
    passed: AtomicU64,
    /// Requests that the gateway had not begun.
    repeated: AtomicU64,
    /// Streams that ended after the gateway had told the client to connect again.
    warned: AtomicU64,
    /// Requests that a client cannot repeat without the risk of doing it twice, streams that ended without a word, and
    /// connections that nobody took: a client without a gateway waits, even if it loses no request.
    lost: Mutex<Vec<String>>,
    /// Calls and streams of gateways that were killed.
    cut: AtomicU64,
    /// Connections that such a gateway did not take.
    not_taken: AtomicU64,
    kills: AtomicBool,
}

impl Counts {
    fn lose(&self, what: String) {
        self.note(&self.cut, what);
    }

    fn is_not_taken(&self, fault: &Fault) {
        self.note(&self.not_taken, format!("a connection was not taken: {fault}"));
    }

    fn note(&self, killed: &AtomicU64, what: String) {
        if self.kills.load(Ordering::Relaxed) {
            killed.fetch_add(1, Ordering::Relaxed);
        } else {
            self.lost.lock().push(what);
        }
    }
}

/// Requests that go on until they are stopped.
pub(super) struct Traffic {
    counts: Arc<Counts>,
    stop: CancellationToken,
    clients: JoinSet<()>,
}

/// Who calls.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) addon: &'static str,
    /// Whether it may open streams.
    pub(super) streams: bool,
    /// What its agent has stored at this moment; `None` while it writes.
    pub(super) pair: Arc<dyn Fn() -> Option<ClientPair> + Send + Sync>,
}

/// What a client does.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Http1,
    Http2,
    Stream,
}

impl Traffic {
    /// Starts a client of each kind for each of these agents: pushes by HTTP/1.1 and HTTP/2, with this pause after
    /// each, and gRPC streams.
    pub(super) fn start(callers: impl IntoIterator<Item = Caller>, pause: Duration) -> Self {
        let (counts, stop) = (Arc::<Counts>::default(), CancellationToken::new());
        let mut clients = JoinSet::new();
        for caller in callers {
            let kinds: &[Kind] =
                if caller.streams { &[Kind::Http1, Kind::Http2, Kind::Stream] } else { &[Kind::Http1, Kind::Http2] };
            for &kind in kinds {
                let (caller, counts, stop) = (caller.clone(), counts.clone(), stop.clone());
                clients.spawn(TrafficClient { caller, pause, counts, stop }.run(kind));
            }
        }
        Self { counts, stop, clients }
    }

    /// Whether somebody kills a gateway now: what is under way there is cut.
    pub(super) fn someone_kills(&self, kills: bool) {
        self.counts.kills.store(kills, Ordering::Relaxed);
    }

    /// Waits until so many further requests have passed.
    pub(super) async fn wait_passed(&self, more: u64) {
        let wanted = self.counts.passed.load(Ordering::Relaxed) + more;
        test_kit::wait_until(TIMEOUT, "calls to pass", async || {
            (self.counts.passed.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    /// Ends the requests; fails if one was lost, or if more were cut than each client had under way at one time.
    pub(super) async fn stop(mut self) -> String {
        let clients = self.clients.len() as u64;
        self.stop.cancel();
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        let Counts { passed, repeated, warned, lost, cut, not_taken, .. } = &*self.counts;
        let lost = lost.lock().clone();
        assert!(lost.is_empty(), "{} lost: {}", lost.len(), lost.join("\n"));
        let [passed, repeated, warned, cut, not_taken] =
            [passed, repeated, warned, cut, not_taken].map(|count| count.load(Ordering::Relaxed));
        assert!(cut <= clients, "{cut} were cut, of {clients} clients");
        format!(
            "{passed} calls passed, {repeated} were repeated, 0 lost; {warned} streams ended, each after a GOAWAY; of \
             gateways that were killed {cut} calls and streams were cut, and {not_taken} connections not taken"
        )
    }
}

struct TrafficClient {
    caller: Caller,
    pause: Duration,
    counts: Arc<Counts>,
    stop: CancellationToken,
}

impl TrafficClient {
    async fn run(self, kind: Kind) {
        while !self.stop.is_cancelled() {
            let Some(pair) = (self.caller.pair)().filter(ClientPair::belongs_together) else {
                sleep(PAUSE).await; // its files are written one after the other
                continue;
            };
            let protocol: &[u8] = if matches!(kind, Kind::Http1) { b"http/1.1" } else { b"h2" };
            let io = match self.connect(&pair, protocol).await {
                Ok(io) => io,
                Err(fault) => {
                    self.counts.is_not_taken(&fault);
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let calls = match kind {
                Kind::Http1 => self.pushes_by_http1(io).await,
                Kind::Http2 => self.pushes_by_http2(io).await,
                Kind::Stream => self.stream(io).await,
            };
            // The gateway has begun no request.
            if calls.is_err() {
                self.counts.repeated.fetch_add(1, Ordering::Relaxed);
                sleep(PAUSE).await;
            }
        }
    }

    fn push(&self) -> Request<Content> {
        let path = format!("/addons/{}/api/v1/receive", self.caller.addon);
        request(&path).header("host", gateway().to_string()).body(content(b"42")).unwrap()
    }

    async fn connect(&self, pair: &ClientPair, protocol: &[u8]) -> Result<Connection, Fault> {
        let connecting = async {
            let tcp = TcpStream::connect(gateway()).await?;
            let mut config = pair.config();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config)).connect(ServerName::from(gateway().ip()), tcp).await
        };
        Ok(TokioIo::new(timeout(LONGEST, connecting).await??))
    }

    async fn pushes_by_http1(&self, io: Connection) -> Result<(), Fault> {
        let (mut sender, connection) = http1::handshake(io).await?;
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
        while !self.stop.is_cancelled() && sender.ready().await.is_ok() {
            let answer = timeout(LONGEST, sender.try_send_request(self.push())).await;
            let answer = answer.map(|answer| answer.map_err(|error| (error.message().is_some(), error.into_error())));
            if !self.note(answer).await {
                return Ok(());
            }
            sleep(self.pause).await;
        }
        Ok(())
    }

    async fn pushes_by_http2(&self, io: Connection) -> Result<(), Fault> {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
        while !self.stop.is_cancelled() && sender.ready().await.is_ok() {
            let answer = timeout(LONGEST, sender.try_send_request(self.push())).await;
            let answer = answer.map(|answer| {
                answer.map_err(|error| {
                    let is_unsent = error.message().is_some();
                    let error = error.into_error();
                    (is_unsent || is_refused(&error), error)
                })
            });
            if !self.note(answer).await {
                return Ok(());
            }
            sleep(self.pause).await;
        }
        Ok(())
    }

    /// Notes what became of a request; returns whether the connection may go on. An error says whether the gateway has
    /// not begun the request.
    async fn note(
        &self,
        answer: Result<Result<Response<hyper::body::Incoming>, (bool, hyper::Error)>, tokio::time::error::Elapsed>,
    ) -> bool {
        let fault = match answer {
            Ok(Ok(answer)) => {
                let status = answer.status();
                match answer.into_body().collect().await {
                    Ok(_) if status == StatusCode::NO_CONTENT => {
                        self.counts.passed.fetch_add(1, Ordering::Relaxed);
                        return true;
                    }
                    Ok(body) => format!("{status}: {}", String::from_utf8_lossy(&body.to_bytes())),
                    Err(error) => format!("{status}, and then {error:?}"),
                }
            }
            Ok(Err((true, _))) => {
                self.counts.repeated.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Ok(Err((false, error))) => format!("{error:?}"),
            Err(_) => "no answer".to_owned(),
        };
        self.counts.lose(fault);
        false
    }

    /// A stream that lasts until somebody ends it: gRPC's watch of the backend's health.
    async fn stream(&self, io: Connection) -> Result<(), Fault> {
        let (sender, connection) = h2::client::handshake(io.into_inner()).await?;
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = request("/grpc.health.v1.Health/Watch").header("te", "trailers");
        let watch = request.header("content-type", "application/grpc").body(()).unwrap();
        let mut sender = sender.ready().await?;
        let (answer, mut sent) = sender.send_request(watch, false)?;
        sent.send_data(Bytes::from_static(&[0; 5]), true)?;
        let answer = match answer.await {
            Ok(answer) => answer,
            Err(error) if error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM) => {
                return Err(error.into()); // not begun
            }
            Err(error) => {
                self.counts.lose(format!("a stream got no answer: {error:?}"));
                return Ok(());
            }
        };
        if answer.status() != StatusCode::OK {
            self.counts.lose(format!("a stream got {}", answer.status()));
            return Ok(());
        }
        let mut body = answer.into_body();
        let (mut polls, mut is_notified) = (interval(POLL), false);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                // After a GOAWAY there are no further requests on the connection.
                _ = polls.tick() => is_notified |= sender.clone().ready().await.is_err_and(|error| error.is_go_away()),
                data = body.data() => match data {
                    Some(Ok(data)) => body.flow_control().release_capacity(data.len())?,
                    _ if is_notified => {
                        self.counts.warned.fetch_add(1, Ordering::Relaxed);
                        return Ok(());
                    }
                    ended => {
                        self.counts.lose(format!("a stream ended without a word: {ended:?}"));
                        return Ok(());
                    }
                },
            }
        }
    }
}

/// Whether the gateway says that it has not begun this request (RFC 9113, section 8.7).
fn is_refused(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.reason() == Some(h2::Reason::REFUSED_STREAM) || cause.is_go_away())
}

fn content(bytes: &'static [u8]) -> Content {
    Full::new(Bytes::from_static(bytes))
}

fn request(path: &str) -> hyper::http::request::Builder {
    Request::builder().method(Method::POST).uri(format!("https://{}{path}", gateway()))
}
