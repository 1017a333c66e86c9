//! Gets one certificate through a CertificateSigningRequest, with the cluster's hub kubeconfig.
#![expect(clippy::disallowed_types, reason = "`order` says how much is read of an answer")]

use std::path::PathBuf;
use std::time::Duration;

use futures::{AsyncReadExt, StreamExt};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{ListParams, PostParams, Request};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, ResourceExt};
use ring::rand::SystemRandom;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use super::order::{CsrDecision, CsrTemplate, LISTED, MAX_PAGE_BYTES, MAX_PAGES, MAX_REQUESTS, PAGE};
use super::published::{PUBLISHED, Published, SOME, SOME_PAGES};
use crate::api_error::{ApiError, Attempt};
use addon_signer_core::bounded::{self, Keep, KeptValue};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::credentials::{Credentials, Unusable, Usable, examine};
use addon_signer_core::csr::build::BuildError;
use addon_signer_core::identity::GATEWAY_SERVING_SIGNER;
use addon_signer_core::keys::private::{KeyError, PrivateKey};
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::names::ANNOTATION_TRUST_BUNDLE;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_platform::errors::explain;
use addon_signer_platform::kubeconfig::{Access, KubeconfigError, Plugins};
use addon_signer_platform::kubernetes;

const RESOURCE: &str = "certificatesigningrequests.certificates.k8s.io";
const HUB: &str = "the hub";
/// The time limit of one request to the hub that is not a watch.
const ANSWER: Duration = Duration::from_secs(30);

/// By how much the time of day must differ from the time that has passed for the clock to have been set.
const CLOCK_SET: Duration = Duration::from_secs(60);
/// After this time the agent tries another certificate, whatever its clock says: the hub's may have been wrong.
const AN_HOUR: Duration = Duration::from_secs(3_600);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The hub kubeconfig cannot be used.
    #[error("cannot send requests to the hub: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// The hub refused or did not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The cluster has reached OCM's limit of CSRs.
    #[error(
        "the hub has {0} CSRs from this cluster and addon, the most that OCM allows; wait until it deletes old ones"
    )]
    TooMany(usize),
    /// An approver denied the CSR, or the signer failed it.
    #[error("the hub {verdict} the CSR {name}: {reason}: {message}")]
    Refused {
        /// The CSR.
        name: String,
        /// `denied` or `failed`.
        verdict: &'static str,
        /// CamelCase, for machines.
        reason: String,
        /// A sentence, for people.
        message: String,
    },
    /// The CSR was deleted on the hub.
    #[error("the CSR {0} was deleted on the hub before a certificate was issued")]
    Deleted(String),
    /// The CSR has no decision yet. The next attempt waits for the same CSR.
    #[error("the CSR {0} is still waiting for approval or for its certificate")]
    Pending(String),
    /// The signer provided no anchors to verify the gateway with.
    #[error("the CSR {0} was signed without the annotation {ANNOTATION_TRUST_BUNDLE}; is its signer an AddOnSigner?")]
    NoTrust(String),
    /// The issued certificate is not what the CSR asked for.
    #[error("the certificate that the hub issued for {0} cannot be used: {1}")]
    Unsuitable(String, Unusable),
    /// The hub has issued it just now, so this machine's clock is wrong, or the hub's.
    #[error(
        "the certificate that the hub issued for {name} {fault}, but this machine's clock says {now}: set the clock \
         that is wrong. The agent requests another certificate once its clock is set, or after an hour"
    )]
    WrongClock {
        /// The CSR.
        name: String,
        /// `expired at` or `is not valid before`, with the time.
        fault: String,
        /// The time by this machine's clock.
        now: Timestamp,
        /// Whether the certificate is the one that an earlier attempt has got.
        is_kept: bool,
    },
    /// No key could be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The CSR could not be written.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// A CSR that the hub has not decided. Only this value holds its key.
struct PendingCsr {
    name: String,
    key: Zeroizing<Vec<u8>>,
}

/// What the hub has issued, and when, by both clocks, it was found not to be valid at this time.
struct Untimely {
    name: String,
    credentials: Credentials,
    found: Option<(Timestamp, Instant)>,
}

impl Untimely {
    /// Whether another certificate may help: the clock was set since, or an hour has passed.
    fn is_over(&self, now: Timestamp) -> bool {
        let Some((then, since)) = self.found else { return false };
        let passed = since.elapsed();
        let expected = then.plus(passed);
        passed > AN_HOUR || expected.until(now).max(now.until(expected)) > CLOCK_SET
    }
}

/// Makes CSRs, one at a time.
pub(crate) struct Enroller {
    order: CsrTemplate,
    access: Access,
    plugins: Plugins,
    pending: Option<PendingCsr>,
    untimely: Option<Untimely>,
}

