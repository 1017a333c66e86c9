//! One signer name: a watch of its requests, and for each request the action that [`super::plan`] names.
//!
//! A good request costs two writes: the approval and the certificate. Every write carries the `resourceVersion` of the object
//! that was decided on; a conflict means deciding again on the fresh object.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::runtime::controller::{self, Action as Requeue, ReconcileRequest, applier};
use kube::runtime::events::Recorder;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use ring::rand::SystemRandom;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

use crate::api::ocm::AddOnApi;
use crate::api::rules::SignerConfig;
use crate::audit::{Audit, Grant};
use crate::ca::bundle::{Bundle, Purpose};
use crate::ca::issuer::{IssueError, Issued, Serial};
use crate::clock::Clock;
use crate::hub::answers::{Answers, Verdict};
use crate::hub::backoff::WatchBackoff;
use crate::hub::keeper::{LineState, ReadyLine, Reserve};
use crate::hub::lease::Leading;
use crate::hub::plan::{self, Action, Mode, RATE_LIMITED};
use crate::hub::registry;
use crate::hub::unconfirmed::{Unconfirmed, WATCH_BEHIND};
use crate::identity::PeerIdentity;
use crate::policy::{self, Approved, Profile, Refusal, ServingRules};
use crate::private_key::KeyError;
use crate::rate::RateLimiter;
use crate::registry::{Registry, SharedRegistry};
use crate::telemetry::Metrics;
use crate::timestamp::Timestamp;
use crate::trust::Trust;

/// Requests in work at once per signer: what keeps one API server busy without queueing in it.
const CONCURRENCY: u16 = 16;
/// How soon a request is looked at again that waits for something inside the hub.
const SOON: Duration = Duration::from_millis(500);
/// How soon a failed action is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// What a signer signs.
pub enum Kind {
    /// Agents' certificates, for an AddOnSigner.
    Client {
        /// Its name.
        name: String,
        /// Its configuration.
        config: watch::Receiver<Arc<SignerConfig>>,
    },
    /// The gateway's serving certificate.
    Serving(ServingRules),
}

/// Settings that all signers share.
#[derive(Clone)]
pub struct Shared {
    /// The hub's account.
    pub client: Client,
    /// The time.
    pub clock: Clock,
    /// Who is registered.
    pub registry: SharedRegistry,
    /// The version of ManagedClusterAddOn.
    pub addon_api: AddOnApi,
    /// How long refused requests are kept.
    pub retention: Duration,
    /// What the gateway has in effect.
    pub applied: watch::Receiver<Arc<Trust>>,
    /// Whether this hub may act.
    pub leading: Leading,
    /// Where events go.
    pub recorder: Recorder,
    /// Counters.
    pub metrics: Metrics,
    /// Where decisions are told.
    pub audit: Audit,
}

/// One signer at work.
pub struct Signer {
    /// What it signs.
    pub kind: Kind,
    /// What all signers share.
    pub shared: Shared,
    /// The line that signs.
    pub line: watch::Receiver<LineState>,
    /// Where reservations are asked for.
    pub reserve: mpsc::Sender<Reserve>,
    /// The gateway's serving line, whose anchors go out with each certificate.
    pub serving: watch::Receiver<LineState>,
    /// Certificates per identity.
    pub limiter: Mutex<RateLimiter>,
    /// Certificates that were signed and that the watch has not shown yet, by the UID of their request.
    pub unconfirmed: Unconfirmed,
}

