//! The accept loop. Strangers and clients have separate permits: a connection holds one of many permits until its
//! client has sent the beginning of TLS, takes one of the few permits for handshakes until the client has presented a
//! certificate, and a session's permit afterwards.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::FIRST;
use super::no_handshake::NoHandshake;
use super::unverified::shake;
use addon_signer_core::gateway::handshakes::{Handshakes, PeerNetwork, Permit};
use addon_signer_core::identity::ClusterName;
use addon_signer_platform::listen::{self, BACKLOG};

/// Pause after a failed accept, for instance when file descriptors have run out. Retrying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often the log reports that connections cannot be accepted.
const ACCEPT_WARNING: Duration = Duration::from_secs(60);

/// How many connections may wait for their clients' first bytes, for each handshake permit. Each costs a socket with 2
/// KiB in it.
pub const WAITING: usize = 8;

/// How many handshake permits there are for each permit of a connection that only gets its refusal, which lasts for 0.6
/// s at most.
const REFUSALS: usize = 8;

/// How long a handshake is guaranteed its permit. An honest one needs a few round trips.
const GRACE: Duration = Duration::from_secs(1);

/// How long a refusal is guaranteed its permit. A client that sends its request at once has the response by then.
const REFUSAL: Duration = Duration::from_millis(50);

/// How long a client whose handshake has failed has to take the alert, and how many bytes of it are read meanwhile.
const LINGER: Duration = Duration::from_millis(300);
const UNWANTED: u64 = 65_536;

/// How long a peer may be silent before it is probed, and how often it is probed then.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// How many of these probes go unanswered before the connection ends; on Linux [`VANISHED`] decides.
const PROBES: u32 = 4;
/// How long a peer may acknowledge nothing. Longer than the timeout for a client that reads no data, which also ends
/// connections, and reports why.
#[cfg(target_os = "linux")]
const VANISHED: Duration = Duration::from_secs(35);

/// Added to the time that a session has to end after the stop: it may begin [`FIRST`] later.
pub const DRAIN_MARGIN: Duration = Duration::from_secs(FIRST.as_secs() + 1);

/// How many connections a listener has, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Permits {
    /// Largest number of handshakes at a time.
    pub handshakes: usize,
    /// Longest time of a handshake.
    pub handshake_timeout: Duration,
    /// Largest number of sessions at a time.
    pub sessions: usize,
    /// How long sessions may continue after the stop.
    pub drain: Duration,
}

/// What a TLS listener does with its clients.
pub trait ConnectionHandler: Send + Sync + 'static {
    /// The TLS configuration in effect. While there is none, no client gets a handshake.
    fn tls(&self) -> Option<Arc<ServerConfig>>;

    /// Notes that a client connected.
    fn on_accept(&self) {}

    /// Notes that a connection gets no session.
    fn refused(&self, remote: SocketAddr, cause: &NoHandshake);

    /// Serves a session until it ends; after `stop` for no longer than [`Permits::drain`].
    fn serve(self: Arc<Self>, entered: Entered, stop: CancellationToken) -> impl Future<Output = ()> + Send;
}

/// A connection whose handshake is done.
pub struct Entered {
    /// The connection.
    pub tls: TlsStream<TcpStream>,
    /// The client's address.
    pub remote: SocketAddr,
    /// The configuration that the handshake was made with.
    pub config: Arc<ServerConfig>,
    /// Its permit among the sessions.
    pub permit: SessionPermit,
}

/// The permit of a session. A connection whose client is refused trades it at once for one of the few permits of
/// connections that only get their refusal, which newer ones may take. So refused clients hold no session's permit, and
/// do not suppress each other's refusals: they share those permits by cluster, or by address while the cluster is not
/// known.
pub struct SessionPermit {
    session: Option<OwnedSemaphorePermit>,
    refusal: Option<HandshakePermit>,
    pools: Pools,
    remote: SocketAddr,
}

impl SessionPermit {
    /// Trades it for a permit that another connection may take. `cluster` is that of the client's certificate, if it is
    /// valid.
    pub fn only_to_refuse(&mut self, cluster: Option<ClusterName>) {
        let source = cluster.map_or_else(|| self.remote.ip().into(), PeerNetwork::Cluster);
        self.refusal = self.pools.begin(&self.pools.refusals, source);
        self.session = None;
    }

