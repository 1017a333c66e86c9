//! The agent as a client of the gateway: it proves a certificate there and asks whether it should get another one. Each
//! request has its own connection.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONNECTION, ETAG, HOST, IF_NONE_MATCH};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::client::Resumption;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use rustls_pki_types::{PrivatePkcs8KeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::ServiceExt;

use addon_signer_core::credentials::Usable;
use addon_signer_core::gateway::host::Host;
use addon_signer_core::gateway::{PROBLEM_REVOKED, PROBLEM_TYPES};
use addon_signer_core::names::{BUNDLE, HEADER_RENEW_WITHIN, WHOAMI};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::errors::explain;
use addon_signer_platform::proxy::Dialer;

/// The time limit of one request, from connecting to the last byte of the response.
const ANSWER: Duration = Duration::from_secs(10);
/// Larger than any response. It limits how much of the agent's memory a broken gateway can use.
const MAX_BODY: usize = 256 * 1024;
/// How many characters of the gateway's reason are logged.
const LONGEST_DETAIL: usize = 512;

/// The text is not the address of a gateway. It may contain a password, so it is not shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "--gateway (ADDON_SIGNER_GATEWAY) is not the address of a gateway; use https://HOST[:PORT], with an IPv6 address \
     in brackets"
)]
pub struct GatewayUrlError;

/// Why a request to the gateway failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    /// The connection, the TLS handshake or the response failed; the cause says which.
    #[error("the gateway {0} could not be asked: {1}")]
    NotAsked(String, String),
    /// The stored anchors do not verify the gateway's certificate.
    #[error("the gateway {0} has a certificate that the stored trust bundle does not verify: {1}")]
    Untrusted(String, String),
    /// A response other than 200.
    #[error("the gateway {0} refused with {1}: {2}")]
    Refused(String, StatusCode, String),
    /// The hub has revoked the certificate, and would issue another one.
    #[error("the gateway {0} does not accept the certificate: it is revoked")]
    Revoked(String),
    /// The gateway reads a different user from the certificate.
    #[error("the gateway {0} reports a different user for this certificate: {1:?}")]
    OtherUser(String, String),
}

/// The address of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    url: String,
    name: ServerName<'static>,
}

impl FromStr for Gateway {
    type Err = GatewayUrlError;

    fn from_str(text: &str) -> Result<Self, GatewayUrlError> {
        let refused = || GatewayUrlError;
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let plain = uri.scheme_str() == Some("https") && uri.query().is_none() && matches!(uri.path(), "" | "/");
        let authority = uri.authority().filter(|_| plain).ok_or_else(refused)?;
        let host = Host::of_authority(authority.as_str()).ok_or_else(refused)?;
        let name = ServerName::try_from(host.to_string()).map_err(|_| refused())?;
        Ok(Self { url: format!("https://{authority}"), name })
    }
}

/// What the gateway reports to the client with this certificate.
#[derive(Debug)]
pub struct GatewayNews {
    /// Whether the gateway publishes anchors other than the stored ones.
    pub has_other_anchors: bool,
    /// Within what time the certificate should be renewed; `None` if it need not.
    pub renew_within: Option<Duration>,
}

struct Reply {
    status: StatusCode,
    etag: Option<String>,
    renew_within: Option<Duration>,
    body: Bytes,
}

impl Gateway {
    /// Proves the certificate at the gateway: agent and gateway accept each other's certificates, and the gateway reads
    /// `user` from the agent's.
    pub async fn prove(&self, usable: &Usable, user: &str, clock: &Clock) -> Result<(), GatewayError> {
        let reply = self.ask(usable, WHOAMI, None, clock).await?;
        let answer: serde_json::Value = self.expect_ok(&reply).map(serde_json::from_slice)?.unwrap_or_default();
        match answer.get("user").and_then(|found| found.as_str()) {
            Some(found) if found == user => Ok(()),
            other => Err(GatewayError::OtherUser(self.url.clone(), other.unwrap_or_default().to_owned())),
        }
    }

    /// Asks whether the gateway publishes anchors other than the stored ones, and whether to renew. The agent takes no
    /// anchors from the response: an attacker who has taken over a gateway could otherwise give every agent their own.
    pub async fn news(&self, usable: &Usable, clock: &Clock) -> Result<GatewayNews, GatewayError> {
        let tag = format!("\"{}\"", usable.bundle.digest());
        let reply = self.ask(usable, BUNDLE, Some(&tag), clock).await?;
        let is_same = reply.status == StatusCode::NOT_MODIFIED || reply.etag.as_ref() == Some(&tag);
        if !is_same {
            self.expect_ok(&reply)?;
        }
        Ok(GatewayNews { has_other_anchors: !is_same, renew_within: reply.renew_within })
    }

