//! The connections to one backend.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::backend_tls::{BackendTlsConfig, Shown};
use super::body::BackendBody;
use super::connect::{Connected, Connector};
use super::http1::Http1;
use super::http2::Http2;
use super::{BackendFailure, Failure, Fault, Silence};
use crate::Limits;
use crate::upload::Upload;
use addon_signer_core::gateway::route::{Backend, Protocol};
use addon_signer_core::identity::ClusterName;

/// How long a connection without a request is kept: less than the 60 s after which most servers close it.
const IDLE: Duration = Duration::from_secs(30);
/// How many connections of HTTP/1.1 without a request are kept.
const MOST_IDLE: usize = 128;

/// How many connections of HTTP/2 one cluster has to one backend, which may accept few requests on each.
const MOST_SHARED: usize = 8;

/// The connections to one backend, whatever its addresses are.
pub(crate) struct Pool {
    backend: Backend,
    pub(super) host: HeaderValue,
    pub(super) authority: Authority,
    pub(super) scheme: Scheme,
    tls: Option<BackendTlsConfig>,
    connector: Arc<Connector>,
    limits: Limits,
    connections: Mutex<Connections>,
    /// Counts connections, so that addresses take turns.
    turn: AtomicUsize,
}

#[derive(Default)]
struct Connections {
    /// Connections without a request, each with the time since when. The last one is taken first.
    idle: Vec<(Http1, Instant)>,
    /// Requests on a connection of HTTP/2 can hold each other up or end it, so each has requests of one cluster only.
    clusters: HashMap<ClusterName, OfCluster>,
    /// Whether the backend is known to choose HTTP/1.1.
    is_http1: bool,
}

#[derive(Default)]
struct OfCluster {
    shared: Vec<Http2>,
    /// Held while a connection is opened that further requests of the cluster may share.
    opening: Arc<tokio::sync::Mutex<()>>,
}

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionNeed {
    /// Any connection; others may use it afterwards.
    Shared,
    /// With HTTP/1.1, a new connection that ends with the request. HTTP/2 keeps requests apart anyway.
    Own,
    /// A connection of HTTP/1.1, which may change its protocol.
    Upgrade,
}

/// A connection for one request.
pub(crate) enum PooledConnection {
    /// HTTP/1.1; others may use it afterwards if the flag is set.
    One(Http1, bool),
    /// HTTP/2.
    Two(Http2),
}

