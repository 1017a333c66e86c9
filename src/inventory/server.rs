//! Connections of the front proxy: bounded in number, in the time to begin, and in length.

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

/// Connections at a time. There are as many clients as API servers, and each keeps a few.
const CONNECTIONS: usize = 128;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Without a request. Go's transport gives up an idle connection after 90 s, and should be first: it knows what it
/// sent.
const IDLE: Duration = Duration::from_secs(120);
/// The longest life of a connection, so that none outlives the client's certificate by more.
const LONGEST: Duration = Duration::from_secs(600);
/// What an answer under way gets when its connection must end.
const GRACE: Duration = Duration::from_secs(5);

type Configured = watch::Receiver<Option<Arc<ServerConfig>>>;

/// Accepts until `stop`.
pub(super) async fn run(listener: TcpListener, router: Router, configured: Configured, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let admit = |tcp, remote| {
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::warn!(%remote, "Too many connections to the inventory: one was closed");
            return None;
        };
        let (router, mut configured, stop) = (router.clone(), configured.clone(), stop.clone());
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
    // Fail closed: while nobody is known to be the front proxy there is no TLS at all.
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

/// Serves until the client leaves, the configuration under which it was let in is not the one in effect, or `stop`.
async fn serve(tls: TlsStream<TcpStream>, router: Router, mut configured: Configured, stop: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(tls), TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return ended(done),
        () = stop.cancelled() => {}
        // An error is the end of the sender, and of the process.
        _ = configured.changed() => {}
        () = tokio::time::sleep(LONGEST) => {}
    }
    connection.as_mut().graceful_shutdown();
    match timeout(GRACE, connection).await {
        Ok(done) => ended(done),
        Err(_) => tracing::debug!("An answer of the inventory was cut"),
    }
}

fn ended(done: hyper::Result<()>) {
    if let Err(error) = done {
        tracing::debug!(%error, "A connection to the inventory ended early");
    }
}
