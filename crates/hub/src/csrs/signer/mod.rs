//! Serves one signer name: performs for each of its CSRs the action that [`super::action`] names.
//!
//! A good CSR costs two writes: the approval and the certificate. Every write carries the `resourceVersion` of the
//! object that the decision was about. After a conflict, the signer decides again on the new object.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use kube::runtime::events::Recorder;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::HubLinks;
use crate::authorities::reconciler::Reserve;
use crate::authorities::state::LineageState;
use crate::csrs::action::{self, Action, KnownAccounts, Mode};
use crate::csrs::guard::Guarded;
use crate::csrs::status_writer::{RefusalKind, StatusWriter};
use crate::csrs::unconfirmed::{Unconfirmed, WATCH_BEHIND};
use crate::lease::{Leading, Leads, NotLeading, NotWritten};
use crate::registrations::discovery::AddOnVersion;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::ca::issuer::IssueError;
use addon_signer_core::gateway::replicas::TrustInEffect;
use addon_signer_core::keys::private::KeyError;
use addon_signer_core::policy::{GatewayCertificate, GatewayRules, Refusal};
use addon_signer_core::rate::{Buckets, Rate, RateLimiter};
use addon_signer_core::throttle::{Quota, Throttle};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::LedgerError;
use addon_signer_platform::clock::Clock;

mod deciding;
mod issuing;

/// Burst of refusals and conditions for one cluster, as a multiple of an addon's burst of certificates: OCM's agent
/// makes at most ten CSRs per addon.
const ANSWERS: u32 = 5;
/// How often a cluster may get one more after the burst.
const ANSWERS_INTERVAL: Duration = Duration::from_secs(10);

/// How many of its own certificates a gateway's pod may get. It needs two; an attacker who controls it must not be able
/// to fill the ledger's disk.
const OF_GATEWAYS: Rate = Rate { burst: 20, interval: Duration::from_secs(60) };

/// What a signer signs.
pub(crate) enum SignerKind {
    /// Agents' certificates, for an AddOnSigner.
    Client {
        /// Its name.
        name: String,
        /// Its configuration.
        config: watch::Receiver<Arc<SignerConfig>>,
    },
    /// A certificate of the gateway.
    Gateway {
        /// Which one.
        certificate: GatewayCertificate,
        /// The rules for the gateway's account.
        rules: GatewayRules,
        /// The rules for another account, that of the inventory.
        inventory: Option<GatewayRules>,
    },
}

/// What all signers share.
#[derive(Clone)]
pub(crate) struct SignerShared {
    pub links: HubLinks,
    /// The version of ManagedClusterAddOn.
    pub addons: AddOnVersion,
    /// How long refused CSRs are kept.
    pub retention: Duration,
    /// The accounts whose CSRs are handled specially.
    pub accounts: KnownAccounts,
    /// Writes events.
    pub recorder: Recorder,
    /// The limits of each cluster.
    pub limits: Arc<ClusterLimits>,
}

/// Limits of what one cluster can make the hub do. All signers share the buckets.
pub(crate) struct ClusterLimits {
    /// Certificates.
    pub certificates: Mutex<RateLimiter>,
    /// The gateways' own certificates, by tenant.
    pub gateways: Mutex<Buckets<String>>,
    /// Refusals and other conditions; each costs a write, an event and a line in the logs.
    pub answers: Mutex<Buckets<String>>,
}

impl ClusterLimits {
    /// Limits with full buckets.
    #[must_use]
    pub(crate) fn new(rate: Rate) -> Self {
        let answers = Rate { burst: rate.burst.saturating_mul(ANSWERS), interval: ANSWERS_INTERVAL };
        Self {
            certificates: Mutex::new(RateLimiter::new(rate)),
            gateways: Mutex::new(Buckets::new(OF_GATEWAYS)),
            answers: Mutex::new(Buckets::new(answers)),
        }
    }
}

/// A running signer.
pub(crate) struct Signer {
    /// What it signs.
    pub kind: SignerKind,
    /// What all signers share.
    pub shared: SignerShared,
    /// The lineage that signs.
    pub lineage: watch::Receiver<LineageState>,
    /// Sends reservations to the reconciler of the lineage.
    pub reserve: mpsc::Sender<Reserve>,
    /// The gateway's serving lineage, whose anchors are published with each certificate.
    pub serving: watch::Receiver<LineageState>,
    /// Signed certificates that the watch has not shown yet, by the UID of their CSR.
    pub unconfirmed: Unconfirmed,
}

/// Why an action failed; the signer retries it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignerError {
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

