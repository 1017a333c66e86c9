//! Connections to backends. Each backend has a pool of its own, so that one that fails or is slow takes nothing from
//! the others.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use h2::Reason;
use hyper::Request;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::Limits;
use crate::upload::Upload;
use addon_signer_core::gateway::protected::ProtectedAddresses;
use addon_signer_core::gateway::route::{Backend, BackendAnchors, BackendTls, RouteTable};
use addon_signer_platform::clock::Clock;

mod backend_tls;
mod body;
mod connect;
mod fault;
mod http1;
mod http2;
mod pool;

pub(super) use body::BackendBody;
pub(super) use connect::Io;
pub(super) use fault::{Failure, Fault};
pub(super) use pool::{ConnectionNeed, Pool};

use backend_tls::{BackendTlsConfig, ShownCertificate};
use connect::Connector;

/// How often the pools are searched for what is no longer needed.
const SWEEP: Duration = Duration::from_secs(5);

/// Whether two backends are the same one, perhaps at other addresses.
pub(super) fn is_same(one: &Backend, other: &Backend) -> bool {
    let Backend { authority, addresses: _, is_by_address, protocol, tls } = one;
    *authority == other.authority
        && *is_by_address == other.is_by_address
        && *protocol == other.protocol
        && *tls == other.tls
}

/// Whether requests in flight may continue after this change: it is the same backend, or one whose certificate must
/// have the same name. Added and removed CAs count for new connections.
pub(super) fn continues(one: &Backend, other: &Backend) -> bool {
    let without_anchors = |backend: &Backend| {
        let tls = backend.tls.as_ref().map(|tls| BackendTls { anchors: BackendAnchors::default(), ..tls.clone() });
        Backend { tls, ..backend.clone() }
    };
    is_same(one, other) || is_same(&without_anchors(one), &without_anchors(other))
}

/// The pools, by authority.
pub(super) struct Backends {
    pools: Mutex<HashMap<String, Vec<Arc<Pool>>>>,
    connector: Arc<Connector>,
    limits: Limits,
    shown: ShownCertificate,
    clock: Clock,
}

impl Backends {
    pub(super) fn new(
        limits: &Limits,
        protected: watch::Receiver<ProtectedAddresses>,
        shown: ShownCertificate,
        clock: Clock,
    ) -> Self {
        let connector = Arc::new(Connector { protected, socket_buffer: limits.backend_socket });
        Self { pools: Mutex::default(), connector, limits: limits.clone(), shown, clock }
    }

    /// The pool of a backend. A backend may change its addresses, but not what identifies it.
    ///
    /// # Errors
    /// One sentence without a period: the backend cannot be used.
    pub(super) fn pool(&self, backend: &Backend) -> Result<Arc<Pool>, String> {
        let mut pools = self.pools.lock();
        if let Some(known) =
            pools.get(&backend.authority).and_then(|pools| pools.iter().find(|pool| pool.is_of(backend)))
        {
            return Ok(Arc::clone(known));
        }
        let tls = backend.tls.as_ref();
        let tls = tls.map(|tls| BackendTlsConfig::new(tls, backend.protocol, &self.shown, &self.clock)).transpose()?;
        let pool = Arc::new(Pool::new(backend, tls, Arc::clone(&self.connector), &self.limits)?);
        pools.entry(backend.authority.clone()).or_default().push(Arc::clone(&pool));
        Ok(pool)
    }

    /// Runs forever: drops the pools of backends that no route has any more, and idle connections.
    pub(super) async fn keep(&self, mut routes: watch::Receiver<Arc<RouteTable>>) -> Infallible {
        loop {
            let table = Arc::clone(&routes.borrow_and_update());
            self.sweep(&table);
            tokio::select! {
                Ok(()) = routes.changed() => {}
                () = tokio::time::sleep(SWEEP) => {}
            }
        }
    }

    fn sweep(&self, table: &RouteTable) {
        // Many paths share a backend.
        let backends: HashMap<*const Backend, &Backend> =
            table.backends().map(|backend| (Arc::as_ptr(backend), &**backend)).collect();
        let mut by_authority: HashMap<&str, Vec<&Backend>> = HashMap::new();
        for backend in backends.into_values() {
            by_authority.entry(&backend.authority).or_default().push(backend);
        }
        let mut unused = Vec::new(); // dropped without the lock
        let mut pools = self.pools.lock();
        for (authority, known) in &mut *pools {
            let named = by_authority.get(authority.as_str()).map_or(&[][..], Vec::as_slice);
            let is_unused = |pool: &mut Arc<Pool>| !named.iter().any(|backend| pool.is_of(backend));
            unused.extend(known.extract_if(.., is_unused));
            for backend in named {
                known.iter().filter(|pool| pool.is_of(backend)).for_each(|pool| pool.sweep(&backend.addresses));
            }
        }
        pools.retain(|_, known| !known.is_empty());
    }
}

/// Set when a request has timed out on a shared connection, which may be dead.
#[derive(Default)]
pub(super) struct Silence(Weak<AtomicBool>);

impl Silence {
    /// Keeps further requests away from the connection.
    pub(super) fn note(&self) {
        if let Some(is_silent) = self.0.upgrade() {
            is_silent.store(true, Ordering::Relaxed);
        }
    }
}

/// Why a backend did not answer.
pub(super) struct BackendFailure {
    pub(super) failure: Failure,
    /// With which code the backend reset the stream, if it did.
    pub(super) reset: Option<Reason>,
    /// The request, if the backend has processed nothing of it.
    pub(super) unsent: Option<Box<Request<Upload>>>,
}

impl BackendFailure {
    fn new(error: impl Into<Failure>, unsent: Option<Box<Request<Upload>>>) -> Self {
        Self { failure: error.into(), reset: None, unsent }
    }
}
