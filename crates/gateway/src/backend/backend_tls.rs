//! How the gateway checks a backend's certificate, and what it shows to the backend.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificates::is_current;
use crate::tls::{H2, HTTP_1_1};
use addon_signer_core::gateway::route::{BackendTls, Protocol};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::crypto;

/// How long a request waits for a certificate to show.
const AWAIT_CERTIFICATE: Duration = Duration::from_secs(3);

/// The TLS configurations of one backend.
pub(super) struct BackendTlsConfig {
    usual: BackendConnector,
    /// Without HTTP/2, which has no upgrades.
    http1: BackendConnector,
}

/// Opens TLS connections.
pub(super) struct BackendConnector {
    connector: TlsConnector,
    name: ServerName<'static>,
    /// Present if the backend must identify the gateway.
    shown: Option<ShownCertificate>,
    clock: Clock,
}

/// The gateway's client certificate; `None` until there is one.
pub(super) type ShownCertificate = watch::Receiver<Option<Arc<CertifiedKey>>>;

/// The certificate that a connection has shown, if it has shown one. A connection takes no further requests once there
/// is a newer one: a backend may check at each request whether the certificate has expired, as kube-apiserver does.
#[derive(Clone, Default)]
pub(super) struct Shown(Option<Arc<CertifiedKey>>);

impl Shown {
    pub(super) fn is(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// Shows the newest certificate in each handshake.
#[derive(Debug)]
struct ShowNewest(ShownCertificate);

impl ResolvesClientCert for ShowNewest {
    /// The certificate is shown to every backend that asks, whichever CAs it names.
    fn resolve(&self, _issuers: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl BackendTlsConfig {
    /// # Errors
    /// One sentence, without a period.
    pub(super) fn new(
        tls: &BackendTls,
        protocol: Protocol,
        shown: &ShownCertificate,
        clock: &Clock,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for anchor in &*tls.anchors {
            roots
                .add(anchor.clone())
                .map_err(|error| format!("a CA certificate of the backend is unusable: {error}"))?;
        }
        let name = ServerName::try_from(tls.server_name.clone())
            .map_err(|error| format!("{:?} is no name for a certificate: {error}", tls.server_name))?;
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let builder = ClientConfig::builder_with_details(crypto::provider(), Arc::new(clock.clone()))
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let shown = tls.client_certificate.then(|| shown.clone());
        let config = match &shown {
            Some(shown) => builder.with_client_cert_resolver(Arc::new(ShowNewest(shown.clone()))),
            None => builder.with_no_client_auth(),
        };
        let connector = |alpn: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
            // A resumed session shows the backend no certificate, and takes the backend's as checked before.
            config.resumption = Resumption::disabled();
            BackendConnector {
                connector: TlsConnector::from(Arc::new(config)),
                name: name.clone(),
                shown: shown.clone(),
                clock: clock.clone(),
            }
        };
        let usual = match protocol {
            Protocol::H2 | Protocol::H2c => connector(&[H2]),
            Protocol::Https => connector(&[H2, HTTP_1_1]),
            Protocol::Http | Protocol::Wss => connector(&[HTTP_1_1]),
        };
        Ok(Self { usual, http1: connector(&[HTTP_1_1]) })
    }

    /// The certificate that a handshake would show now.
    pub(super) fn shown(&self) -> Shown {
        Shown(self.usual.shown.as_ref().and_then(|shown| shown.borrow().clone()))
    }

    pub(super) fn connector(&self, is_http1: bool) -> &BackendConnector {
        if is_http1 { &self.http1 } else { &self.usual }
    }
}

impl BackendConnector {
    pub(super) async fn connect(&self, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        if let Some(shown) = &self.shown {
            let mut shown = shown.clone();
            let valid = shown.wait_for(|pair| is_current(pair.as_deref(), self.clock.now()));
            // A gateway that has just started gets it within a second or two.
            if !matches!(timeout(AWAIT_CERTIFICATE, valid).await, Ok(Ok(_))) {
                return Err(io::Error::other("the gateway has no valid certificate to show to the backend"));
            }
        }
        self.connector.connect(self.name.clone(), tcp).await
    }
}
