//! Connections of the front proxy. Their number and lifetime are bounded, and so are handshakes of other clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::CONNECTION;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::tls::Configuration;
use addon_signer_gateway::listener::{self, ConnectionHandler, Entered, FIRST, NoHandshake, Permits};
use addon_signer_telemetry::audit::Audit;

/// Largest number of sessions at a time. Only API servers are clients, and each keeps a few connections.
const SESSIONS: usize = 128;
/// Largest number of handshakes at a time.
const HANDSHAKES: usize = 64;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Longest time without a request. Go's transport closes an idle connection after 90 s, and should be the first to
/// close, because only it knows what it sent.
const IDLE: Duration = Duration::from_secs(120);
/// The longest life of a connection, so that none outlives the client's certificate by more than this.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a response may still take once its connection must end.
const GRACE: Duration = Duration::from_secs(5);

/// How many files its connections need, including those that wait for a handshake.
pub(crate) const OPEN_FILES: u64 = (HANDSHAKES * (1 + listener::WAITING) + SESSIONS) as u64;

type Configured = watch::Receiver<Option<Arc<Configuration>>>;

/// Handles the connections of the front proxy, and those of other clients, which get no session.
struct InventoryHandler {
    router: Router,
    configured: Configured,
    audit: Audit,
}

impl InventoryHandler {
    /// Checks whether a client with this chain would be accepted now.
    fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), NoHandshake> {
        let configured = self.configured.borrow();
        let configured = configured.as_ref().ok_or(NoHandshake::NotConfigured)?;
        configured.check(chain).map_err(|error| NoHandshake::Tls { error, unverified: String::new() })
    }
}

/// Accepts until `stop` is cancelled.
pub(super) async fn run(
    listener: TcpListener,
    router: Router,
    configured: Configured,
    audit: Audit,
    stop: CancellationToken,
) {
    let drain = FIRST + GRACE + listener::DRAIN_MARGIN;
    let permits = Permits { handshakes: HANDSHAKES, handshake_timeout: HANDSHAKE, sessions: SESSIONS, drain };
    listener::accept(listener, permits, Arc::new(InventoryHandler { router, configured, audit }), &stop).await;
}

impl ConnectionHandler for InventoryHandler {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.configured.borrow().as_ref().map(|configured| Arc::clone(&configured.tls))
    }

    /// Logs only to the audit log, because that is throttled.
    fn refused(&self, remote: SocketAddr, cause: &NoHandshake) {
        self.audit.refused_inventory_connection(remote, cause.reason(), cause);
    }

    async fn serve(self: Arc<Self>, entered: Entered, stop: CancellationToken) {
        serve(entered, self, stop).await;
    }
}

/// Serves until the client leaves, the TLS configuration changes, [`LONGEST`] has passed, or `stop` is cancelled.
async fn serve(entered: Entered, door: Arc<InventoryHandler>, stop: CancellationToken) {
    let Entered { tls, config, remote, permit: _permit } = entered;
    let chain = tls.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
    let asked = CancellationToken::new();
    let first = asked.clone();
    let mut configured = door.configured.clone();
    let service = service_fn(move |request| {
        first.cancel();
        // A client that is no longer the front proxy must not ask, even if its connection or request began before.
        let refused = door.check(&chain).inspect_err(|cause| door.refused(remote, cause)).is_err();
        let router = door.router.clone();
        async move { if refused { Ok(refusal()) } else { TowerToHyperService::new(router).call(request).await } }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(tls), service);
    tokio::pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return ended(done),
        () = stop.cancelled() => {}
        // An error means that the sender was dropped, so the process ends.
        _ = configured.wait_for(|now| now.as_ref().is_none_or(|now| !Arc::ptr_eq(&now.tls, &config))) => {}
        () = tokio::time::sleep(LONGEST) => {}
    }
    tokio::select! {
        done = connection.as_mut() => return ended(done),
        _ = timeout(FIRST, asked.cancelled()) => {} // no request came
    }
    connection.as_mut().graceful_shutdown();
    match timeout(GRACE, connection).await {
        Ok(done) => ended(done),
        Err(_) => tracing::debug!("The inventory did not finish an answer in time"),
    }
}

fn refusal() -> Response {
    (StatusCode::UNAUTHORIZED, [(CONNECTION, "close")]).into_response()
}

fn ended(done: hyper::Result<()>) {
    if let Err(error) = done {
        tracing::debug!(%error, "A connection to the inventory ended early");
    }
}
