//! Accepts connections. Their number is capped, handshakes run outside of the accept loop and are bounded in time, and
//! the drain is bounded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::connection;
use super::handshake::NoHandshake;
use super::session::{GatewayShared, Session};
use crate::audit::Caller;
use crate::listener;

/// Added to the drain timeout, which each connection keeps itself.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);

/// Accepts until `stop` is cancelled, then waits for the connections, each of which ends within the drain timeout.
pub(super) async fn run(listener: TcpListener, shared: Arc<GatewayShared>, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(shared.limits.max_connections));
    let drain = shared.limits.drain_timeout + DRAIN_MARGIN;
    listener::accept(listener, drain, &stop, |tcp, remote| admit(tcp, remote, &shared, &permits, &stop)).await;
}

fn admit(
    tcp: TcpStream,
    remote: SocketAddr,
    shared: &Arc<GatewayShared>,
    permits: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    shared.stats.connections.add();
    let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
        shared.stats.over_capacity.add();
        refuse(shared, remote, &NoHandshake::OverCapacity(shared.limits.max_connections));
        return None;
    };
    let shared = Arc::clone(shared);
    let stop = stop.clone();
    Some(async move {
        let handshake = tokio::select! {
            () = stop.cancelled() => None,
            done = handshake(tcp, remote, &shared) => done,
        };
        if let Some((tls, leaf)) = handshake {
            connection::serve(tls, Arc::new(Session::new(shared, remote, leaf)), stop).await;
        }
        drop(permit);
    })
}

/// The TLS stream and the client's certificate. `None` if the handshake failed; the audit log then has the cause.
async fn handshake(
    tcp: TcpStream,
    remote: SocketAddr,
    shared: &GatewayShared,
) -> Option<(TlsStream<TcpStream>, CertificateDer<'static>)> {
    // Fail closed (invariant I11): without a verifier and a bundle there is no TLS at all.
    let Some(in_effect) = shared.in_effect.borrow().clone() else {
        shared.stats.not_configured.add();
        refuse(shared, remote, &NoHandshake::NotConfigured);
        return None;
    };
    if let Err(error) = tcp.set_nodelay(true) {
        refuse(shared, remote, &NoHandshake::Closed(error)); // the socket is gone already
        return None;
    }
    let accepting = TlsAcceptor::from(Arc::clone(&in_effect.tls)).accept(tcp);
    match timeout(shared.limits.handshake_timeout, accepting).await {
        Ok(Ok(tls)) => {
            let leaf = tls.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
            if leaf.is_none() {
                refuse(shared, remote, &NoHandshake::NoCertificate); // cannot happen: the verifier requires one
            }
            leaf.map(|leaf| (tls, leaf.into_owned()))
        }
        Ok(Err(error)) => {
            shared.stats.handshakes_failed.add();
            refuse(shared, remote, &NoHandshake::of(error));
            None
        }
        Err(_) => {
            shared.stats.handshakes_slow.add();
            refuse(shared, remote, &NoHandshake::Slow(shared.limits.handshake_timeout));
            None
        }
    }
}

/// Logs a refusal in the audit log only, because that is throttled: strangers must not be able to fill a disk.
fn refuse(shared: &GatewayShared, remote: SocketAddr, cause: &NoHandshake) {
    shared.audit.refused_connection(&Caller::stranger(remote), cause.reason(), cause);
}