    fn expect_ok<'r>(&self, reply: &'r Reply) -> Result<&'r [u8], GatewayError> {
        if reply.status == StatusCode::OK {
            return Ok(&reply.body);
        }
        // RFC 9457, section 3.1.4. Any body other than a problem document is ignored.
        let problem: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let text = |field| problem.get(field).and_then(|value| value.as_str());
        if reply.status == StatusCode::FORBIDDEN
            && text("type").and_then(|kind| kind.strip_prefix(PROBLEM_TYPES)) == Some(PROBLEM_REVOKED)
        {
            return Err(GatewayError::Revoked(self.url.clone()));
        }
        let detail = text("detail").or_else(|| text("title")).unwrap_or("it gave no reason");
        let detail = detail.chars().take(LONGEST_DETAIL).collect();
        Err(GatewayError::Refused(self.url.clone(), reply.status, detail))
    }

    async fn ask(
        &self,
        usable: &Usable,
        path: &str,
        known: Option<&str>,
        clock: &Clock,
    ) -> Result<Reply, GatewayError> {
        match timeout(ANSWER, self.exchange(usable, path, known, clock)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let kind = if is_untrusted(error.as_ref()) { GatewayError::Untrusted } else { GatewayError::NotAsked };
                Err(kind(self.url.clone(), explain(error.as_ref())))
            }
            Err(_) => Err(GatewayError::NotAsked(self.url.clone(), format!("no answer within {} s", ANSWER.as_secs()))),
        }
    }

    async fn exchange(
        &self,
        usable: &Usable,
        path: &str,
        known: Option<&str>,
        clock: &Clock,
    ) -> Result<Reply, Box<dyn std::error::Error + Send + Sync>> {
        let stream = self.connect(usable, clock).await?;
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(HOST, self.url.trim_start_matches("https://"))
            .header(CONNECTION, "close")
            .header(ACCEPT, "*/*");
        if let Some(tag) = known {
            request = request.header(IF_NONE_MATCH, tag);
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let asked = async move {
            let response = sender.send_request(request).await?;
            let etag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            let seconds = response.headers().get(HEADER_RENEW_WITHIN).and_then(|text| text.to_str().ok()?.parse().ok());
            let renew_within = seconds.map(|seconds: u32| Duration::from_secs(seconds.into()));
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_BODY).collect().await?.to_bytes();
            Ok(Reply { status, etag, renew_within, body })
        };
        let (reply, ended) = tokio::join!(asked, connection);
        // If the connection broke, its error is more precise than the error of the request.
        reply.map_err(|error| ended.err().map_or(error, Into::into))
    }

    async fn connect(
        &self,
        usable: &Usable,
        clock: &Clock,
    ) -> Result<TlsStream<TcpStream>, Box<dyn std::error::Error + Send + Sync>> {
        let config = client_config(usable, clock)?;
        let tcp = Dialer::from_env().oneshot(self.url.parse()?).await?.into_inner();
        Ok(TlsConnector::from(Arc::new(config)).connect(self.name.clone(), tcp).await?)
    }
}

/// Whether the handshake ended because no anchor has signed the gateway's certificate. Other anchors do not help if it
/// has a different name or has expired.
fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    let cause = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
    let cause = cause.and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(cause)) = cause else { return false };
    // An anchor with the same name and a different key.
    matches!(
        cause,
        CertificateError::UnknownIssuer
            | CertificateError::BadSignature
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
    )
}

/// A TLS configuration with the certificate and the anchors of `usable`, without resumption. The gateway's certificate
/// must be valid at the time of `clock`.
///
/// # Errors
/// rustls refuses the certificate, because it does not belong to the key.
pub fn client_config(usable: &Usable, clock: &Clock) -> Result<ClientConfig, rustls::Error> {
    let roots = RootCertStore { roots: usable.bundle.anchors().to_vec() };
    let provider = addon_signer_platform::crypto::provider();
    // rustls takes its own copy of the key and keeps it for as long as the connection lives.
    let key = PrivatePkcs8KeyDer::from(usable.pkcs8.to_vec());
    let chain = std::iter::once(&usable.certificate).chain(&usable.chain).cloned().collect();
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key.into())?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_without_a_path_is_a_gateway() {
        let bad_hosts = ["https://a:b", "https://[127.0.0.1]:1", "https://a:0001", "https://[a]", "https://a..b"];
        for bad in ["", "gateway", "http://a", "https://", "https://a/b", "https://u@a", "https://a?b"]
            .iter()
            .chain(&bad_hosts)
        {
            assert_eq!(bad.parse::<Gateway>(), Err(GatewayUrlError), "{bad:?}");
        }
        for (good, name) in
            [("https://a.example", "a.example"), ("https://127.0.0.1:8443/", "127.0.0.1"), ("https://[::1]:1", "::1")]
        {
            let gateway: Gateway = good.parse().unwrap();
            assert_eq!(gateway.name.to_str(), name);
            assert_eq!(gateway.url, good.trim_end_matches('/'));
        }
    }
}