/// Why an action did not come about; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// The API server.
    #[error("the API server did not answer as needed: {}", crate::api::words(.0))]
    Api(#[from] kube::Error),
    /// Signing failed; nothing was given away.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// No random numbers.
    #[error(transparent)]
    Random(#[from] KeyError),
}

/// Runs one signer until its watch ends.
pub async fn run(signer: Signer, signer_name: String) {
    let api: Api<CertificateSigningRequest> = Api::all(signer.shared.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.signerName={signer_name}"));
    let (reader, writer) = reflector::store();
    let seen =
        watcher(api, config).backoff(WatchBackoff::default()).modify(plan::trim).reflect(writer).applied_objects();
    let work = applier(
        |csr, signer: Arc<Signer>| async move { signer.reconcile(&csr).await }.boxed(),
        |csr, error, _| {
            info!(csr = csr.name_any(), %error, "Working on a request; trying again");
            Requeue::requeue(RETRY)
        },
        Arc::new(signer),
        reader,
        seen.map_ok(|csr| ReconcileRequest::from(ObjectRef::from_obj(&csr))),
        controller::Config::default().concurrency(CONCURRENCY),
    );
    let report = async |result| {
        if let Err(controller::Error::QueueError(error)) = result {
            warn!(signer_name, %error, "Watching requests; trying again");
        } // errors of the work were logged by the policy above
    };
    work.for_each(report).await;
}

impl Signer {
    async fn reconcile(&self, csr: &CertificateSigningRequest) -> Result<Requeue, SignerError> {
        let now = self.shared.clock.now();
        if !plan::is_issued(csr) && self.unconfirmed.was_published(csr, now) {
            // What the watch shows is older than our own write. Working on it would sign again, in vain.
            return Ok(Requeue::requeue(WATCH_BEHIND));
        }
        let mode = Mode { approves: self.approves(), retention: self.shared.retention };
        let action = plan::plan(csr, mode, now, || self.evaluate(csr));
        let action = match action {
            Action::Deny(Refusal::Registration(_)) | Action::Fail(Refusal::Registration(_)) => {
                let fresh = self.fresh_registration(csr).await?;
                match plan::plan(csr, mode, now, || self.evaluate_on(csr, fresh.as_ref())) {
                    // The gateway goes by the watch, which is late: a certificate now would be refused there.
                    Action::Issue { .. } | Action::AwaitApproval => Action::Wait,
                    settled => settled,
                }
            }
            other => other,
        };
        let acts = !matches!(action, Action::Rest | Action::AwaitApproval | Action::Wait);
        if acts && !self.leads() {
            return Ok(Requeue::requeue(SOON));
        }
        match action {
            Action::Rest => {
                self.unconfirmed.forget(csr);
                Ok(Requeue::await_change())
            }
            Action::AwaitApproval => Ok(Requeue::await_change()),
            Action::Wait => Ok(Requeue::requeue(SOON)),
            Action::DeleteAfter(Duration::ZERO) => self.delete(csr).await,
            Action::DeleteAfter(pause) => Ok(Requeue::requeue(pause)),
            Action::Deny(refusal) => self.refuse(csr, Verdict::Denied, &refusal).await,
            Action::Fail(refusal) => self.refuse(csr, Verdict::Failed, &refusal).await,
            Action::Issue { approved, approve } => self.issue(csr, approved, approve, now).await,
        }
    }

    /// Asked again right before what must be one hub's alone: time passes while a request is worked on.
    fn leads(&self) -> bool {
        self.shared.leading.epoch().is_some()
    }

    fn approves(&self) -> bool {
        match &self.kind {
            Kind::Client { config, .. } => config.borrow().approves,
            Kind::Serving(_) => true,
        }
    }

    fn evaluate(&self, csr: &CertificateSigningRequest) -> Result<Approved, Refusal> {
        self.evaluate_on(csr, None)
    }

    /// Policy, on `fresh` registrations or on those of the watch.
    fn evaluate_on(&self, csr: &CertificateSigningRequest, fresh: Option<&Registry>) -> Result<Approved, Refusal> {
        let submission = plan::submission(csr);
        match &self.kind {
            Kind::Client { config, .. } => {
                let rules = &config.borrow().clone().rules;
                let decide = |registry: &Registry| policy::evaluate(rules, &submission, registry);
                fresh.map_or_else(|| self.shared.registry.read(decide), decide)
            }
            Kind::Serving(rules) => policy::evaluate_serving(rules, &submission),
        }
    }

    /// Before a registration is the reason to refuse, the API server itself is asked: the watch may be late. Its answer is for
    /// this request only, because the watch may have overtaken it.
    async fn fresh_registration(&self, csr: &CertificateSigningRequest) -> Result<Option<Registry>, SignerError> {
        let Kind::Client { config, .. } = &self.kind else { return Ok(None) };
        let config = config.borrow().clone();
        let Some(identity) = policy::claimed_identity(&config.rules, &plan::submission(csr)) else { return Ok(None) };
        let (client, api) = (&self.shared.client, self.shared.addon_api);
        Ok(Some(registry::look_up(client, api, &identity.cluster, &identity.addon).await?))
    }

    async fn issue(
        &self,
        csr: &CertificateSigningRequest,
        approved: Approved,
        approve: bool,
        now: Timestamp,
    ) -> Result<Requeue, SignerError> {
        let Some(signing) = self.signing() else { return Ok(Requeue::requeue(SOON)) };
        let profile = approved.profile().clone();
        let issued = match self.recall(csr, &signing, now) {
            Some(issued) => issued,
            None => match self.sign(approved, &signing, now).await? {
                Outcome::Signed(issued) => {
                    self.unconfirmed.remember(csr, &issued, now);
                    issued
                }
                Outcome::Limited(pause) => return self.say_limited(csr, pause).await,
                Outcome::NotYet => return Ok(Requeue::requeue(SOON)),
            },
        };
        // Read after the reservation: whoever sees these anchors replaced sees the reservation too, and a new serving authority
        // waits for this certificate (invariant I5).
        let Some(trust_bundle) = self.trust_bundle() else { return Ok(Requeue::requeue(SOON)) };
        if !self.leads() {
            return Ok(Requeue::requeue(SOON));
        }
        let answers = self.answers();
        let approved_csr = if approve { Some(answers.approve(csr, &self.name()).await?) } else { None };
        answers.publish(approved_csr.as_ref().unwrap_or(csr), &issued, &trust_bundle).await?;
        self.unconfirmed.mark_published(csr);
        self.report(csr, &profile, &issued);
        Ok(Requeue::await_change())
    }

    /// Everything that signing needs, or `None` while any of it is not there yet.
    fn signing(&self) -> Option<Signing> {
        let ready = self.line.borrow().ready().cloned()?;
        self.trust_bundle()?;
        let published = match &self.kind {
            // What the gateway has in effect, not what it was told: its anchor is trusted before a key signs (invariant I5).
            Kind::Client { name, .. } => {
                let applied = self.shared.applied.borrow().clone();
                applied.signers.iter().find(|signer| signer.name == *name)?.client_anchors.clone()
            }
            Kind::Serving(_) => ready.bundle.clone(),
        };
        let trusted = published.authorities().contains(ready.stored.issuer.authority());
        trusted.then_some(Signing { ready, published })
    }

    /// The anchors of the gateway, which stay good when its line can no longer sign.
    fn trust_bundle(&self) -> Option<String> {
        self.serving.borrow().last().map(|ready| ready.bundle.pem())
    }

    async fn sign(&self, approved: Approved, signing: &Signing, now: Timestamp) -> Result<Outcome, SignerError> {
        let issuer = &signing.ready.stored.issuer;
        let profile = approved.profile().clone();
        let rng = SystemRandom::new();
        let prepared = issuer.prepare(approved, Serial::random(&rng)?, now)?;
        // Persisted before it is signed: an anchor is dropped only when no leaf of it can live any more (invariant I6).
        if !self.reserved(&signing.ready, prepared.not_after()).await {
            return Ok(Outcome::NotYet);
        }
        // Last, so that a request that waits for the hub does not use up what its identity may have.
        if let Profile::Client { identity, .. } = &profile
            && let Err(pause) = self.take_token(identity, now)
        {
            return Ok(Outcome::Limited(pause));
        }
        if !self.leads() {
            return Ok(Outcome::NotYet);
        }
        Ok(Outcome::Signed(issuer.sign(prepared, &signing.published, now, &rng)?))
    }

    async fn reserved(&self, ready: &ReadyLine, until: Timestamp) -> bool {
        if ready.line().reserve(until).is_none() {
            return true;
        }
        let Some(active) = ready.line().active() else { return false };
        let (done, persisted) = oneshot::channel();
        let reserve = Reserve { authority: active.authority.id().to_owned(), until, done };
        self.reserve.send(reserve).await.is_ok() && persisted.await.unwrap_or(false)
    }

    fn take_token(&self, identity: &PeerIdentity, now: Timestamp) -> Result<(), Duration> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner).take(identity, now)
    }

    /// The certificate that was signed for this request before, if the answer to its publication was lost and it still verifies.
    fn recall(&self, csr: &CertificateSigningRequest, signing: &Signing, now: Timestamp) -> Option<Issued> {
        let issued = self.unconfirmed.recall(csr)?;
        let purpose = match self.kind {
            Kind::Client { .. } => Purpose::Client,
            Kind::Serving(_) => Purpose::Server,
        };
        signing.published.verify(&issued.certificate, purpose, now).is_ok().then_some(issued)
    }

    async fn say_limited(&self, csr: &CertificateSigningRequest, pause: Duration) -> Result<Requeue, SignerError> {
        if !plan::has_condition(csr, RATE_LIMITED) {
            let sentence = "This identity had too many certificates; the request waits and is signed later.";
            self.answers().add_condition(csr, RATE_LIMITED, "TooManyRequests", sentence).await?;
            self.shared.metrics.rate_limited(&self.name());
        }
        Ok(Requeue::requeue(pause))
    }

    async fn refuse(
        &self,
        csr: &CertificateSigningRequest,
        verdict: Verdict,
        refusal: &Refusal,
    ) -> Result<Requeue, SignerError> {
        let answers = self.answers();
        answers.refuse(csr, verdict, refusal.reason(), &refusal.sentence()).await?;
        let requester = csr.spec.username.as_deref().unwrap_or_default();
        self.shared.audit.refused(&self.name(), &csr.name_any(), requester, refusal);
        self.shared.metrics.refused(&self.name(), refusal.reason());
        if let Err(error) = answers.event(csr, &self.shared.recorder, refusal).await {
            // The condition on the request says the same; an event is a convenience.
            warn!(%error, csr = csr.name_any(), "Writing the event of a refusal");
        }
        Ok(Requeue::requeue(self.shared.retention))
    }

    async fn delete(&self, csr: &CertificateSigningRequest) -> Result<Requeue, SignerError> {
        self.answers().delete(csr).await?;
        info!(csr = csr.name_any(), "Deleted a refused request after its retention");
        Ok(Requeue::await_change())
    }

    fn report(&self, csr: &CertificateSigningRequest, profile: &Profile, issued: &Issued) {
        let identity = match profile {
            Profile::Client { identity, .. } => Some(identity),
            Profile::Serving { .. } => None,
        };
        self.shared.audit.granted(&Grant {
            signer: &self.name(),
            csr: &csr.name_any(),
            requester: csr.spec.username.as_deref().unwrap_or_default(),
            identity,
            issuer: &issued.issuer,
            serial: &issued.serial.to_string(),
            not_after: &issued.not_after.to_string(),
        });
        self.shared.metrics.issued(&self.name());
    }

    fn answers(&self) -> Answers {
        Answers::new(self.shared.client.clone())
    }

    fn name(&self) -> String {
        match &self.kind {
            Kind::Client { name, .. } => name.clone(),
            Kind::Serving(_) => "gateway-serving".to_owned(),
        }
    }
}

/// What signing needs.
struct Signing {
    ready: Arc<ReadyLine>,
    published: Bundle,
}

enum Outcome {
    Signed(Issued),
    Limited(Duration),
    NotYet,
}
