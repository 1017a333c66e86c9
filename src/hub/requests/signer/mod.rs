//! One signer name: a watch of its requests, and for each request the action that [`super::plan`] names.
//!
//! A good request costs two writes: the approval and the certificate. Every write carries the `resourceVersion` of the
//! object that was decided on; a conflict means deciding again on the fresh object.

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
use tracing::{debug, info, warn};

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
use addon_signer_core::keys::private::KeyError;
use addon_signer_core::policy::{self, Claim, Refusal, ServingRules};
use addon_signer_core::rate::RateLimiter;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::Trust;
use addon_signer_platform::clock::Clock;

/// Requests in work at once per signer: what keeps one API server busy without queueing in it, while as many wait for
/// the ledger.
const CONCURRENCY: u16 = 32;
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
pub struct SignerShared {
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
    /// Where decisions are recorded.
    pub ledger: Ledger,
}

/// One signer at work.
pub struct Signer {
    /// What it signs.
    pub kind: Kind,
    /// What all signers share.
    pub shared: SignerShared,
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
    /// Requests whose row of the ledger cannot be used.
    pub held: HeldRequests,
}

/// Why an action did not come about; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// The API server.
    #[error("the API server did not answer as needed: {}", addon_signer_platform::errors::explain(.0))]
    Api(#[from] kube::Error),
    /// Signing failed; nothing was given away.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// No random numbers.
    #[error(transparent)]
    Random(#[from] KeyError),
    /// What is not durable is not signed, and not given away.
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
pub async fn run(signer: Signer, signer_name: String) {
    let api: Api<CertificateSigningRequest> = Api::all(signer.shared.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.signerName={signer_name}"));
    let (reader, writer) = reflector::store();
    let seen =
        watcher(api, config).backoff(WatchBackoff::default()).modify(plan::trim).reflect(writer).applied_objects();
    let work = applier(
        |csr, signer: Arc<Signer>| async move { signer.reconcile(&csr).await }.boxed(),
        |csr, error, _| {
            match error {
                // Its writer has said so, once for all that wait.
                SignerError::Ledger(_) => debug!(csr = csr.name_any(), %error, "A request waits for the ledger"),
                _ => info!(csr = csr.name_any(), %error, "Working on a request; trying again"),
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

    /// Does what is one hub's alone.
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
                let identity = issuing::holder(&approved);
                self.issue(approved, ApprovedRequest { leads, csr, approve, now, identity }).await
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

    /// Asks policy. Before a registration is the reason to refuse, the API server itself is asked, because the watch
    /// may be late; its answer is for this request only, because the watch may have overtaken it.
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
            // The gateway goes by the watch, which is late: a certificate now would be refused there.
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

    /// Not denied: the time may be a clock's mistake of seconds, and OCM's agent waits on a denied request for ever.
    /// Looked at again now and then, because the time may be taken back.
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
            warn!(%error, csr = csr.name_any(), "Writing the event of a refusal");
        }
        Ok(Requeue::requeue(self.shared.retention))
    }

    async fn delete(&self, leads: &Leads, csr: &CertificateSigningRequest) -> Result<Requeue, SignerError> {
        self.answers(leads).delete(csr).await?;
        info!(csr = csr.name_any(), "Deleted a refused request after its retention");
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
