//! What the listeners of the process share: the accept loop and the basis of every TLS configuration, and the listener
//! of metrics, which has no TLS.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use addon_signer_platform::clock::Clock;
use addon_signer_platform::crypto;

mod accept;
mod hello;
mod no_handshake;
mod plain;

pub(crate) use accept::prepare;
pub use accept::{ConnectionHandler, DRAIN_MARGIN, Entered, Permits, SessionPermit, WAITING, accept};
pub use no_handshake::{HandshakeFailure, NoHandshake};
pub use plain::serve_plain;

/// How long a connection whose handshake is not done when the listener stops may still take for it. Go's transport
/// sends a request again only on a connection that had one before (`shouldRetryRequest`).
pub const FIRST: Duration = Duration::from_secs(1);

/// A TLS configuration with TLS 1.3 only, without resumption or early data; `verifier` checks every client.
///
/// # Errors
/// An error of rustls, which does not happen with ring and TLS 1.3.
pub fn server_config(
    verifier: Arc<dyn ClientCertVerifier>,
    serving: Arc<CertifiedKey>,
    clock: &Clock,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_details(crypto::provider(), Arc::new(clock.clone()))
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
