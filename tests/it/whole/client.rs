//! An addon that calls the gateway with the certificate and key that its agent stored.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use addon_signer_platform::clock::Clock;
use test_kit::company::chain;
use test_kit::issue::Leaf;

/// Certificate, key and anchors, all PEM. If the certificate is empty, the client shows none.
#[derive(Clone)]
pub(crate) struct ClientPair {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) anchors: Vec<u8>,
}

impl ClientPair {
    /// A certificate that somebody has made, and what is above it.
    pub(crate) fn of_leaf(leaf: &Leaf, above: &[&CertificateDer<'_>], anchors: &[u8]) -> Self {
        let PrivateKeyDer::Pkcs8(key) = &leaf.key else { panic!("the kit makes PKCS#8") };
        let key = addon_signer_core::encoding::pem::encode_private(key.secret_pkcs8_der());
        let certificates = [&[&leaf.certificate], above].concat();
        Self { certificate: chain(&certificates).into_bytes(), key: key.as_bytes().to_vec(), anchors: anchors.to_vec() }
    }

    /// What an agent has stored in a directory; `None` until there are all three files.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        // Callers wait for a pair, so a file that cannot be read is one that is not there yet.
        let read = |name: &str| std::fs::read(directory.join(name)).ok();
        Some(Self { certificate: read("tls.crt")?, key: read("tls.key")?, anchors: read("ca.crt")? })
    }

    /// Whether the key is that of the certificate.
    pub(crate) fn belongs_together(&self) -> bool {
        let Ok(key) = PrivateKeyDer::from_pem_slice(&self.key) else { return false };
        let Ok(certificate) = CertificateDer::from_pem_slice(&self.certificate) else { return false };
        let signing = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
        CertifiedKey::new(vec![certificate], signing).keys_match().is_ok()
    }

    pub(crate) fn leaf(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(&self.certificate).unwrap()
    }

    pub(crate) fn config(&self) -> ClientConfig {
        self.config_at(&Clock::default())
    }

    /// The configuration of a client with this clock.
    fn config_at(&self, clock: &Clock) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for anchor in CertificateDer::pem_slice_iter(&self.anchors) {
            roots.add(anchor.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        if self.certificate.is_empty() {
            return config.with_no_client_auth();
        }
        let chain = CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<_, _>>().unwrap();
        config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&self.key).unwrap()).unwrap()
    }

    pub(crate) async fn connect(&self, gateway: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        Self::connect_with(self.config(), gateway).await
    }

    async fn connect_with(config: ClientConfig, gateway: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(gateway).await?;
        tcp.set_nodelay(true)?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::from(gateway.ip()), tcp).await
    }

    /// What the gateway answers to a client with this clock who asks who it is.
    pub(crate) async fn whoami_at(&self, gateway: SocketAddr, clock: &Clock) -> Option<(StatusCode, String)> {
        let stream = Self::connect_with(self.config_at(clock), gateway).await.ok()?;
        let request = Request::get("/v1/whoami").header("host", gateway.to_string());
        Self::exchange(stream, request).await.ok()
    }

    /// The certificate that the server shows.
    pub(crate) async fn shown(&self, server: SocketAddr) -> Option<CertificateDer<'static>> {
        let stream = self.connect(server).await.ok()?;
        Some(stream.get_ref().1.peer_certificates()?.first()?.clone().into_owned())
    }

    /// Sends one request on a connection of its own.
    pub(crate) async fn call(
        &self,
        gateway: SocketAddr,
        method: Method,
        path: &str,
    ) -> Result<(StatusCode, String), Box<dyn std::error::Error + Send + Sync>> {
        let request = Request::builder().method(method).uri(path).header("host", gateway.to_string());
        self.send(gateway, request).await
    }

    /// Sends one request with its headers on a connection of its own.
    pub(crate) async fn send(
        &self,
        gateway: SocketAddr,
        request: hyper::http::request::Builder,
    ) -> Result<(StatusCode, String), Box<dyn std::error::Error + Send + Sync>> {
        Self::exchange(self.connect(gateway).await?, request).await
    }

    async fn exchange(
        stream: TlsStream<TcpStream>,
        request: hyper::http::request::Builder,
    ) -> Result<(StatusCode, String), Box<dyn std::error::Error + Send + Sync>> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let content = if request.method_ref() == Some(&Method::POST) { "metrics" } else { "" };
        let answer = sender.send_request(request.body(Full::new(Bytes::from_static(content.as_bytes())))?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        drop(sender);
        // The answer is complete, so it does not matter how the connection ends.
        driver.abort();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}