impl Enroller {
    pub(crate) fn new(order: CsrTemplate, kubeconfig: PathBuf, plugins: Plugins) -> Self {
        let access = Access { kubeconfig: Some(kubeconfig), context: None };
        Self { order, access, plugins, pending: None, untimely: None }
    }

    /// The CSRs on the hub. The kubeconfig is read each time, because OCM's agent renews the certificate in it.
    async fn requests(&self) -> Result<Api<CertificateSigningRequest>, EnrolError> {
        let connected = kubernetes::connected(&self.access, self.plugins, Contacts::default()).await?;
        Ok(Api::all(connected.client))
    }

    /// Makes a CSR, or continues with the pending one, and waits at most `limit` for the decision.
    pub(crate) async fn enrol(&mut self, limit: Duration, clock: &Clock) -> Result<(Credentials, Usable), EnrolError> {
        if let Some(untimely) = self.untimely.take() {
            match self.examine(untimely, clock) {
                Err(EnrolError::WrongClock { .. }) if self.untimely.take_if(|it| it.is_over(clock.now())).is_some() => {
                }
                examined => return examined,
            }
        }
        let requests = self.requests().await?;
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => self.request(&requests).await?,
        };
        match self.answer(&requests, &pending, limit).await {
            Ok(CsrDecision::Issued { certificate, bundle }) => {
                let bundle = bundle.ok_or_else(|| EnrolError::NoTrust(pending.name.clone()))?;
                let credentials = Credentials { certificate, key: pending.key, bundle: bundle.into_bytes() };
                self.examine(Untimely { name: pending.name, credentials, found: None }, clock)
            }
            Ok(CsrDecision::Refused { verdict, reason, message }) => {
                Err(EnrolError::Refused { name: pending.name, verdict, reason, message })
            }
            Ok(CsrDecision::Pending) => {
                let name = pending.name.clone();
                self.pending = Some(pending);
                Err(EnrolError::Pending(name))
            }
            Err(EnrolError::Deleted(name)) => Err(EnrolError::Deleted(name)),
            Err(error) => {
                self.pending = Some(pending);
                Err(error)
            }
        }
    }

    /// Examines what the hub has issued, and keeps it if only the time is against it.
    fn examine(&mut self, issued: Untimely, clock: &Clock) -> Result<(Credentials, Usable), EnrolError> {
        let now = clock.now();
        let fault = match examine(&issued.credentials, &self.order.wanted, now, &SystemRandom::new()) {
            Ok(usable) => return Ok((issued.credentials, usable)),
            Err(Unusable::Expired(end)) => format!("expired at {end}"),
            Err(Unusable::NotYetValid(begin)) => format!("is not valid before {begin}"),
            Err(other) => return Err(EnrolError::Unsuitable(issued.name, other)),
        };
        let error = EnrolError::WrongClock { name: issued.name.clone(), fault, now, is_kept: issued.found.is_some() };
        self.untimely = Some(Untimely { found: issued.found.or(Some((now, Instant::now()))), ..issued });
        Err(error)
    }

    async fn request(&self, requests: &Api<CertificateSigningRequest>) -> Result<PendingCsr, EnrolError> {
        self.check_limit(requests).await?;
        let rng = SystemRandom::new();
        let (key, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng)?;
        let object = self.order.object(self.order.wish().sign(&key, &rng)?);
        let attempt = Attempt { server: HUB, verb: "create", resource: RESOURCE };
        let created = answered(attempt, requests.create(&PostParams::default(), &object)).await?;
        let (name, signer) = (created.name_any(), &self.order.signer_name);
        tracing::info!(csr = name, %signer, "Made a CSR, and waits for the hub to answer it");
        let pem = addon_signer_core::encoding::pem::encode_private(&pkcs8);
        Ok(PendingCsr { name, key: Zeroizing::new(pem.as_bytes().to_vec()) })
    }

    /// Whether the hub has published anchors other than these since it signed this certificate. Only what the hub wrote
    /// counts, on CSRs of the gateways or of other agents. It costs the hub neither a CSR nor a certificate. If others
    /// have made so many CSRs of the gateways' signer that the gateways' own cannot be read, the answer is that it may.
    pub(crate) async fn may_have_newer_anchors(&self, usable: &Usable) -> Result<bool, EnrolError> {
        let requests = self.requests().await?;
        let known = usable.bundle.digest();
        let mut newest = None;
        for signer in [GATEWAY_SERVING_SIGNER, &self.order.signer_name] {
            let query = ListParams::default().fields(&format!("spec.signerName={signer}")).limit(SOME);
            let read = |page: &Value| newest = std::mem::take(&mut newest).max(Published::newest(page, &known));
            let is_whole = pages(&requests, query, &PUBLISHED, SOME_PAGES, read).await?;
            if !is_whole && signer == GATEWAY_SERVING_SIGNER {
                let found = "The hub has too many or too large CSRs of this signer for the agent to read them all, so \
                             it requests a certificate, which brings the present anchors";
                tracing::warn!(signer, "{found}");
                return Ok(true);
            }
        }
        let signed = Serial::of(&usable.certificate).map(Serial::made);
        Ok(newest.zip(signed).is_some_and(|(published, signed)| published.replaces(signed)))
    }

    /// Counts the CSRs in any state, as OCM's agent does, but only those that the cluster itself made. Others can make
    /// so many or such large ones with the same labels that these cannot be read; then the agent continues anyway.
    async fn check_limit(&self, requests: &Api<CertificateSigningRequest>) -> Result<(), EnrolError> {
        let query = ListParams::default().labels(&self.order.label_selector()).limit(PAGE);
        let mut ours = 0;
        pages(requests, query, &LISTED, MAX_PAGES, |page| ours += self.order.ours(page)).await?;
        if ours < MAX_REQUESTS { Ok(()) } else { Err(EnrolError::TooMany(ours)) }
    }

    async fn answer(
        &self,
        requests: &Api<CertificateSigningRequest>,
        pending: &PendingCsr,
        limit: Duration,
    ) -> Result<CsrDecision, EnrolError> {
        let mut trouble = None;
        match timeout(limit, final_answer(requests, &pending.name, &mut trouble)).await {
            Ok(answer) => answer,
            Err(_) => match trouble {
                Some(cause) => {
                    let attempt = Attempt { server: HUB, verb: "watch", resource: RESOURCE };
                    Err(attempt.no_answer(cause).into())
                }
                None => Ok(CsrDecision::Pending),
            },
        }
    }
}