    /// Waits until another connection has taken the permit, which never happens to a session's permit.
    pub async fn taken(&self) {
        match (&self.session, &self.refusal) {
            (_, Some(refusal)) => refusal.displaced.cancelled().await,
            (Some(_), None) => std::future::pending().await,
            (None, None) => {}
        }
    }
}

/// Accepts until `stop` is cancelled, then waits for the sessions.
pub async fn accept<D: ConnectionHandler>(
    listener: TcpListener,
    permits: Permits,
    door: Arc<D>,
    stop: &CancellationToken,
) {
    let pools = Pools::new(permits);
    let mut connections = JoinSet::new();
    let mut warned: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => report(ended),
            accepted = listener.accept() => match accepted {
                Ok((tcp, remote)) => pools.receive(tcp, remote, &door, stop, &mut connections),
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    if warned.is_none_or(|at| at.elapsed() >= ACCEPT_WARNING) {
                        warned = Some(Instant::now());
                        let more = "further failures within this minute are not logged";
                        tracing::warn!(%error, more, "Connections cannot be accepted");
                    }
                    tokio::select! { () = stop.cancelled() => break, () = tokio::time::sleep(ACCEPT_PAUSE) => {} }
                }
            },
        }
    }
    let receive = |tcp, remote| pools.receive(tcp, remote, &door, stop, &mut connections);
    if let Err(error) = accept_waiting(listener, receive) {
        tracing::warn!(%error, "Connections that waited to be accepted were reset");
    }
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    if timeout(permits.drain, drained).await.is_err() {
        tracing::warn!("Some connections did not end during the drain and were cut");
    }
}

