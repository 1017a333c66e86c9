//! The gateway's side of the accept loop: which TLS configuration, what is counted and logged, what a session is.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::connection;
use super::session::{GatewayShared, Session};
use crate::listener::{self, ConnectionHandler, Entered, NoHandshake, Slots};
use addon_signer_telemetry::audit::Caller;

/// Accepts until `stop` is cancelled, then waits for the connections, each of which ends within the drain timeout.
pub(super) async fn run(listener: TcpListener, shared: Arc<GatewayShared>, stop: CancellationToken) {
    let Limits { max_connections, max_handshakes, handshake_timeout, drain_timeout, .. } = shared.limits;
    let drain = drain_timeout + listener::DRAIN_MARGIN;
    let slots = Slots { handshakes: max_handshakes, handshake_timeout, sessions: max_connections, drain };
    listener::accept(listener, slots, shared, &stop).await;
}

impl ConnectionHandler for GatewayShared {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.in_effect.borrow().as_ref().map(|in_effect| Arc::clone(&in_effect.tls))
    }

    fn on_accept(&self) {
        self.stats.connections.inc();
    }

    /// Logs only to the audit log, because that is throttled: strangers must not be able to fill a disk.
    fn refused(&self, remote: SocketAddr, cause: &NoHandshake) {
        let stats = &self.stats;
        let counter = match cause {
            NoHandshake::OverCapacity(_) => Some(&stats.over_capacity),
            NoHandshake::Displaced(_) => Some(&stats.handshakes_displaced),
            NoHandshake::NotConfigured => Some(&stats.not_configured),
            NoHandshake::Slow(_) => Some(&stats.handshakes_slow),
            NoHandshake::Closed(_) | NoHandshake::Tls(_) | NoHandshake::NoCertificate => None,
        };
        if let Some(counter) = counter {
            counter.inc();
        }
        if let Some(failure) = cause.failure() {
            stats.handshake_failed(failure);
        }
        self.audit.refused_connection(&Caller::stranger(remote), cause.reason(), cause);
    }

    async fn serve(self: Arc<Self>, entered: Entered, stop: CancellationToken) {
        let Entered { tls, remote, slot, .. } = entered;
        match tls.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned() {
            Some(leaf) => {
                let session = Session::new(self, remote, leaf.into_owned());
                connection::serve(tls, slot, Arc::new(session), stop).await;
            }
            None => self.refused(remote, &NoHandshake::NoCertificate), // cannot happen: the verifier requires one
        }
    }
}
