//! The accept loop: a cap on connections, handshakes outside the loop and bounded in time, a bounded drain.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::connection;
use super::handshake::NoHandshake;
use super::session::{Session, Shared};
use crate::audit::Caller;

/// After an accept that failed, because out of file descriptors for instance: retrying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Beyond the drain that each connection bounds itself.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);

/// Accepts until `stop`, then waits for the connections, each of which ends within the drain timeout.
pub(super) async fn run(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(shared.limits.max_connections));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => report(ended),
            accepted = listener.accept() => match accepted {
                Ok((tcp, remote)) => admit(tcp, remote, &shared, &permits, &stop, &mut connections),
                // The client left before its turn: accept(2) says so, and the next one is as good as ever.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
                Err(error) => {
                    tracing::warn!(%error, "A connection could not be accepted");
                    tokio::select! { () = stop.cancelled() => break, () = tokio::time::sleep(ACCEPT_PAUSE) => {} }
                }
            },
        }
    }
    drop(listener);
    let drain = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    if timeout(shared.limits.drain_timeout + DRAIN_MARGIN, drain).await.is_err() {
        tracing::warn!("Connections were cut at the end of the drain");
    }
}

fn admit(
    tcp: TcpStream,
    remote: SocketAddr,
    shared: &Arc<Shared>,
    permits: &Arc<Semaphore>,
    stop: &CancellationToken,
    connections: &mut JoinSet<()>,
) {
    shared.stats.connections.add();
    let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
        shared.stats.over_capacity.add();
        refuse(shared, remote, &NoHandshake::OverCapacity(shared.limits.max_connections));
        return;
    };
    let (shared, stop) = (Arc::clone(shared), stop.clone());
    connections.spawn(async move {
        let handshake = tokio::select! {
            () = stop.cancelled() => None,
            done = handshake(tcp, remote, &shared) => done,
        };
        if let Some((tls, leaf)) = handshake {
            connection::serve(tls, Arc::new(Session::new(shared, remote, leaf)), stop).await;
        }
        drop(permit);
    });
}

/// The TLS stream and the client's certificate; `None`, with the cause in the audit log, when there is neither.
async fn handshake(
    tcp: TcpStream,
    remote: SocketAddr,
    shared: &Shared,
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
                refuse(shared, remote, &NoHandshake::NoCertificate); // which the verifier does not let happen
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

/// In the audit log, which is throttled, and not in the other: strangers must not be able to fill a disk.
fn refuse(shared: &Shared, remote: SocketAddr, cause: &NoHandshake) {
    shared.audit.refused_connection(&Caller::stranger(remote), cause.reason(), cause);
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "The task of a connection failed");
    }
}
