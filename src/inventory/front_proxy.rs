//! Recognizes the API server's front proxy: a client with a certificate of a certain CA, with one of certain common
//! names. kube-apiserver itself publishes both (`pkg/controlplane/controller/clusterauthenticationtrust`), and every
//! aggregated API server reads them the same way (`apiserver/pkg/authentication/request/headerrequest`).

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use tokio::sync::watch;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use addon_signer_hub::send_news;
use addon_signer_platform::backoff::WatchBackoff;
use addon_signer_platform::crypto;

const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const CA_KEY: &str = "requestheader-client-ca-file";
const NAMES_KEY: &str = "requestheader-allowed-names";

/// Which certificates are the front proxy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrontProxy {
    anchors: Vec<CertificateDer<'static>>,
    /// Common names; empty for any name (`--requestheader-allowed-names`).
    names: BTreeSet<String>,
}

/// Why the front proxy cannot be recognized.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrontProxyError {
    #[error(
        "the ConfigMap {NAMESPACE}/{CONFIG_MAP} does not exist; is this a Kubernetes API server that aggregates others?"
    )]
    NoConfigMap,
    #[error(
        "{CA_KEY} is missing in {NAMESPACE}/{CONFIG_MAP}; start kube-apiserver with --requestheader-client-ca-file"
    )]
    NoAnchors,
    #[error("{CA_KEY} in {NAMESPACE}/{CONFIG_MAP} holds something other than certificates")]
    NotCertificates,
    #[error("{NAMES_KEY} in {NAMESPACE}/{CONFIG_MAP} is not a list of names: {0}")]
    Names(#[from] serde_json::Error),
    #[error("a CA of {CA_KEY} cannot be an anchor: {0}")]
    Anchor(#[from] rustls::Error),
    #[error("the verifier of the front proxy's certificate could not be built: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

impl FrontProxy {
    fn read(map: Option<&ConfigMap>) -> Result<Self, FrontProxyError> {
        let data = map.ok_or(FrontProxyError::NoConfigMap)?.data.as_ref();
        let field =
            |key: &str| data.and_then(|data| data.get(key)).map(|text| text.trim()).filter(|text| !text.is_empty());
        let pem = field(CA_KEY).ok_or(FrontProxyError::NoAnchors)?;
        let anchors: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let anchors = anchors.ok().filter(|found| !found.is_empty()).ok_or(FrontProxyError::NotCertificates)?;
        let names: Option<BTreeSet<String>> = serde_json::from_str(field(NAMES_KEY).unwrap_or("[]"))?;
        Ok(Self { anchors, names: names.unwrap_or_default() })
    }

    /// A verifier that accepts only the front proxy's handshake.
    pub(super) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, FrontProxyError> {
        let mut roots = RootCertStore::empty();
        for anchor in &self.anchors {
            roots.add(anchor.clone())?;
        }
        let anchors = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto::provider()).build()?;
        Ok(Arc::new(Verifier { anchors, names: self.names.clone() }))
    }
}

/// Follows the ConfigMap, so that a new CA of the API server is used here too. Sends `None` while the ConfigMap cannot
/// be used.
pub(super) async fn follow(client: Client, out: watch::Sender<Option<FrontProxy>>) {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let mut seen = watch_object(maps, CONFIG_MAP).backoff(WatchBackoff::default()).boxed();
    while let Some(event) = seen.next().await {
        let map = match event {
            Ok(map) => map,
            Err(error) => {
                // The last values stay in effect: an unavailable API server sends no requests either.
                tracing::warn!(
                    %error,
                    "Could not watch {NAMESPACE}/{CONFIG_MAP}; the Role extension-apiserver-authentication-reader \
                     allows it"
                );
                continue;
            }
        };
        let front_proxy = FrontProxy::read(map.as_ref())
            .inspect_err(|error| tracing::warn!(%error, "The inventory is refusing everybody"))
            .ok(); // logged above; no client is accepted
        send_news(&out, front_proxy);
    }
}

/// Checks a certificate with webpki's verifier, and then its common name.
#[derive(Debug)]
struct Verifier {
    anchors: Arc<dyn ClientCertVerifier>,
    names: BTreeSet<String>,
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.anchors.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.anchors.verify_client_cert(leaf, intermediates, now)?;
        if self.names.is_empty() || common_name(leaf).is_some_and(|name| self.names.contains(&name)) {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.anchors.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.anchors.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.anchors.supported_verify_schemes()
    }
}

/// The common name; `None` if there is none, or more than one.
fn common_name(leaf: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let mut names = certificate.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?.to_owned();
    names.next().is_none().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::ca::authority::Authority;
    use addon_signer_core::keys::private::PrivateKey;
    use addon_signer_core::keys::public::KeyKind;
    use addon_signer_core::timestamp::Timestamp;

    fn anchor() -> String {
        let rng = ring::rand::SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let now = Timestamp::from_unix(1_800_000_000);
        let year = std::time::Duration::from_secs(31_536_000);
        Authority::self_signed("front-proxy-ca", &key, now, year, &rng).unwrap().pem()
    }

    fn read(data: &[(&str, &str)]) -> Result<FrontProxy, String> {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let map = ConfigMap { data: Some(data), ..ConfigMap::default() };
        FrontProxy::read(Some(&map)).map_err(|error| error.to_string())
    }

    fn names(front_proxy: &FrontProxy) -> Vec<&str> {
        front_proxy.names.iter().map(String::as_str).collect()
    }

    #[test]
    fn anchors_and_names_are_read_as_the_api_server_writes_them() {
        let first = anchor();
        let second = anchor();
        let both = format!("# rotated\n{first}{second}");
        let read_names = |value: &str| read(&[(CA_KEY, &both), (NAMES_KEY, value)]).unwrap();
        assert_eq!(read_names(r#"["front-proxy-client","aggregator"]"#).anchors.len(), 2);
        assert_eq!(names(&read_names(r#"["front-proxy-client","aggregator"]"#)), ["aggregator", "front-proxy-client"]);
        // An empty list allows any name, as in kube-apiserver.
        for any in ["[]", "null", ""] {
            assert!(names(&read_names(any)).is_empty(), "{any}");
        }
        assert_eq!(read(&[(CA_KEY, &both)]).unwrap(), read_names("[]"));
        read_names("[]").verifier().unwrap();
    }

    #[test]
    fn without_anchors_nobody_is_the_front_proxy() {
        assert!(matches!(FrontProxy::read(None), Err(FrontProxyError::NoConfigMap)));
        for none in [vec![], vec![(CA_KEY, " \n")], vec![(NAMES_KEY, "[]")]] {
            assert!(read(&none).unwrap_err().contains("is missing"), "{none:?}");
        }
        assert!(read(&[(CA_KEY, "-----BEGIN CERTIFICATE-----\n!\n")]).unwrap_err().contains("something other"));
        assert!(read(&[(CA_KEY, "no certificate")]).unwrap_err().contains("something other"));
        let not_a_list = read(&[(CA_KEY, &anchor()), (NAMES_KEY, "front-proxy-client")]).unwrap_err();
        assert!(not_a_list.contains("is not a list of names"), "{not_a_list}");
    }
}
