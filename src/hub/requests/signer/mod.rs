//! Serves one signer name: watches its requests, and performs for each the action that [`super::plan`] names.
//!
//! A good request costs two writes: the approval and the certificate. Every write carries the `resourceVersion` of the
//! object that the decision was about. After a conflict the signer decides again on the fresh object.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::runtime::controller::{self, Action as Requeue, ReconcileRequest, applier};
use kube::runtime::events::Recorder;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info, warn};

mod held;
mod issuing;

pub use held::{HeldRequests, Unusable};
use issuing::ApprovedRequest;

use crate::api::ocm::AddOnApi;
use crate::api::rules::SignerConfig;
use crate::audit::Audit;
use crate::hub::authorities::keeper::Reserve;
use crate::hub::authorities::state::LineState;
use crate::hub::backoff::WatchBackoff;
use crate::hub::lease::{Leading, Leads, NotLeading, NotWritten};
use crate::hub::registrations::registry;
use crate::hub::requests::answers::{Answers, RefusalKind};
use crate::hub::requests::plan::{self, Action, Mode, RATE_LIMITED, REVOKED};
use crate::hub::requests::unconfirmed::{Unconfirmed, WATCH_BEHIND};
use crate::ledger::{Ledger, LedgerError};
use crate::telemetry::Metrics;
use addon_signer_core::ca::issuer::IssueError;
use addon_signer_core::identity::SignerName;
use addon_signer_core::keys::private::KeyError;
use addon_signer_core::policy::{self, Claim, Refusal, ServingRules};
use addon_signer_core::rate::RateLimiter;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::Trust;
use addon_signer_platform::clock::Clock;

/// How many requests of a signer are in work at once. Some of them wait for the ledger; the others keep one API server
/// busy and form no queue in it.
const CONCURRENCY: u16 = 32;
/// How soon the signer looks again at a request that waits for something in the hub.
const SOON: Duration = Duration::from_millis(500);
/// How soon the signer tries a failed action again.
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

/// What all signers share.
#[derive(Clone)]
pub struct SignerShared {
    /// The client with the hub's account.
    pub client: Client,
    /// The clock.
    pub clock: Clock,
    /// Who has standing.
    pub registry: SharedRegistry,
    /// The version of ManagedClusterAddOn.
    pub addon_api: AddOnApi,
    /// How long refused requests are kept.
    pub retention: Duration,
    /// The trust that the gateway has in effect.
    pub applied: watch::Receiver<Arc<Trust>>,
    /// Whether this hub leads.
    pub leading: Leading,
    /// Writes events.
    pub recorder: Recorder,
    /// The counters.
    pub metrics: Metrics,
    /// The audit log.
    pub audit: Audit,
    /// The ledger.
    pub ledger: Ledger,
}

/// A signer that runs.
pub struct Signer {
    /// What it signs.
    pub kind: Kind,
    /// What all signers share.
    pub shared: SignerShared,
    /// The line that signs.
    pub line: watch::Receiver<LineState>,
    /// Sends reservations to the keeper of the line.
    pub reserve: mpsc::Sender<Reserve>,
    /// The gateway's serving line, whose anchors are published with each certificate.
    pub serving: watch::Receiver<LineState>,
    /// Limits the certificates of each identity.
    pub limiter: Mutex<RateLimiter>,
    /// Certificates that were signed and that the watch has not shown yet, by the UID of their request.
    pub unconfirmed: Unconfirmed,
    /// Requests whose row of the ledger cannot be used.
    pub held: HeldRequests,
}

/// Why an action failed; the signer tries it again.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// The API server refused the request or did not answer.
    #[error("the API server refused the request or did not answer: {}", addon_signer_platform::errors::explain(.0))]
    Api(#[from] kube::Error),
    /// Signing failed; nothing was published.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The system has no random numbers.
    #[error(transparent)]
    Random(#[from] KeyError),
    /// The ledger did not record a step. Without it the signer neither signs nor publishes.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Another hub may lead.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

impl From<NotWritten> for SignerError {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::NotLeading(error) => error.into(),
            NotWritten::Api(error) => error.into(),
        }
    }
}