/// Watches until the CSR is decided. After an error the watch waits and lists again by itself. `trouble` holds the
/// last error until the hub answers again.
async fn final_answer(
    requests: &Api<CertificateSigningRequest>,
    name: &str,
    trouble: &mut Option<String>,
) -> Result<CsrDecision, EnrolError> {
    let mut seen = std::pin::pin!(watch_object(requests.clone(), name).default_backoff());
    while let Some(event) = seen.next().await {
        match event {
            Ok(Some(request)) => match CsrDecision::of(&request) {
                CsrDecision::Pending => *trouble = None,
                decided => return Ok(decided),
            },
            Ok(None) => return Err(EnrolError::Deleted(name.to_owned())),
            Err(error) => {
                tracing::debug!(request = name, error = explain(&error), "Lost the watch on the CSR");
                *trouble = Some(explain(&error));
            }
        }
    }
    Ok(CsrDecision::Pending)
}

/// Reads at most this many pages, and returns whether these were all of them, and whole.
async fn pages(
    requests: &Api<CertificateSigningRequest>,
    mut query: ListParams,
    wanted: &'static Keep,
    most: usize,
    mut read: impl FnMut(&Value),
) -> Result<bool, EnrolError> {
    let mut is_whole = true;
    for _ in 0..most {
        let attempt = Attempt { server: HUB, verb: "list", resource: RESOURCE };
        let found = answered(attempt, page(requests, &query, wanted)).await?;
        read(&found.value);
        is_whole &= !found.is_cut;
        match found.value.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(token) if !token.is_empty() => query = query.continue_token(token),
            _ => return Ok(is_whole),
        }
    }
    Ok(false)
}

/// Reads one page of CSRs, and discards one that is too large.
async fn page(
    requests: &Api<CertificateSigningRequest>,
    query: &ListParams,
    wanted: &'static Keep,
) -> kube::Result<KeptValue> {
    let request = Request::new(requests.resource_url()).list(query).map_err(kube::Error::BuildRequest)?;
    let body = requests.clone().into_client().request_stream(request).await?;
    let mut text = Vec::new();
    std::pin::pin!(body.take(MAX_PAGE_BYTES + 1)).read_to_end(&mut text).await.map_err(kube::Error::ReadEvents)?;
    if text.len() as u64 > MAX_PAGE_BYTES {
        return Ok(KeptValue { value: Value::Null, is_cut: true });
    }
    bounded::read(&mut serde_json::Deserializer::from_slice(&text), wanted).map_err(kube::Error::SerdeError)
}

async fn answered<T>(attempt: Attempt, request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match timeout(ANSWER, request).await {
        Ok(result) => result.map_err(|error| attempt.failed(&error)),
        Err(_) => Err(attempt.no_answer(format!("no answer within {} s", ANSWER.as_secs()))),
    }
}
