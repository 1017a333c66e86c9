//! The gateway's own serving certificate: a key made in this process, a CertificateSigningRequest for
//! `addon-signer.io/gateway-serving`, signed by the serving CA. So the process that faces agents never holds a CA key.
//!
//! The pair in use stays until a new one is complete: fetched, its key ours, its names ours, vouched for by the anchors
//! that agents have.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use ring::rand::SystemRandom;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use addon_signer_core::ca::bundle::{BundleError, Purpose};
use addon_signer_core::csr::build::{BuildError, Wish};
use addon_signer_core::keys::private::{KeyError, PrivateKey};
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{GATEWAY_COMMON_NAME, GATEWAY_SERVING_SIGNER};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::Trust;
use addon_signer_platform::clock::Clock;

/// How long one request is waited for. A new one is made then: the old may have been deleted, or never be approved.
const PATIENCE: Duration = Duration::from_secs(300);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often the time of day is looked at: certificates end by that, not by how long this process has run.
const LOOK: Duration = Duration::from_secs(5);

/// The names that agents call the gateway by. At least one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingNames {
    /// DNS names.
    pub dns: BTreeSet<String>,
    /// Addresses.
    pub ips: BTreeSet<IpAddr>,
}

/// Why there is no new serving certificate.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// No key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No request.
    #[error(transparent)]
    Request(#[from] BuildError),
    /// The API server does not take or show the request.
    #[error("the API server refused: {0}")]
    Api(#[from] kube::Error),
    /// `Denied` or `Failed`, with the condition's reason and message.
    #[error("the request {name} was refused: {reason}: {message}")]
    Refused {
        /// The CertificateSigningRequest.
        name: String,
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
    /// Deleted while we waited.
    #[error("the request {0} was deleted before it was answered")]
    Deleted(String),
    /// Nobody answered.
    #[error("the request {0} was not answered in time; is the hub running?")]
    Unanswered(String),
    /// Not exactly one certificate in PEM.
    #[error("the certificate of the request {0} cannot be read")]
    Unreadable(String),
    /// The certificate is of another key.
    #[error("the certificate of the request {0} is not of the key that asked")]
    AnotherKey(String),
    /// One of the names is missing.
    #[error("the certificate does not hold the name {0}")]
    NameMissing(String),
    /// The serving anchors do not vouch for it.
    #[error("agents would not accept the certificate: {0}")]
    NotAccepted(#[from] BundleError),
    /// There are no anchors any more.
    #[error("the serving CA is gone")]
    NoAnchors,
    /// rustls does not take the key.
    #[error("the key cannot serve: {0}")]
    Rustls(#[from] rustls::Error),
}

/// A complete pair.
struct ServingCertificate {
    pair: Arc<CertifiedKey>,
    issuer: String,
    renew_at: Timestamp,
}

/// Keeps a serving certificate in `out` until `stop`, or until nobody tells whom to trust any more.
///
/// It is renewed at 2/3 of its life, and at once when another authority of the serving line has become the active one.
/// A refusal is logged with its reason and asked again after a pause that doubles up to a minute.
pub async fn keep_serving_certificate(
    client: Client,
    names: ServingNames,
    clock: Clock,
    mut trust: watch::Receiver<Arc<Trust>>,
    out: watch::Sender<Option<Arc<CertifiedKey>>>,
    stop: CancellationToken,
) {
    let requests = Api::all(client);
    let keeping = async {
        let (mut held, mut pause) = (None, FIRST_PAUSE);
        loop {
            if !until_due(held.as_ref(), &clock, &mut trust).await {
                return;
            }
            match obtain(&requests, &names, &clock, &trust).await {
                Ok(new) => {
                    tracing::info!(issuer = %new.issuer, renew_at = %new.renew_at, "Has a serving certificate");
                    out.send_replace(Some(Arc::clone(&new.pair)));
                    // A hub that signs by an authority that is not the active one is not asked in a spin.
                    if trust.borrow().serving_active.as_ref() == Some(&new.issuer) {
                        pause = FIRST_PAUSE;
                    }
                    held = Some(new);
                }
                Err(error) => {
                    tracing::warn!(%error, retry_in = ?pause, "Has no new serving certificate");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    stop.run_until_cancelled(keeping).await;
}

/// Waits until a certificate is needed and there is a serving CA; `false` when nobody tells whom to trust any more.
async fn until_due(held: Option<&ServingCertificate>, clock: &Clock, trust: &mut watch::Receiver<Arc<Trust>>) -> bool {
    loop {
        let active = trust.borrow_and_update().serving_active.clone();
        let due = match (held, active) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(held), Some(active)) => held.issuer != active || clock.now() >= held.renew_at,
        };
        if due {
            return true;
        }
        tokio::select! {
            changed = trust.changed() => if changed.is_err() { return false },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

async fn obtain(
    requests: &Api<CertificateSigningRequest>,
    names: &ServingNames,
    clock: &Clock,
    trust: &watch::Receiver<Arc<Trust>>,
) -> Result<ServingCertificate, ServingError> {
    let rng = SystemRandom::new();
    let (key, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng)?;
    let wish = Wish {
        common_name: GATEWAY_COMMON_NAME.to_owned(),
        organizations: Vec::new(),
        dns_names: names.dns.iter().cloned().collect(),
        ip_addresses: names.ips.iter().copied().collect(),
    };
    let pem = wish.sign(&key, &rng)?;
    let name = create(requests, pem.into_bytes()).await?;
    let answer = tokio::time::timeout(PATIENCE, wait(requests, &name)).await;
    let pem = answer.map_err(|_| ServingError::Unanswered(name.clone()))??;
    let read = addon_signer_core::encoding::pem::certificates(&pem).unwrap_or_default();
    let [leaf] = read.as_slice() else { return Err(ServingError::Unreadable(name)) };
    let snapshot = Arc::clone(&trust.borrow());
    let (issuer, renew_at) = check(leaf, &name, &key, names, &snapshot, clock.now())?;
    let signing = rustls::crypto::ring::sign::any_ecdsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()).into())?;
    Ok(ServingCertificate { pair: Arc::new(CertifiedKey::new(vec![leaf.clone()], signing)), issuer, renew_at })
}

async fn create(requests: &Api<CertificateSigningRequest>, request: Vec<u8>) -> Result<String, ServingError> {
    let metadata = ObjectMeta { generate_name: Some(format!("{GATEWAY_COMMON_NAME}-")), ..ObjectMeta::default() };
    let spec = CertificateSigningRequestSpec {
        request: ByteString(request),
        signer_name: GATEWAY_SERVING_SIGNER.to_owned(),
        usages: Some(vec!["digital signature".to_owned(), "server auth".to_owned()]),
        ..CertificateSigningRequestSpec::default()
    };
    let request = CertificateSigningRequest { metadata, spec, status: None };
    let created = requests.create(&PostParams::default(), &request).await?;
    Ok(created.metadata.name.unwrap_or_default())
}

/// The certificate in PEM, once it is there. While the API server is away it is asked again, with a growing pause.
async fn wait(requests: &Api<CertificateSigningRequest>, name: &str) -> Result<Vec<u8>, ServingError> {
    let mut seen = pin!(watch_object(requests.clone(), name).default_backoff());
    loop {
        match seen.try_next().await {
            Ok(Some(Some(request))) => {
                if let Some(answer) = answer(&request, name) {
                    return answer;
                }
            }
            Ok(Some(None)) => return Err(ServingError::Deleted(name.to_owned())),
            Ok(None) => return Err(ServingError::Unanswered(name.to_owned())),
            Err(error) => tracing::warn!(%error, request = name, "Could not watch a request; tries again"),
        }
    }
}

/// What a request has come to; `None` while it is open.
fn answer(request: &CertificateSigningRequest, name: &str) -> Option<Result<Vec<u8>, ServingError>> {
    let status = request.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let refused = conditions.iter().find(|one| ["Denied", "Failed"].contains(&one.type_.as_str()));
    if let Some(condition) = refused {
        return Some(Err(ServingError::Refused {
            name: name.to_owned(),
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
        }));
    }
    status.certificate.as_ref().filter(|pem| !pem.0.is_empty()).map(|pem| Ok(pem.0.clone()))
}

/// Which authority signed it and when to renew it, if agents will accept it for all the names.
fn check(
    leaf: &CertificateDer<'_>,
    name: &str,
    key: &PrivateKey,
    names: &ServingNames,
    trust: &Trust,
    now: Timestamp,
) -> Result<(String, Timestamp), ServingError> {
    let unreadable = || ServingError::Unreadable(name.to_owned());
    let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| unreadable())?;
    if parsed.public_key().raw != key.public_key_der() {
        return Err(ServingError::AnotherKey(name.to_owned()));
    }
    let anchors = trust.serving_anchors.as_ref().ok_or(ServingError::NoAnchors)?;
    let issuer = anchors.verify(leaf, Purpose::Server, now)?.id().to_owned();
    let certificate = webpki::EndEntityCert::try_from(leaf).map_err(|_| unreadable())?;
    for wanted in names.dns.iter().cloned().chain(names.ips.iter().map(ToString::to_string)) {
        let holds = ServerName::try_from(wanted.as_str())
            .is_ok_and(|wanted| certificate.verify_is_valid_for_subject_name(&wanted).is_ok());
        if !holds {
            return Err(ServingError::NameMissing(wanted));
        }
    }
    let life = now.until(Timestamp::from_unix(parsed.validity().not_after.timestamp()));
    Ok((issuer, now.plus(life * 2 / 3)))
}

#[cfg(test)]
mod tests;