/// Accepts the connections that wait in the socket, which would otherwise be reset, and stops listening. tokio may not
/// know of them yet.
fn accept_waiting(listener: TcpListener, mut receive: impl FnMut(TcpStream, SocketAddr)) -> std::io::Result<()> {
    let listener = listener.into_std()?;
    for _ in 0..BACKLOG {
        match listener.accept() {
            Ok((tcp, remote)) => {
                tcp.set_nonblocking(true)?;
                receive(TcpStream::from_std(tcp)?, remote);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The client left before its connection was accepted (see accept(2)); the listener still works.
fn is_of_the_client(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "The task of a connection failed");
    }
}

type Pool = Arc<Mutex<Handshakes<CancellationToken>>>;

/// The permits of one listener.
#[derive(Clone)]
struct Pools {
    permits: Permits,
    since: Instant,
    waiting: Pool,
    handshakes: Pool,
    sessions: Arc<Semaphore>,
    refusals: Pool,
}

impl Pools {
    fn new(permits: Permits) -> Self {
        let waiting = Handshakes::new(permits.handshakes.saturating_mul(WAITING), Duration::ZERO);
        let handshakes = Handshakes::new(permits.handshakes, GRACE);
        let refusals = Handshakes::new(permits.handshakes.div_ceil(REFUSALS), REFUSAL);
        Self {
            permits,
            since: Instant::now(),
            waiting: Arc::new(Mutex::new(waiting)),
            handshakes: Arc::new(Mutex::new(handshakes)),
            sessions: Arc::new(Semaphore::new(permits.sessions)),
            refusals: Arc::new(Mutex::new(refusals)),
        }
    }

    /// Starts a connection, if there is a permit for it.
    fn receive<D: ConnectionHandler>(
        &self,
        tcp: TcpStream,
        remote: SocketAddr,
        door: &Arc<D>,
        stop: &CancellationToken,
        connections: &mut JoinSet<()>,
    ) {
        let remote = listen::peer(remote);
        door.on_accept();
        match self.begin(&self.waiting, remote.ip().into()) {
            Some(waiting) => {
                let entering = Entering { waiting, pools: self.clone(), remote };
                connections.spawn(entering.run(tcp, Arc::clone(door), stop.clone()));
            }
            None => door.refused(remote, &self.no_place()),
        }
    }

    /// Takes a permit, possibly that of another connection, if there is one.
    fn begin(&self, pool: &Pool, source: PeerNetwork) -> Option<HandshakePermit> {
        let displaced = CancellationToken::new();
        let (permit, other) = pool.lock().begin(source, self.since.elapsed(), displaced.clone())?;
        if let Some(other) = other {
            other.cancel();
        }
        Some(HandshakePermit { pool: Arc::clone(pool), permit, displaced })
    }

    fn session(self, remote: SocketAddr) -> Result<SessionPermit, NoHandshake> {
        let session = Arc::clone(&self.sessions).try_acquire_owned();
        let session = session.map_err(|_| NoHandshake::OverCapacity(self.permits.sessions))?;
        Ok(SessionPermit { session: Some(session), refusal: None, pools: self, remote })
    }

    fn no_place(&self) -> NoHandshake {
        NoHandshake::Displaced(self.permits.handshakes)
    }
}

/// A permit that another connection may take. Gives it back when it is dropped.
struct HandshakePermit {
    pool: Pool,
    permit: Permit,
    displaced: CancellationToken,
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.pool.lock().end(&self.permit);
    }
}

/// A connection without a session.
struct Entering {
    waiting: HandshakePermit,
    pools: Pools,
    remote: SocketAddr,
}

impl Entering {
    async fn run<D: ConnectionHandler>(self, tcp: TcpStream, door: Arc<D>, stop: CancellationToken) {
        let Self { waiting, pools, remote } = self;
        let longest = pools.permits.handshake_timeout;
        let mut failed = None;
        let entering = async {
            tokio::select! {
                () = waiting.displaced.cancelled() => return Err(pools.no_place()),
                spoken = super::arrives(&tcp) => spoken.map_err(NoHandshake::Closed)?,
            }
            let handshake = pools.begin(&pools.handshakes, remote.ip().into()).ok_or_else(|| pools.no_place())?;
            drop(waiting);
            // Fail closed (invariant I11): without a verifier there is no TLS at all.
            let config = door.tls().ok_or(NoHandshake::NotConfigured)?;
            prepare(&tcp).map_err(NoHandshake::Closed)?; // on an error the socket is gone already
            tokio::select! {
                () = handshake.displaced.cancelled() => Err(pools.no_place()),
                done = shake(TlsAcceptor::from(Arc::clone(&config)).accept(tcp).into_fallible()) => match done {
                    Ok(tls) => Ok((tls, config)),
                    Err((cause, tcp)) => {
                        failed = Some((tcp, handshake));
                        Err(cause)
                    }
                },
            }
        };
        let done = tokio::select! {
            () = after_the_first(&stop) => return,
            done = timeout(longest, entering) => done.unwrap_or(Err(NoHandshake::Slow(longest))),
        };
        match done.and_then(|(tls, config)| Ok(Entered { tls, remote, config, permit: pools.session(remote)? })) {
            Ok(entered) => door.serve(entered, stop).await,
            Err(cause) => door.refused(remote, &cause),
        }
        if let Some((tcp, handshake)) = failed {
            tokio::select! { () = handshake.displaced.cancelled() => {}, () = linger(tcp) => {} }
        }
    }
}

/// A client that was accepted before `stop` may still send its first request.
async fn after_the_first(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(FIRST).await;
}

/// Lets a client take the alert. It may be sending its first request, and a close with unread bytes is a reset, after
/// which many a client reports that it cannot write.
async fn linger(mut tcp: TcpStream) {
    let reading = async {
        tcp.shutdown().await?;
        tokio::io::copy(&mut tcp.take(UNWANTED), &mut tokio::io::sink()).await
    };
    timeout(LINGER, reading).await.ok(); // however it ends, so does the connection
}

/// Sends data without waiting for more, and ends the connection soon after its peer has vanished: a host that lost its
/// power or its network sends no FIN, and HTTP/1.1 has no pings.
pub(crate) fn prepare(tcp: &TcpStream) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(tcp, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(tcp, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(tcp, PROBES)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    // Without it Linux retransmits unacknowledged data for 15 minutes, and sends no probes meanwhile.
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(tcp, u32::try_from(VANISHED.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_ends_35_seconds_after_its_peer_vanishes() {
        let listener = listen::bind("127.0.0.1:0".parse().unwrap(), Some(65_536)).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        prepare(&tcp).unwrap();
        assert!(tcp.nodelay().unwrap());
        assert!(sockopt::socket_keepalive(&tcp).unwrap());
        let of_probes = [sockopt::tcp_keepidle(&tcp).unwrap(), sockopt::tcp_keepintvl(&tcp).unwrap()];
        assert_eq!(of_probes, [PROBE_AFTER, PROBE_EVERY]);
        assert_eq!(sockopt::tcp_keepcnt(&tcp).unwrap(), PROBES);
        assert_eq!(PROBE_AFTER + PROBE_EVERY * PROBES, Duration::from_secs(35));
        #[cfg(target_os = "linux")]
        assert_eq!(sockopt::tcp_user_timeout(&tcp).unwrap(), 35_000);
    }
}
