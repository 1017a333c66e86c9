//! The gateway's own certificates: the one for agents and the one for backends. The gateway makes a key and a
//! CertificateSigningRequest for `addon-signer.io/gateway-serving` or `addon-signer.io/gateway-client`, and the CA of
//! that lineage signs it. So the gateway never handles a CA key.
//!
//! The gateway keeps its pair until a new one is complete: the certificate exists, has the new key and all its names,
//! and verifies against the anchors that agents or backends have.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
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

use addon_signer_core::ca::authority::{Authority, AuthorityId};
use addon_signer_core::ca::bundle::{BundleError, Purpose};
use addon_signer_core::csr::build::{BuildError, CsrParams};
use addon_signer_core::gateway::host::Host;
use addon_signer_core::keys::private::{KeyError, PrivateKey};
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{GATEWAY_COMMON_NAME, GatewayCertificate};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::Trust;
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::pulse::Pulse;

/// How often the gateway logs that its CSR has no decision. It makes no other one: while no signer runs they would pile
/// up, and the signer would then sign all of them, the one that the gateway waits for among the last.
const REMINDER: Duration = Duration::from_secs(300);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often the time of day is checked. Certificates expire by the time of day, not by how long this process has run.
const POLL: Duration = Duration::from_secs(5);

/// The names that agents use to reach the gateway: at least one. The certificate for backends has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingNames {
    /// DNS names.
    pub dns: BTreeSet<String>,
    /// Addresses.
    pub ips: BTreeSet<IpAddr>,
}

impl ServingNames {
    /// The names and addresses of these hosts.
    #[must_use]
    pub fn of(names: &[Host]) -> Self {
        let mut serving = Self::default();
        for name in names {
            match name {
                Host::Address(address) => serving.ips.insert(*address),
                Host::Name(name) => serving.dns.insert(name.clone()),
            };
        }
        serving
    }
}

/// Which certificate to keep.
#[derive(Debug, Clone)]
pub struct CertificateOrder {
    /// The kind.
    pub certificate: GatewayCertificate,
    /// The names in it.
    pub names: ServingNames,
}

