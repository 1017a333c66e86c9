//! What all TLS listeners of the process share: the accept loop, and the basis of every TLS configuration.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use addon_signer_platform::clock::Clock;

/// Pause after a failed accept, for instance when file descriptors have run out. To retry at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until `stop` is cancelled, then waits for the connections for at most `drain`.
///
/// `admit` returns the task of a connection, which also does the handshake, or drops the socket.
pub(crate) async fn accept<C>(
    listener: TcpListener,
    drain: Duration,
    stop: &CancellationToken,
    admit: impl Fn(TcpStream, SocketAddr) -> Option<C>,
) where
    C: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => report(ended),
            accepted = listener.accept() => match accepted {
                Ok((tcp, remote)) => {
                    if let Some(connection) = admit(tcp, remote) {
                        connections.spawn(connection);
                    }
                }
                // The client left before its connection was accepted (see accept(2)); the listener still works.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
                Err(error) => {
                    tracing::warn!(%error, "A connection could not be accepted");
                    tokio::select! { () = stop.cancelled() => break, () = tokio::time::sleep(ACCEPT_PAUSE) => {} }
                }
            },
        }
    }
    drop(listener);
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    if timeout(drain, drained).await.is_err() {
        tracing::warn!("Some connections did not end within the drain and were cut");
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "The task of a connection failed");
    }
}

/// ring, the only provider that is linked.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    addon_signer_platform::crypto::provider()
}

/// A TLS configuration with TLS 1.3 only, without resumption or early data; `verifier` checks every client.
///
/// # Errors
/// An error of rustls, which does not happen with ring and TLS 1.3.
pub(crate) fn server_config(
    verifier: Arc<dyn ClientCertVerifier>,
    serving: Arc<CertifiedKey>,
    clock: &Clock,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(ClockTime(clock.clone())))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(serving)));
    // A resumed session skips the verifier: rustls copies the client's chain from the ticket, even if its CA is not
    // trusted any more. So there are no tickets. A new configuration would forget them anyway.
    config.send_tls13_tickets = 0;
    config.max_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(config)
}

/// Gives rustls the time of our clock.
#[derive(Debug)]
struct ClockTime(Clock);

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().unix()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
