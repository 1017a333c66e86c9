//! The gateway: an HTTPS endpoint that accepts the client certificates of our signers and nothing else.
//!
//! ```text
//! inputs: trust, serving ─► tls (whole ServerConfig) ─► listener ─► connection (sweep, limits) ─► routes ─► proxy
//!                                                       │               │                                  │
//!                                    handshake, cap, drain        session: authz::identify,    table, headers,
//!                                                                 registry, clock              backend, upgrade
//! ```
//!
//! - Nothing is served without a client verifier and a non-empty bundle (invariant I11): while no configuration is in
//!   effect, the gateway closes every connection at once.
//! - A certificate is an identity only of the addon whose CA signed it (I14):
//!   [`addon_signer_core::gateway::authz::identify`].
//! - No session outlives its credential by more than 2 s (I15): the gateway checks each request, and each connection
//!   once a second. A connection whose check fails ends, even if requests are in flight on it.
//!
//! `record` counts a request while it lasts (`traffic` has the labels), and tells the access log when all of it has
//! ended. The gateway never imports the hub. It gets the hub's values as its inputs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use addon_signer_core::gateway::headers::answer::MOST_BYTES;
use addon_signer_core::gateway::host::Host;
use addon_signer_core::gateway::permits::MinRate;
use addon_signer_core::gateway::protected::ProtectedAddresses;
use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::trust::Trust;
use addon_signer_core::usage::UsageTracker;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::listen;
use addon_signer_telemetry::audit::Audit;

mod answered;
mod backend;
pub mod certificates;
mod connection;
mod download;
mod ending;
mod frames;
mod grpc;
pub mod listener;
mod permits;
mod problem;
mod proxy;
mod record;
mod routes;
mod session;
mod stats;
mod streams;
mod tls;
mod traffic;
mod unread;
mod upgrade;
mod upload;
mod wire;

use backend::Backends;

pub use problem::{PROBLEMS, problem_of, problem_of_client};
pub use stats::{CertificateEnds, GatewayStats};

use permits::{RoutePermits, SharedPermits};
use record::BrokenAnswers;

/// Limits for clients. They bound how long a slow or silent client can occupy a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of connections at a time whose handshake is done. Further ones are closed at that point.
    pub max_connections: usize,
    /// Largest number of connections at a time of one addon on one cluster.
    pub max_identity_connections: usize,
    /// Largest number of requests at a time of one addon on one cluster, on all its connections.
    pub max_identity_requests: usize,
    /// Largest number of connections at a time of all addons of one cluster.
    pub max_cluster_connections: usize,
    /// Largest number of requests at a time of all addons of one cluster.
    pub max_cluster_requests: usize,
    /// Largest number of handshakes at a time. A further one displaces the oldest one from the source that has most.
    /// Eight times as many connections may wait for their clients' first bytes.
    pub max_handshakes: usize,
    /// Longest time from the TCP accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Longest time from the handshake to the first complete request head.
    pub header_timeout: Duration,
    /// Longest time without a request in flight; the wait for the head of a later request is a part of it.
    pub idle_timeout: Duration,
    /// The rate below which a client may not send or take a body. For a request's body, the route's `first_byte`
    /// applies if that is longer than this timeout; for gRPC, only the route's `idle` does.
    pub min_rate: MinRate,
    /// How long requests in flight may continue after `stop`.
    pub drain_timeout: Duration,
    /// Largest request head, in bytes. For HTTP/1.1 the limit is approximate, because the head is read in pieces.
    pub max_header_bytes: u32,
    /// Largest number of HTTP/2 streams at a time on one connection.
    pub max_streams: u32,
    /// How many bytes of bodies an HTTP/2 client may send on one stream before the gateway has passed them on.
    pub stream_window: u32,
    /// The same for all streams of one connection. It is larger, so that one stalled upload does not hold up the
    /// others.
    pub connection_window: u32,
    /// How many bytes of a request may wait to be sent, to its backend and to its client, plus one piece.
    pub call_buffer: usize,
    /// The socket buffers of a client's connection, in each direction. Linux doubles it.
    pub client_socket: u32,
    /// The socket buffers of a connection to a backend, in each direction. Linux doubles it.
    pub backend_socket: u32,
}

/// How many addons of one cluster can use all of an addon's permits at the same time. The hub's administrators install
/// many addons on a cluster, and an attacker who has taken over the cluster has all their certificates. Honest addons
/// use a few permits each, and a cluster has at least [`DEFAULT_IDENTITY_CONNECTIONS`], so their number is not bounded
/// by this.
const ADDONS_AT_MOST: usize = 4;

/// The default of [`Limits::max_connections`].
pub const DEFAULT_CONNECTIONS: usize = 4096;
/// The default of [`Limits::max_identity_connections`].
pub const DEFAULT_IDENTITY_CONNECTIONS: usize = 64;

impl Default for Limits {
    fn default() -> Self {
        Self::sized(DEFAULT_CONNECTIONS, DEFAULT_IDENTITY_CONNECTIONS)
    }
}

