//! Connections of the front proxy. Their number, the time of a handshake and the life of a connection are bounded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::listener;

/// Largest number of connections at a time. Only API servers are clients, and each keeps a few connections.
const CONNECTIONS: usize = 128;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Longest time without a request. Go's transport closes an idle connection after 90 s, and should be the first to
/// close, because only it knows what it sent.
const IDLE: Duration = Duration::from_secs(120);
/// The longest life of a connection, so that none outlives the client's certificate by more.
const LONGEST: Duration = Duration::from_secs(600);
/// How long an answer may still take when its connection must end.
const GRACE: Duration = Duration::from_secs(5);

type Configured = watch::Receiver<Option<Arc<ServerConfig>>>;

/// Accepts until `stop` is cancelled.
pub(super) async fn run(listener: TcpListener, router: Router, configured: Configured, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let admit = |tcp, remote| {
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::warn!(%remote, "Too many connections to the inventory: one was closed");
            return None;
        };
        let router = router.clone();
        let mut configured = configured.clone();
        let stop = stop.clone();
        Some(async move {
            let handshake = tokio::select! {
                () = stop.cancelled() => None,
                done = handshake(tcp, remote, &mut configured) => done,
            };
            if let Some(tls) = handshake {
                serve(tls, router, configured, stop).await;
            }
            drop(permit);
        })
    };
    listener::accept(listener, GRACE + Duration::from_secs(1), &stop, admit).await;
}

async fn handshake(tcp: TcpStream, remote: SocketAddr, configured: &mut Configured) -> Option<TlsStream<TcpStream>> {
    // Fail closed: while the front proxy is not known, there is no TLS at all.
    let config = configured.borrow_and_update().clone()?;
    if let Err(error) = tcp.set_nodelay(true) {
        tracing::debug!(%remote, %error, "A connection ended before its handshake");
        return None;
    }
    match timeout(HANDSHAKE, TlsAcceptor::from(config).accept(tcp)).await {
        Ok(Ok(tls)) => Some(tls),
        Ok(Err(error)) => {
            tracing::warn!(%remote, %error, "The inventory refused a TLS handshake");
            None
        }
        Err(_) => {
            tracing::warn!(%remote, "A TLS handshake with the inventory took too long");
            None
        }
    }
}

/// Serves until the client leaves, the TLS configuration changes, [`LONGEST`] has passed, or `stop` is cancelled.
async fn serve(tls: TlsStream<TcpStream>, router: Router, mut configured: Configured, stop: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(tls), TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return ended(done),
        () = stop.cancelled() => {}
        // An error means that the sender is gone, so the process ends.
        _ = configured.changed() => {}
        () = tokio::time::sleep(LONGEST) => {}
    }
    connection.as_mut().graceful_shutdown();
    match timeout(GRACE, connection).await {
        Ok(done) => ended(done),
        Err(_) => tracing::debug!("An answer of the inventory was not finished in time"),
    }
}

fn ended(done: hyper::Result<()>) {
    if let Err(error) = done {
        tracing::debug!(%error, "A connection to the inventory ended early");
    }
}
