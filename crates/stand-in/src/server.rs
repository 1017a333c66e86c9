//! TLS, the accept loop, and pausing and resuming the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::state::{Hub, now};
use super::{StandInError, handlers};

/// The time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept (no file descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The lifetime of the stand-in's own certificates.
const CERTIFICATE_DAYS: i64 = 365;

/// Tells the accept loop to stop or start serving. `done` is signalled afterwards.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) serve: bool,
    pub(super) done: oneshot::Sender<()>,
}

/// A new CA's certificate in PEM, and the TLS configuration of a server with a certificate of that CA.
pub(super) fn tls(address: SocketAddr) -> Result<(String, Arc<ServerConfig>), StandInError> {
    let mut ca = params("addon-signer stand-in CA", Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;

    let names = vec!["localhost".to_owned(), address.ip().to_string()];
    let mut leaf = params("addon-signer stand-in", names)?;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the stand-in's own server certificate with one CN: nothing for rcgen to lose"
    )]
    let leaf = leaf.signed_by(&key, &ca)?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((ca.pem(), Arc::new(config)))
}

fn params(common_name: &str, names: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = OffsetDateTime::from_unix_timestamp(now()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    params.not_before = now - time::Duration::hours(1);
    params.not_after = now + time::Duration::days(CERTIFICATE_DAYS);
    Ok(params)
}

/// Serves until dropped. While paused it keeps the listener, so that no other process can take the port, but closes
/// every connection at once.
pub(super) async fn run(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    hub: Arc<Hub>,
    mut commands: mpsc::Receiver<Command>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = JoinSet::new();
    let mut serving = true;
    loop {
        tokio::select! {
            command = commands.recv() => {
                let Some(command) = command else { return };
                serving = command.serve;
                if !serving {
                    connections.shutdown().await;
                }
                // An error means that the caller of pause or resume was dropped and no longer waits.
                let _ = command.done.send(());
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if serving => {
                    connections.spawn(connection(stream, acceptor.clone(), Arc::clone(&hub)));
                }
                Ok(_) => {} // dropping the connection closes it
                Err(error) => {
                    tracing::warn!(%error, "Cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, hub: Arc<Hub>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "Cannot set TCP_NODELAY");
    }
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "The TLS handshake failed"),
        Err(_) => return tracing::debug!("The TLS handshake took too long"),
    };
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let hub = Arc::clone(&hub);
        async move { Ok::<_, std::convert::Infallible>(handlers::serve(hub, request).await) }
    });
    let served = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(error = %error, "The connection ended with an error");
    }
}