impl SignerError {
    /// Whether the API server reports that the hub lacks a right.
    #[must_use]
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 403)
    }
}

impl From<NotWritten> for SignerError {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::NotLeading(error) => error.into(),
            NotWritten::Api(error) => error.into(),
        }
    }
}

/// What the hub does next about a CSR.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing until the CSR changes.
    Done,
    /// Nothing: the hub has just published its certificate.
    Published,
    /// Nothing until the CSR or the signer changes.
    AwaitChange,
    /// It waits for something in the hub.
    Wait,
    /// It is checked again after this time.
    Later(Duration),
    /// Its addon or cluster is rate-limited, and may have one more after this time at the earliest.
    Limited(Duration),
    /// It waits for an administrator: its row of the ledger cannot be used, or the hub cannot tell whether the policy
    /// addon-signer-grpc-account holds for it.
    Quarantined,
    /// It failed, and is retried.
    Failed(SignerError),
}

/// Waits for changes of what the CSRs of a signer may wait for.
pub(crate) struct Changes {
    config: Option<watch::Receiver<Arc<SignerConfig>>>,
    lineage: watch::Receiver<LineageState>,
    serving: watch::Receiver<LineageState>,
    in_effect: watch::Receiver<TrustInEffect>,
    guard: watch::Receiver<Guarded>,
    leading: Leading,
}

impl Changes {
    /// Waits for the next change, or forever if all senders have ended.
    pub(crate) async fn next(&mut self) {
        let config = async {
            match &mut self.config {
                Some(config) => config.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok(()) = config => {}
            Ok(()) = self.lineage.changed() => {}
            Ok(()) = self.serving.changed() => {}
            Ok(()) = self.in_effect.changed() => {}
            Ok(()) = self.guard.changed() => {}
            () = self.leading.changed() => {}
        }
    }
}

impl Signer {
    /// Handles a CSR once.
    ///
    /// # Errors
    /// [`SignerError`]; the next attempt continues what this one has begun.
    pub(crate) async fn work(&self, csr: &CertificateSigningRequest) -> Result<Outcome, SignerError> {
        let now = self.shared.links.clock.now();
        let config = self.config();
        let approves = config.as_ref().is_none_or(|config| config.approves);
        let mode = Mode { approves, retention: self.shared.retention };
        let action = match action::settled(csr, mode, now) {
            Some(action) => action,
            None => self.decide(csr, mode, config.as_deref()).await?,
        };
        match action {
            Action::Rest => Ok(Outcome::Done),
            Action::AwaitApproval => Ok(Outcome::AwaitChange),
            Action::Limited(pause) => Ok(Outcome::Limited(pause)),
            Action::Wait => Ok(Outcome::Wait),
            action => match self.shared.links.leading.leads() {
                Ok(leads) => self.act(&leads, csr, now, config.as_deref(), action).await,
                Err(NotLeading) => Ok(Outcome::Wait),
            },
        }
    }

    /// How long to wait because the hub has just published the certificate of this CSR: the watch shows an object that
    /// is older than the hub's own write, so another write would conflict.
    pub(crate) fn awaits_watch(&self, csr: &CertificateSigningRequest) -> Option<Duration> {
        let now = self.shared.links.clock.now();
        self.unconfirmed.was_published(csr, now).then_some(WATCH_BEHIND)
    }

    /// Performs an action that only the leader may perform.
    async fn act(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        now: Timestamp,
        config: Option<&SignerConfig>,
        action: Action,
    ) -> Result<Outcome, SignerError> {
        let done = match action {
            Action::DeleteAfter(Duration::ZERO) => self.delete(leads, csr).await,
            Action::DeleteAfter(pause) => Ok(Outcome::Later(pause)),
            Action::Deny(refusal) => self.refuse(leads, csr, now, RefusalKind::Denied, &refusal).await,
            Action::Fail(refusal) => self.refuse(leads, csr, now, RefusalKind::Failed, &refusal).await,
            Action::Issue { approved, approve } => self.issue(leads, csr, now, config, approved, approve).await,
            Action::PolicyProblem(problem) => {
                self.say_unproven(leads, csr, now, &problem).await.map(|()| Outcome::Wait)
            }
            Action::Rest | Action::AwaitApproval | Action::Wait | Action::Limited(_) => Ok(Outcome::AwaitChange),
        };
        match done {
            Err(SignerError::NotLeading(_)) => Ok(Outcome::Wait),
            done => done,
        }
    }