impl CertificateOrder {
    /// The client certificate, which has no names.
    #[must_use]
    pub fn for_backends() -> Self {
        Self { certificate: GatewayCertificate::Client, names: ServingNames::default() }
    }
}

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The key could not be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The CSR could not be made.
    #[error(transparent)]
    Request(#[from] BuildError),
    /// The API server did not create the CSR.
    #[error("the API server did not create the request: {0}")]
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
    /// Deleted while the gateway waited.
    #[error("the request {0} was deleted before it was answered")]
    Deleted(String),
    /// The watch of the CSR ended, which it never does by itself.
    #[error("the watch of the request {0} ended")]
    Ended(String),
    /// There is no certificate in PEM, or one that cannot be read.
    #[error("the certificate of the request {0} cannot be read")]
    Unreadable(String),
    /// The certificate has another key.
    #[error("the certificate of the request {0} does not have the request's key")]
    AnotherKey(String),
    /// One of the names is missing.
    #[error("the certificate lacks the name {0}")]
    NameMissing(String),
    /// The anchors do not accept the certificate.
    #[error("the others would not accept the certificate: {0}")]
    NotAccepted(#[from] BundleError),
    /// There are no longer any anchors.
    #[error("there is no longer a CA for it")]
    NoAnchors,
    /// rustls does not accept the key.
    #[error("rustls does not accept the key: {0}")]
    Rustls(#[from] rustls::Error),
}

/// Whether there is a certificate that is valid at this time, so that agents may accept it.
pub fn is_current(pair: Option<&CertifiedKey>, now: Timestamp) -> bool {
    validity(pair).is_some_and(|validity| validity.contains(&now))
}

/// From when to when the certificate is valid, if there is one.
pub(crate) fn validity(pair: Option<&CertifiedKey>) -> Option<RangeInclusive<Timestamp>> {
    let (_, leaf) = X509Certificate::from_der(pair?.cert.first()?).ok()?;
    let [from, to] = [leaf.validity().not_before, leaf.validity().not_after];
    Some(Timestamp::from_unix(from.timestamp())..=Timestamp::from_unix(to.timestamp()))
}

/// A complete pair of certificate and key.
struct OwnCertificate {
    pair: Arc<CertifiedKey>,
    terms: Terms,
}

/// The authority that signed a certificate, and when it is used.
#[derive(Debug, PartialEq, Eq)]
struct Terms {
    issuer: AuthorityId,
    not_before: Timestamp,
    renew_at: Timestamp,
}

/// Keeps a certificate in `out` until `stop` is cancelled, or until the sender of `trust` is dropped.
///
/// The certificate is renewed at 2/3 of its life, and immediately when another authority of its lineage has become
/// active, or when the clock was set back to before the certificate. A failure is logged with its reason, and tried
/// again after a pause that doubles up to a minute.
pub async fn keep_certificate(
    client: Client,
    wanted: CertificateOrder,
    clock: Clock,
    mut trust: watch::Receiver<Arc<Trust>>,
    out: watch::Sender<Option<Arc<CertifiedKey>>>,
    stop: CancellationToken,
    pulse: Pulse,
) {
    let requests = Api::all(client);
    let signer = wanted.certificate.name();
    let keeping = async {
        let mut held = None;
        let mut pause = FIRST_PAUSE;
        loop {
            if !until_due(wanted.certificate, held.as_ref(), &clock, &mut trust, &pulse).await {
                return;
            }
            match obtain(&requests, &wanted, &clock, &trust, &pulse).await {
                Ok(new) => {
                    let Terms { issuer, renew_at, .. } = &new.terms;
                    tracing::info!(signer, %issuer, %renew_at, "Got a new certificate");
                    out.send_replace(Some(Arc::clone(&new.pair)));
                    // If the hub signed with an authority that is not active, the pause stays long, which avoids a
                    // tight loop.
                    if trust.borrow().active(wanted.certificate) == Some(issuer) {
                        pause = FIRST_PAUSE;
                    }
                    held = Some(new);
                }
                Err(error) => {
                    tracing::warn!(signer, %error, retry_in = ?pause, "Could not get a new certificate");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    stop.run_until_cancelled(keeping).await;
}

/// Waits until a certificate is needed and there is a CA for it; `false` when the sender of `trust` is dropped.
async fn until_due(
    certificate: GatewayCertificate,
    held: Option<&OwnCertificate>,
    clock: &Clock,
    trust: &mut watch::Receiver<Arc<Trust>>,
    pulse: &Pulse,
) -> bool {
    loop {
        pulse.beat(); // the pause after a request takes less time than a task may go without a sign of life
        let active = trust.borrow_and_update().active(certificate).cloned();
        let due = match (held, active) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(OwnCertificate { terms, .. }), Some(active)) => {
                terms.issuer != active || !(terms.not_before..terms.renew_at).contains(&clock.now())
            }
        };
        if due {
            return true;
        }
        tokio::select! {
            changed = trust.changed() => if changed.is_err() { return false },
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

async fn obtain(
    requests: &Api<CertificateSigningRequest>,
    wanted: &CertificateOrder,
    clock: &Clock,
    trust: &watch::Receiver<Arc<Trust>>,
    pulse: &Pulse,
) -> Result<OwnCertificate, CertificateError> {
    let rng = SystemRandom::new();
    let (key, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng)?;
    let wish = CsrParams {
        common_name: GATEWAY_COMMON_NAME.to_owned(),
        organizations: Vec::new(),
        dns_names: wanted.names.dns.iter().cloned().collect(),
        ip_addresses: wanted.names.ips.iter().copied().collect(),
    };
    let pem = wish.sign(&key, &rng)?;
    let name = create(requests, wanted.certificate, pem.into_bytes()).await?;
    let pem = wait(requests, &name, pulse).await?;
    let read = addon_signer_core::encoding::pem::certificates(&pem).unwrap_or_default();
    let snapshot = Arc::clone(&trust.borrow());
    let terms = check(&read, &name, &key, wanted, &snapshot, clock.now())?;
    let signing = rustls::crypto::ring::sign::any_ecdsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()).into())?;
    Ok(OwnCertificate { pair: Arc::new(CertifiedKey::new(read, signing)), terms })
}

async fn create(
    requests: &Api<CertificateSigningRequest>,
    certificate: GatewayCertificate,
    request: Vec<u8>,
) -> Result<String, CertificateError> {
    let metadata = ObjectMeta { generate_name: Some(format!("{GATEWAY_COMMON_NAME}-")), ..ObjectMeta::default() };
    let spec = CertificateSigningRequestSpec {
        request: ByteString(request),
        signer_name: certificate.signer_name().to_string(),
        usages: Some(vec!["digital signature".to_owned(), certificate.usage().to_owned()]),
        ..CertificateSigningRequestSpec::default()
    };
    let request = CertificateSigningRequest { metadata, spec, status: None };
    let created = requests.create(&PostParams::default(), &request).await?;
    Ok(created.metadata.name.unwrap_or_default())
}

/// Waits for the certificate, in PEM. While the API server is unavailable, the watch is retried with a growing pause.
async fn wait(
    requests: &Api<CertificateSigningRequest>,
    name: &str,
    pulse: &Pulse,
) -> Result<Vec<u8>, CertificateError> {
    let mut seen = pin!(watch_object(requests.clone(), name).default_backoff());
    loop {
        pulse.beat();
        let Ok(event) = tokio::time::timeout(REMINDER, seen.try_next()).await else {
            tracing::warn!(request = name, "A request is not answered yet; is the hub running, and does it sign?");
            continue;
        };
        match event {
            Ok(Some(Some(request))) => {
                if let Some(answer) = answer(&request, name) {
                    return answer;
                }
            }
            Ok(Some(None)) => return Err(CertificateError::Deleted(name.to_owned())),
            Ok(None) => return Err(CertificateError::Ended(name.to_owned())),
            Err(error) => tracing::warn!(%error, request = name, "Could not watch a request; retrying"),
        }
    }
}

/// The decision on a CSR; `None` while it is open.
fn answer(request: &CertificateSigningRequest, name: &str) -> Option<Result<Vec<u8>, CertificateError>> {
    let status = request.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    // A new CSR may be signed although the ledger's row of this one cannot be used.
    let refusals = ["Denied", "Failed", "RecordUnusable"];
    let refused = conditions.iter().find(|one| refusals.contains(&one.type_.as_str()));
    if let Some(condition) = refused {
        return Some(Err(CertificateError::Refused {
            name: name.to_owned(),
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
        }));
    }
    status.certificate.as_ref().filter(|pem| !pem.0.is_empty()).map(|pem| Ok(pem.0.clone()))
}

/// Checks that agents or backends will accept the certificate for all names.
fn check(
    chain: &[CertificateDer<'_>],
    name: &str,
    key: &PrivateKey,
    wanted: &CertificateOrder,
    trust: &Trust,
    now: Timestamp,
) -> Result<Terms, CertificateError> {
    let unreadable = || CertificateError::Unreadable(name.to_owned());
    let (leaf, above) = chain.split_first().ok_or_else(unreadable)?;
    let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| unreadable())?;
    if parsed.public_key().raw != key.public_key_der() {
        return Err(CertificateError::AnotherKey(name.to_owned()));
    }
    let CertificateOrder { certificate: kind, names } = wanted;
    let purpose = match kind {
        GatewayCertificate::Serving => Purpose::Server,
        GatewayCertificate::Client => Purpose::Client,
    };
    let anchors = trust.anchors(*kind).ok_or(CertificateError::NoAnchors)?;
    let anchor = anchors.verify_chain(leaf, above, purpose, now)?;
    // The hub sends the chain with it unless the authority signed its own certificate.
    let issuer = above.first().map(|issuer| Authority::from_der(issuer)).transpose().map_err(|_| unreadable())?;
    let issuer = issuer.as_ref().unwrap_or(anchor).id().clone();
    let certificate = webpki::EndEntityCert::try_from(leaf).map_err(|_| unreadable())?;
    for wanted in names.dns.iter().cloned().chain(names.ips.iter().map(ToString::to_string)) {
        let holds = ServerName::try_from(wanted.as_str())
            .is_ok_and(|wanted| certificate.verify_is_valid_for_subject_name(&wanted).is_ok());
        if !holds {
            return Err(CertificateError::NameMissing(wanted));
        }
    }
    let not_before = Timestamp::from_unix(parsed.validity().not_before.timestamp());
    let life = now.until(Timestamp::from_unix(parsed.validity().not_after.timestamp()));
    Ok(Terms { issuer, not_before, renew_at: now.plus(life * 2 / 3) })
}

#[cfg(test)]
mod tests;