/// Runs one signer until its watch ends.
pub async fn run(signer: Signer, signer_name: SignerName) {
    let api: Api<CertificateSigningRequest> = Api::all(signer.shared.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.signerName={signer_name}"));
    let (reader, writer) = reflector::store();
    let seen =
        watcher(api, config).backoff(WatchBackoff::default()).modify(plan::trim).reflect(writer).applied_objects();
    let work = applier(
        |csr, signer: Arc<Signer>| async move { signer.reconcile(&csr).await }.boxed(),
        |csr, error, _| {
            match error {
                // The ledger's writer has logged the error, once for all requests that wait.
                SignerError::Ledger(_) => debug!(csr = csr.name_any(), %error, "A request waits for the ledger"),
                SignerError::Issue(IssueError::OutOfOrder) => error!(csr = csr.name_any(), %error, "Could not issue"),
                _ => info!(csr = csr.name_any(), %error, "Could not work on a request; the hub retries"),
            }
            Requeue::requeue(RETRY)
        },
        Arc::new(signer),
        reader,
        seen.map_ok(|csr| ReconcileRequest::from(ObjectRef::from_obj(&csr))),
        controller::Config::default().concurrency(CONCURRENCY),
    );
    let report = async |result| {
        if let Err(controller::Error::QueueError(error)) = result {
            warn!(signer_name = signer_name.as_str(), %error, "The watch of requests failed; the hub retries");
        } // the closure above has logged errors of the work
    };
    work.for_each(report).await;
}

impl Signer {
    async fn reconcile(&self, csr: &CertificateSigningRequest) -> Result<Requeue, SignerError> {
        let now = self.shared.clock.now();
        if !plan::is_issued(csr) && self.unconfirmed.was_published(csr, now) {
            // The watch shows an object that is older than the hub's own write. A write on it would be a conflict.
            return Ok(Requeue::requeue(WATCH_BEHIND));
        }
        let mode = Mode { approves: self.approves(), retention: self.shared.retention };
        let action = match plan::settled(csr, mode, now) {
            Some(action) => action,
            None => self.decide(csr, mode).await?,
        };
        match action {
            Action::Rest => {
                self.unconfirmed.forget(csr);
                Ok(Requeue::await_change())
            }
            Action::AwaitApproval => Ok(Requeue::await_change()),
            Action::Wait => Ok(Requeue::requeue(SOON)),
            action => match self.shared.leading.leads() {
                Ok(leads) => self.act(&leads, csr, action, now).await,
                Err(NotLeading) => Ok(Requeue::requeue(SOON)),
            },
        }
    }

    /// Performs an action that only the leader may perform.
    async fn act(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        action: Action,
        now: Timestamp,
    ) -> Result<Requeue, SignerError> {
        let done = match action {
            Action::DeleteAfter(Duration::ZERO) => self.delete(leads, csr).await,
            Action::DeleteAfter(pause) => Ok(Requeue::requeue(pause)),
            Action::Deny(refusal) => self.refuse(leads, csr, RefusalKind::Denied, &refusal).await,
            Action::Fail(refusal) => self.refuse(leads, csr, RefusalKind::Failed, &refusal).await,
            Action::Issue { approved, approve } => {
                self.issue(&ApprovedRequest { leads, csr, approved, approve, now }).await
            }
            Action::Rest | Action::AwaitApproval | Action::Wait => Ok(Requeue::await_change()),
        };
        match done {
            Err(SignerError::NotLeading(_)) => Ok(Requeue::requeue(SOON)),
            done => done,
        }
    }

    fn approves(&self) -> bool {
        match &self.kind {
            Kind::Client { config, .. } => config.borrow().approves,
            Kind::Serving(_) => true,
        }
    }

    /// Asks policy. Before the signer refuses a request because of the registry, it asks the API server itself, because
    /// the watch may be late. The answer counts for this request only, because the watch may know something newer.
    async fn decide(&self, csr: &CertificateSigningRequest, mode: Mode) -> Result<Action, SignerError> {
        let submission = plan::submission(csr);
        let config = match &self.kind {
            Kind::Client { config, .. } => config.borrow().clone(),
            Kind::Serving(rules) => return Ok(plan::answer(csr, mode, policy::evaluate_serving(rules, &submission))),
        };
        let claim = match Claim::read(&config.rules, &submission) {
            Ok(claim) => claim,
            Err(refusal) => return Ok(plan::answer(csr, mode, Err(refusal))),
        };
        match self.shared.registry.read(|registry| claim.decide(registry)) {
            Err(refusal) if refusal.is_final() => {}
            verdict => return Ok(plan::answer(csr, mode, verdict)),
        }
        let identity = claim.identity();
        let SignerShared { client, addon_api, .. } = &self.shared;
        let fresh = registry::look_up(client, *addon_api, &identity.cluster, &identity.addon).await?;
        Ok(match claim.decide(&fresh) {
            // The gateway relies on the watch, which is late: it would refuse the certificate now.
            Ok(_) => Action::Wait,
            refused => plan::answer(csr, mode, refused),
        })
    }

    async fn say_limited(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        pause: Duration,
    ) -> Result<Requeue, SignerError> {
        if !plan::has_condition(csr, RATE_LIMITED) {
            let sentence = "This identity had too many certificates; the request waits and is signed later.";
            self.answers(leads).add_condition(csr, RATE_LIMITED, "TooManyRequests", sentence).await?;
            self.shared.metrics.rate_limited(&self.name());
        }
        Ok(Requeue::requeue(pause))
    }

    /// Lets a request wait. It is not denied: a wrong clock may have set the time ahead by seconds, and OCM's agent
    /// waits for ever on a denied request. The signer looks again now and then, because people may set the time back.
    async fn say_revoked(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        until: Timestamp,
    ) -> Result<Requeue, SignerError> {
        if !plan::has_condition(csr, REVOKED) {
            let sentence =
                format!("All certificates of this addon on this cluster are revoked until {until}; the request waits.");
            self.answers(leads).add_condition(csr, REVOKED, "RevokedUntilLater", &sentence).await?;
        }
        Ok(Requeue::requeue(self.shared.clock.now().until(until).clamp(SOON, RETRY)))
    }

    async fn refuse(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        verdict: RefusalKind,
        refusal: &Refusal,
    ) -> Result<Requeue, SignerError> {
        let answers = self.answers(leads);
        answers.refuse(csr, verdict, refusal.reason(), &refusal.sentence()).await?;
        let requester = csr.spec.username.as_deref().unwrap_or_default();
        self.shared.audit.refused(&self.name(), &csr.name_any(), requester, refusal);
        self.shared.metrics.refused(&self.name(), refusal.reason());
        if let Err(error) = answers.event(csr, &self.shared.recorder, refusal.reason(), &refusal.sentence()).await {
            // The condition on the request says the same; an event is a convenience.
            warn!(%error, csr = csr.name_any(), "Could not write an event about a refused request");
        }
        Ok(Requeue::requeue(self.shared.retention))
    }

    async fn delete(&self, leads: &Leads, csr: &CertificateSigningRequest) -> Result<Requeue, SignerError> {
        self.answers(leads).delete(csr).await?;
        info!(csr = csr.name_any(), "The hub deleted a refused request after the retention");
        Ok(Requeue::await_change())
    }

    fn answers<'l>(&self, leads: &'l Leads) -> Answers<'l> {
        Answers::new(self.shared.client.clone(), leads)
    }

    fn name(&self) -> String {
        match &self.kind {
            Kind::Client { name, .. } => name.clone(),
            Kind::Serving(_) => "gateway-serving".to_owned(),
        }
    }
}