    /// What the CSRs of this signer may wait for.
    pub(crate) fn changes(&self) -> Changes {
        let config = match &self.kind {
            SignerKind::Client { config, .. } => Some(config.clone()),
            SignerKind::Gateway { .. } => None,
        };
        Changes {
            config,
            lineage: self.lineage.clone(),
            serving: self.serving.clone(),
            in_effect: self.shared.links.in_effect.clone(),
            guard: self.shared.links.guard.watch(),
            leading: self.shared.links.leading.clone(),
        }
    }

    async fn refuse(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        now: Timestamp,
        verdict: RefusalKind,
        refusal: &Refusal,
    ) -> Result<Outcome, SignerError> {
        if let Err(pause) = self.has_answers(csr) {
            return Ok(Outcome::Limited(pause));
        }
        if let Some(outcome) = self.unproven(leads, csr, now).await? {
            return Ok(outcome);
        }
        if let Err(pause) = self.may_answer(csr, now) {
            return Ok(Outcome::Limited(pause));
        }
        let answers = self.answers(leads);
        self.counted(csr, answers.refuse(csr, verdict, refusal.reason(), &refusal.sentence())).await?;
        self.shared.links.audit.refused(&self.name(), &csr.name_any(), self.requester(csr), refusal);
        self.shared.links.metrics.refused(&self.name(), refusal.reason());
        if let Err(error) = answers.event(csr, &self.shared.recorder, refusal.reason(), &refusal.sentence()).await {
            // The condition on the CSR says the same, so a lost event does no harm.
            warn!(%error, csr = csr.name_any(), "Could not write an event about a refused CSR");
        }
        Ok(Outcome::Later(self.shared.retention))
    }

    /// The tenant whose limits this CSR counts against.
    fn tenant(&self, csr: &CertificateSigningRequest) -> String {
        action::tenant_of(csr, &self.shared.accounts)
    }

    /// Counts one answer that costs writes.
    ///
    /// # Errors
    /// How long the cluster must wait for its next one.
    fn may_answer(&self, csr: &CertificateSigningRequest, now: Timestamp) -> Result<(), Duration> {
        let tenant = self.tenant(csr);
        self.shared.limits.answers.lock().take(&tenant, now)
    }

    /// Writes an answer that was counted, and uncounts it if the write fails.
    async fn counted(
        &self,
        csr: &CertificateSigningRequest,
        write: impl Future<Output = Result<(), NotWritten>>,
    ) -> Result<(), SignerError> {
        let written = write.await;
        if written.is_err() {
            let tenant = self.tenant(csr);
            self.shared.limits.answers.lock().give_back(&tenant);
        }
        Ok(written?)
    }

    async fn delete(&self, leads: &Leads, csr: &CertificateSigningRequest) -> Result<Outcome, SignerError> {
        let name = csr.name_any();
        if self.answers(leads).delete(csr).await? {
            info!(csr = name, "The hub deleted a refused CSR after the retention");
        } else {
            info!(csr = name, "A refused CSR is deleted when somebody removes its finalizers");
        }
        Ok(Outcome::Done)
    }

    fn answers<'l>(&self, leads: &'l Leads) -> StatusWriter<'l> {
        StatusWriter::new(self.shared.links.client.clone(), leads)
    }

    /// The name of the AddOnSigner; the gateway's own signers have names too.
    pub(crate) fn name(&self) -> String {
        match &self.kind {
            SignerKind::Client { name, .. } => name.clone(),
            SignerKind::Gateway { certificate, .. } => certificate.name().to_owned(),
        }
    }
}

/// How many failures of one cluster's CSRs are logged; the others are counted.
const LOGGED: Quota = Quota { first: 5, window: Duration::from_secs(60) };

/// The failures of each cluster.
pub(super) struct Failures {
    throttle: Throttle<Arc<str>>,
    clock: Clock,
}

impl Failures {
    pub(super) fn new(clock: Clock) -> Self {
        Self { throttle: Throttle::new(LOGGED), clock }
    }

    /// Logs that the work on a CSR of this tenant failed.
    pub(super) fn report(&mut self, name: &str, tenant: &Arc<str>, error: &SignerError) {
        let now = self.clock.now();
        let taken = self.throttle.take(tenant, now);
        for sum in self.throttle.ended(now).into_iter().chain(taken.before) {
            info!(requester = &*sum.cause, count = sum.count, "More failures on CSRs were not logged");
        }
        match error {
            // The ledger's writer has logged the error, once for all CSRs that wait.
            SignerError::Ledger(_) => debug!(csr = name, %error, "A CSR waits for the ledger"),
            _ if taken.write => info!(csr = name, %error, "Could not work on a CSR; the hub retries"),
            _ => {}
        }
    }
}
