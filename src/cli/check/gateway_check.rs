//! Checks the gateway from the caller's side.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tower::ServiceExt;

use super::{Finding, Inspection, Verdict, unknown};
use addon_signer_api::{GuardedSigner, Lenient};
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::gateway::host::Host;
use addon_signer_hub::authorities::store::SERVING_CONFIG_MAP;
use addon_signer_platform::errors::explain;
use addon_signer_platform::listing::{self, Selector};
use addon_signer_platform::proxy::Dialer;

/// Timeout for setting up TCP and TLS.
const ANSWER: Duration = Duration::from_secs(10);

/// An address by which agents reach the gateway.
#[derive(Debug, Clone)]
pub(super) struct GatewayAddress {
    uri: Uri,
    name: ServerName<'static>,
}

impl FromStr for GatewayAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "{text:?} is not the address of a gateway; use https://HOST[:PORT], with an IPv6 address in brackets"
            )
        };
        let uri: Uri = text.parse().map_err(|_| refused())?;
        // Anything more is a mistake, and it could be a password.
        let is_bare = uri.path_and_query().is_none_or(|it| it == "/") && !text.contains('@');
        let is_bare = is_bare && uri.scheme_str() == Some("https");
        let authority = uri.authority().filter(|_| is_bare);
        let host = authority.and_then(|authority| Host::of_authority(authority.as_str())).ok_or_else(refused)?;
        Ok(Self { name: ServerName::try_from(host.to_string()).map_err(|_| refused())?, uri })
    }
}

impl Inspection {
    /// Whether each address leads to a gateway with the certificate that agents expect.
    pub(super) async fn gateways(&self, addresses: &[GatewayAddress]) -> Vec<Finding> {
        if addresses.is_empty() {
            let sentence = "it was not checked: pass the address that agents use with --gateway https://HOST[:PORT]";
            return vec![Finding::new(Verdict::Unknown, "gateway", sentence)];
        }
        let maps: Api<Lenient<ConfigMap>> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = match maps.get_opt(SERVING_CONFIG_MAP).await {
            Ok(map) => map,
            Err(error) => return vec![unknown("gateway".to_owned(), &error)],
        };
        let anchors = map.and_then(|map| map.object.data?.remove("ca.crt")).unwrap_or_default();
        let Ok(bundle) = Bundle::from_pem(anchors.as_bytes()) else {
            let sentence = format!("the ConfigMap {SERVING_CONFIG_MAP} has no anchors yet: is a hub running?");
            return vec![Finding::bad("gateway", sentence)];
        };
        let admits = self.gateway_admits().await;
        let mut found = Vec::new();
        for address in addresses {
            let about = format!("gateway {}", address.uri.authority().map_or("", |authority| authority.as_str()));
            found.push(match tokio::time::timeout(ANSWER, shake_hands(address, &bundle)).await {
                Ok(Ok(())) => Finding::good(about, "it presents a certificate for this name that agents accept"),
                Ok(Err(ProbeFailure::Handshake(_))) if !admits => {
                    let sentence = "it accepts no connection until an AddOnSigner has a certificate authority: \
                                    nobody could be let in";
                    Finding::new(Verdict::Unknown, about, sentence)
                }
                Ok(Err(ProbeFailure::Connect(error))) => Finding::bad(
                    about,
                    format!("agents cannot reach it: {error}. Check name and port against the gateway's Service"),
                ),
                Ok(Err(ProbeFailure::Handshake(error))) => Finding::bad(
                    about,
                    format!(
                        "agents do not accept it by this name: {error}. The name must be in `gateway.names` of the \
                         chart's values (--gateway-name), and TLS must pass through to the gateway untouched"
                    ),
                ),
                Err(_) => Finding::bad(
                    about,
                    format!(
                        "it did not answer within {} s: check the Service addon-signer-gateway and any firewalls",
                        ANSWER.as_secs()
                    ),
                ),
            });
        }
        found
    }

    /// Whether there is an authority for the gateway's clients. Without one it closes every connection.
    async fn gateway_admits(&self) -> bool {
        let signers: Api<GuardedSigner> = Api::all(self.client.clone());
        // If that is unknown, the gateway is checked as if there were one.
        let Ok(signers) = listing::all(signers, Selector::all()).await else { return true };
        let mut statuses = signers.into_iter().filter_map(|signer| signer.read().ok()?.status);
        statuses.any(|status| !status.authorities.is_empty())
    }
}

/// Why nothing is known about the server's certificate.
enum ProbeFailure {
    /// No TCP connection, or no TLS server.
    Connect(String),
    /// The connection was closed, or agents would not accept the certificate.
    Handshake(String),
}

/// Checks the server's certificate as agents do. The caller has no client certificate, but the gateway reports that
/// only afterwards (RFC 8446 section 4.4.2.4).
async fn shake_hands(address: &GatewayAddress, bundle: &Bundle) -> Result<(), ProbeFailure> {
    let dialer = Dialer::from_env();
    let tcp = dialer.oneshot(address.uri.clone()).await;
    let tcp = tcp.map_err(|error| ProbeFailure::Connect(explain(error.as_ref())))?.into_inner();
    let roots = RootCertStore { roots: bundle.anchors().to_vec() };
    let config = ClientConfig::builder_with_provider(addon_signer_platform::crypto::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| ProbeFailure::Handshake(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let shaken = TlsConnector::from(Arc::new(config)).connect(address.name.clone(), tcp).await;
    shaken.map(drop).map_err(|error| match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(rustls::Error::InvalidMessage(_)) => {
            ProbeFailure::Connect("what answers there does not speak TLS".to_owned())
        }
        _ => ProbeFailure::Handshake(explain(&error)),
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_without_tls_is_told_from_another_certificate() {
        addon_signer_platform::crypto::install_provider();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            std::future::pending::<()>().await;
        });
        let bundle = Bundle::from_pem(include_bytes!("../../../crates/core/testdata/chains/p256-sha384.pem")).unwrap();
        let failure = shake_hands(&address, &bundle).await.unwrap_err();
        assert!(matches!(failure, ProbeFailure::Connect(cause) if cause == "what answers there does not speak TLS"));
    }

    #[test]
    fn an_address_is_a_host_and_perhaps_a_port() {
        for good in ["https://gateway", "https://gateway/", "https://192.0.2.1:8443", "https://[::1]:8443"] {
            assert!(good.parse::<GatewayAddress>().is_ok(), "{good}");
        }
        for bad in [
            "gateway",
            "http://gateway",
            "https://a:b@gateway",
            "https://gateway/x",
            "https://gateway?x=y",
            "https://",
            "https://[127.0.0.1]:8443",
            "https://::1:8443",
            "https://gateway:08443",
        ] {
            let message = bad.parse::<GatewayAddress>().unwrap_err();
            assert!(
                message.ends_with(
                    "is not the address of a gateway; use https://HOST[:PORT], with an IPv6 address in brackets"
                ),
                "{message}"
            );
        }
    }
}