impl Limits {
    /// The limits for this many connections in total and for one addon on one cluster.
    #[must_use]
    pub fn sized(max_connections: usize, max_identity_connections: usize) -> Self {
        let max_cluster_connections =
            max_identity_connections.saturating_mul(ADDONS_AT_MOST).max(DEFAULT_IDENTITY_CONNECTIONS);
        Self {
            max_connections,
            max_identity_connections,
            max_identity_requests: max_identity_connections.saturating_mul(2),
            max_cluster_connections,
            max_cluster_requests: max_cluster_connections.saturating_mul(2),
            max_handshakes: (max_connections / 8).max(1),
            handshake_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            min_rate: MinRate { bytes_per_second: 256, grace: Duration::from_secs(30) },
            drain_timeout: Duration::from_secs(10),
            max_header_bytes: MOST_BYTES,
            max_streams: 64,
            stream_window: 128 * 1024,
            connection_window: 256 * 1024,
            call_buffer: 32 * 1024,
            client_socket: 128 * 1024,
            backend_socket: 32 * 1024,
        }
    }

    /// How many files the process needs open: one for each handshake and each refusal, one for each connection and two
    /// for its requests to backends, since an addon has that many permits; and some for the ledger, the API server and
    /// probes. An estimate: connections to backends are kept for a while, and few addons use all their permits.
    #[must_use]
    pub fn open_files(&self) -> u64 {
        let strangers = self.max_handshakes.saturating_mul(2 + listener::WAITING);
        let files = self.max_connections.saturating_mul(3).saturating_add(strangers).saturating_add(512);
        u64::try_from(files).unwrap_or(u64::MAX)
    }
}

/// Where to listen, and the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    /// The address; port 0 for any.
    pub listen: SocketAddr,
    /// The limits.
    pub limits: Limits,
    /// The names and addresses at which agents reach it. It answers requests for no other.
    pub names: Vec<Host>,
    /// Whether each request that has ended is an event on the tracing target `access`.
    pub access_log: bool,
}

/// The inputs of the gateway's decisions.
#[derive(Debug)]
pub struct GatewayInputs {
    /// Whom to trust for what.
    pub trust: watch::Receiver<Arc<Trust>>,
    /// Which requests go where.
    pub routes: watch::Receiver<Arc<RouteTable>>,
    /// Which addons are eligible on which clusters.
    pub registry: SharedRegistry,
    /// The certificate that it shows to agents; `None` until there is one.
    pub serving: watch::Receiver<Option<Arc<CertifiedKey>>>,
    /// The certificate that it shows to backends; `None` until there is one.
    pub client_certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
    /// The time of day.
    pub clock: Clock,
    /// Where decisions are logged.
    pub audit: Audit,
    /// The addresses that no backend may have.
    pub protected: watch::Receiver<ProtectedAddresses>,
    /// Which certificates are in use. The gateway writes it; others drain it.
    pub usage: Arc<UsageTracker>,
    /// The metrics.
    pub stats: Arc<GatewayStats>,
}

/// Why the gateway does not run.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address is in use, or does not belong to this machine.
    #[error(
        "the gateway cannot listen on {address}: {source}; choose another address or stop the program that listens \
         there"
    )]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// One of the inputs ended, so the gateway would decide based on outdated values.
    #[error("the gateway stopped, because it no longer gets updates on {0}")]
    InputEnded(&'static str),
}

/// A gateway that listens but does not accept yet.
#[derive(Debug)]
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    config: GatewayConfig,
}

impl Gateway {
    /// Binds the address, so that an address in use is found before anything runs.
    ///
    /// # Errors
    /// [`GatewayError::Listen`] names the address.
    pub async fn bind(config: GatewayConfig) -> Result<Self, GatewayError> {
        let failed = |source| GatewayError::Listen { address: config.listen, source };
        let listener = listen::bind(config.listen, Some(config.limits.client_socket)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, config })
    }

    /// The address, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled, then drains for at most [`Limits::drain_timeout`]. `applied` gets each trust
    /// snapshot once it is in effect: new connections are verified against it, and requests are decided by it.
    ///
    /// # Errors
    /// [`GatewayError::InputEnded`] when the sender of trust or of the serving certificate is dropped before `stop`.
    pub async fn run(
        self,
        inputs: GatewayInputs,
        applied: watch::Sender<Arc<Trust>>,
        stop: CancellationToken,
    ) -> Result<(), GatewayError> {
        let GatewayConfig { limits, names, access_log, .. } = self.config;
        let (publish, in_effect) = watch::channel(None);
        let shared = Arc::new(session::GatewayShared {
            backends: Backends::new(&limits, inputs.protected, inputs.client_certificate, inputs.clock.clone()),
            routes: inputs.routes.clone(),
            broken_answers: BrokenAnswers::new(inputs.clock.clone()),
            in_effect,
            registry: inputs.registry,
            clock: inputs.clock.clone(),
            audit: inputs.audit,
            usage: inputs.usage,
            permits: SharedPermits::new(&limits),
            route_permits: RoutePermits::default(),
            limits,
            names,
            access_log,
            stats: inputs.stats,
        });
        let (trusted, routed) = (inputs.trust.clone(), inputs.routes.clone());
        let outputs = tls::Outputs { publish, applied };
        let configure = tls::keep_in_effect(inputs.trust, inputs.serving, inputs.clock, outputs);
        let accept = connection::accept(self.listener, Arc::clone(&shared), stop.clone());
        tokio::pin!(accept);
        tokio::select! {
            biased;
            () = &mut accept => Ok(()),
            never = shared.broken_answers.keep() => match never {},
            never = shared.stats.keep(trusted, routed) => match never {},
            never = shared.backends.keep(inputs.routes) => match never {},
            ended = configure => {
                if stop.is_cancelled() {
                    accept.await; // the inputs stop together with the gateway; requests in flight still drain
                    return Ok(());
                }
                Err(GatewayError::InputEnded(ended))
            }
        }
    }
}