impl Pool {
    pub(super) fn new(
        backend: &Backend,
        tls: Option<BackendTlsConfig>,
        connector: Arc<Connector>,
        limits: &Limits,
    ) -> Result<Self, String> {
        let unusable = |error: &dyn std::fmt::Display| format!("{:?} is no host: {error}", backend.authority);
        Ok(Self {
            host: HeaderValue::from_str(&backend.authority).map_err(|error| unusable(&error))?,
            authority: backend.authority.parse().map_err(|error| unusable(&error))?,
            scheme: if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP },
            backend: Backend { addresses: Vec::new(), ..backend.clone() },
            tls,
            connector,
            limits: limits.clone(),
            connections: Mutex::new(Connections {
                is_http1: matches!(backend.protocol, Protocol::Http | Protocol::Wss),
                ..Connections::default()
            }),
            turn: AtomicUsize::new(0),
        })
    }

    /// Whether it is the pool of this backend.
    pub(super) fn is_of(&self, backend: &Backend) -> bool {
        super::is_same(&self.backend, backend)
    }

    /// Whether the backend is known to speak HTTP/1.1.
    pub(crate) fn speaks_http1(&self) -> bool {
        self.connections.lock().is_http1
    }

    /// A connection for a request of this cluster.
    ///
    /// # Errors
    /// The cause: no address can be reached in time, or none is the backend's.
    pub(crate) async fn connection(
        &self,
        cluster: &ClusterName,
        addresses: &[SocketAddr],
        wanted: ConnectionNeed,
        within: Duration,
    ) -> Result<PooledConnection, Failure> {
        if let Some(known) = self.known(cluster, addresses, wanted) {
            return Ok(known);
        }
        match timeout(within, self.open(cluster, addresses, wanted, within)).await {
            Ok(opened) => opened,
            Err(_) => Err(Fault::Unreachable.because(format!("no connection within {within:?}"))),
        }
    }

    async fn open(
        &self,
        cluster: &ClusterName,
        addresses: &[SocketAddr],
        wanted: ConnectionNeed,
        within: Duration,
    ) -> Result<PooledConnection, Failure> {
        // The first request of a burst opens a connection, and the others wait to share it. Otherwise each would open
        // one.
        let opening = self.opening(cluster, wanted);
        let _opening = if let Some(opening) = &opening { Some(opening.lock().await) } else { None };
        if opening.is_some() {
            if let Some(known) = self.known(cluster, addresses, wanted) {
                return Ok(known);
            }
            if self.connections.lock().clusters.get(cluster).is_some_and(|of| of.shared.len() >= MOST_SHARED) {
                return Err(Fault::Other.because("the backend accepts too few requests at a time"));
            }
        }
        let shown = self.shown(); // the handshake may show a newer one; then the connection is used for less long
        let tls = self.tls.as_ref().map(|tls| tls.connector(wanted == ConnectionNeed::Upgrade));
        let connecting = self.connector.connect(&self.backend, tls, self.in_turn(addresses), within);
        let Connected { io, address, is_h2 } = connecting.await?;
        if !is_h2 {
            if wanted != ConnectionNeed::Upgrade {
                self.connections.lock().is_http1 = true;
            }
            let http1 = Http1::new(io, address, shown, self.limits.call_buffer).await?;
            return Ok(PooledConnection::One(http1, wanted != ConnectionNeed::Own));
        }
        let mut http2 = Http2::new(io, address, shown, &self.limits).await?;
        let taken = PooledConnection::Two(http2.take());
        let mut connections = self.connections.lock();
        connections.is_http1 = false;
        let shared = &mut connections.clusters.entry(cluster.clone()).or_default().shared;
        if shared.len() < MOST_SHARED {
            shared.push(http2);
        }
        Ok(taken)
    }

    /// What a request holds while it opens a connection that others may share.
    fn opening(&self, cluster: &ClusterName, wanted: ConnectionNeed) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let mut connections = self.connections.lock();
        let is_shared = wanted != ConnectionNeed::Upgrade && !connections.is_http1;
        is_shared.then(|| Arc::clone(&connections.clusters.entry(cluster.clone()).or_default().opening))
    }

    /// What a new connection shows to the backend.
    fn shown(&self) -> Shown {
        self.tls.as_ref().map(BackendTlsConfig::shown).unwrap_or_default()
    }

    /// The addresses to try.
    fn in_turn(&self, addresses: &[SocketAddr]) -> impl ExactSizeIterator<Item = SocketAddr> + use<> {
        let mut order = addresses.to_vec();
        if !order.is_empty() {
            let next = self.turn.fetch_add(1, Ordering::Relaxed) % order.len();
            order.rotate_left(next);
        }
        order.into_iter()
    }

    /// An existing connection that can take the request.
    fn known(
        &self,
        cluster: &ClusterName,
        addresses: &[SocketAddr],
        wanted: ConnectionNeed,
    ) -> Option<PooledConnection> {
        let newest = self.shown();
        let mut ended = Vec::new(); // dropped without the lock
        let mut connections = self.connections.lock();
        if wanted == ConnectionNeed::Upgrade && !connections.is_http1 {
            return None;
        }
        while wanted != ConnectionNeed::Own
            && let Some((mut http1, _)) = connections.idle.pop()
        {
            if addresses.contains(&http1.address) && http1.shown.is(&newest) && http1.is_usable() {
                return Some(PooledConnection::One(http1, true));
            }
            ended.push(http1);
        }
        let shared = &mut connections.clusters.get_mut(cluster)?.shared;
        shared.retain(|http2| addresses.contains(&http2.address) && http2.shown.is(&newest) && http2.is_useful());
        let free = shared.iter_mut().filter(|http2| http2.is_free()).min_by_key(|http2| http2.requests());
        free.map(|http2| PooledConnection::Two(http2.take()))
    }

    /// Takes a connection back.
    pub(super) fn put(&self, http1: Http1) {
        let mut connections = self.connections.lock();
        // A connection made for an upgrade does not show that the backend prefers HTTP/1.1.
        if connections.is_http1 && connections.idle.len() < MOST_IDLE {
            connections.idle.push((http1, Instant::now()));
        }
    }

    /// Drops connections that have long had no request, and those to addresses that the backend no longer has.
    pub(super) fn sweep(&self, addresses: &[SocketAddr]) {
        let mut connections = self.connections.lock();
        connections.idle.retain(|(http1, since)| since.elapsed() < IDLE && addresses.contains(&http1.address));
        connections.clusters.retain(|_, OfCluster { shared, opening }| {
            shared.retain(|http2| {
                let is_used = http2.requests() > 0 || http2.used.elapsed() < IDLE;
                is_used && http2.is_useful() && addresses.contains(&http2.address)
            });
            !shared.is_empty() || Arc::strong_count(opening) > 1
        });
    }
}

impl PooledConnection {
    pub(crate) fn silence(&self) -> Silence {
        match self {
            Self::One(..) => Silence::default(),
            Self::Two(http2) => http2.silence(),
        }
    }

    /// Sends a request whose URI has only a path.
    pub(crate) async fn send(
        self,
        request: Request<Upload>,
        pool: &Arc<Pool>,
    ) -> Result<Response<BackendBody>, BackendFailure> {
        match self {
            Self::One(http1, is_kept) => Ok(http1.send(request, pool, is_kept).await?.map(BackendBody::One)),
            Self::Two(http2) => Ok(http2.send(request, pool).await?.map(BackendBody::Two)),
        }
    }
}
