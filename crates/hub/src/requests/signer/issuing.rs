//! Performs the effects that [`Issuance`] names, for one approved request.

use kube::ResourceExt;
use ring::rand::SystemRandom;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

use super::held::Unusable;
use super::{LedRequest, Outcome, Signer, SignerError, SignerKind};
use crate::authorities::reconciler::Reserve;
use crate::authorities::state::ReadyLine;
use crate::requests::action;
use crate::requests::answers::RefusalKind;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::{IssueError, Issued};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::csr::normalised;
use addon_signer_core::identity::SignerName;
use addon_signer_core::issuing::{Effect, End, Event, Issuance, RequestFacts, Signing, Surroundings};
use addon_signer_core::journal::record::{Intended, Intent};
use addon_signer_core::policy::Approved;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_telemetry::audit::Grant;

/// An approved request on which the signer works.
pub(super) struct ApprovedRequest<'r> {
    pub(super) request: LedRequest<'r>,
    pub(super) approved: Approved,
    /// Whether the hub must approve the request; if not, it is approved already.
    pub(super) approve: bool,
}

/// The line that signs, and the trust bundle that is in effect where its certificates are used.
struct SigningLine {
    ready: Arc<ReadyLine>,
    published: Bundle,
}

impl Signer {
    pub(super) async fn issue(&self, request: &ApprovedRequest<'_>) -> Result<Outcome, SignerError> {
        let ApprovedRequest { request: led, approved, approve } = request;
        let LedRequest { csr, now, .. } = *led;
        // The sweep works on this request now; the signer looks again after that.
        let Some(_claim) = self.shared.ledger.claim(action::uid(csr)) else {
            return Ok(Outcome::Wait);
        };
        if let Some(until) = approved.waits_until(now) {
            return self.say_revoked(*led, until).await;
        }
        let Some(line) = self.signing_line() else { return Ok(Outcome::Wait) };
        if let Some(outcome) = self.unproven(*led).await? {
            return Ok(outcome);
        }
        let signing = Signing {
            issuer: &line.ready.stored.issuer,
            published: &line.published,
            serial: Serial::new(now, &SystemRandom::new())?,
            now,
        };
        let issuance = Issuance::new(self.facts(led), approved.clone(), *approve, signing);
        match self.perform(issuance, signing, &line.ready, request).await? {
            End::Published(issued) => {
                let published = self.shared.clock.now();
                self.unconfirmed.mark_published(csr, published);
                self.shared.ledger.published(issued.serial, published).await;
                self.report(request, &issued);
                Ok(Outcome::Published)
            }
            End::Refused => Ok(Outcome::Later(self.shared.retention)),
            End::Later => Ok(Outcome::Wait),
            End::Limited(pause) => self.say_limited(*led, pause).await,
            End::Unusable { row, fault } => {
                let unusable = Unusable { row, csr: csr.name_any(), fault };
                self.hold(*led, &unusable).await
            }
        }
    }

    /// Performs effect after effect until the issuance ends. Writes on the request check that this hub leads; the
    /// ledger refuses those of an earlier leader.
    async fn perform(
        &self,
        mut issuance: Issuance<'_>,
        signing: Signing<'_>,
        ready: &ReadyLine,
        request: &ApprovedRequest<'_>,
    ) -> Result<End, SignerError> {
        let LedRequest { leads, csr, .. } = request.request;
        let answers = self.answers(leads);
        let mut approved_csr = None;
        let mut event = Event::Started(self.unconfirmed.recall(csr));
        loop {
            event = match self.advance(&mut issuance, event, request)? {
                Effect::Reserve(until) => Event::Reserved(self.reserved(ready, until).await),
                Effect::Count => {
                    leads.still()?;
                    Event::Counted(self.take_token(request))
                }
                Effect::RecordIntent(intent) => Event::Intended(self.intend(*intent, &request.approved).await?),
                Effect::Sign(prepared) => {
                    leads.still()?;
                    let rng = SystemRandom::new();
                    Event::Signed(signing.issuer.sign(*prepared, signing.published, signing.now, &rng)?)
                }
                Effect::RecordCertificate(issued, record) => {
                    self.shared.ledger.append(record, "").await?;
                    self.unconfirmed.remember(csr, &issued, signing.now);
                    Event::CertificateRecorded(issued)
                }
                Effect::Approve(publication) => {
                    self.unconfirmed.remember(csr, &publication.issued, signing.now);
                    approved_csr = Some(answers.approve(csr, &self.name()).await?);
                    Event::Approved(publication)
                }
                Effect::Publish(publication) => {
                    self.unconfirmed.remember(csr, &publication.issued, signing.now);
                    let csr = approved_csr.as_ref().unwrap_or(csr);
                    answers.publish(csr, &publication.issued, &publication.trust_bundle).await?;
                    Event::Published(publication)
                }
                Effect::Refuse(issued) => {
                    self.unconfirmed.remember(csr, &issued, signing.now);
                    self.refuse_outdated(request).await?;
                    Event::Done
                }
                Effect::Close(record) => {
                    self.shared.ledger.append(record, "").await?;
                    Event::Done
                }
                Effect::End(end) => return Ok(end),
            };
        }
    }

    /// The next effect, by what the hub knows at this moment.
    fn advance(
        &self,
        issuance: &mut Issuance<'_>,
        event: Event,
        request: &ApprovedRequest<'_>,
    ) -> Result<Effect, IssueError> {
        let approved = &request.approved;
        let led = request.request;
        let is_allowed = self.still_allows(approved, led.config) && self.is_believed(led.csr);
        let valid_from = approved.identity().and_then(|identity| {
            self.shared.registry.read(|registry| registry.valid_from(&identity.cluster, &identity.addon))
        });
        // The anchors stay valid when the line can no longer sign.
        let serving = self.serving.borrow().last().cloned();
        let trust_bundle = serving.as_ref().map(|ready| &ready.bundle);
        issuance.next(event, Surroundings { is_allowed, valid_from, trust_bundle })
    }

    /// Everything that signing needs, or `None` while any of it is not there yet.
    fn signing_line(&self) -> Option<SigningLine> {
        let ready = self.line.borrow().ready().cloned()?;
        self.serving.borrow().last()?;
        let published = match &self.kind {
            // What the gateway has in effect, not what the hub sent: its anchor is trusted before a key signs
            // (invariant I5).
            SignerKind::Client { name, .. } => {
                let applied = self.shared.applied.borrow().clone();
                applied.signers.iter().find(|signer| signer.name == *name)?.client_anchors.clone()
            }
            SignerKind::Serving(_) => ready.bundle.clone(),
        };
        let trusted = published.authorities().contains(ready.stored.issuer.authority());
        trusted.then_some(SigningLine { ready, published })
    }

    fn facts(&self, request: &LedRequest<'_>) -> RequestFacts {
        let LedRequest { csr, config, .. } = request;
        let signer_name = config.map_or_else(SignerName::gateway_serving, |config| config.rules.signer_name.clone());
        RequestFacts {
            uid: action::uid(csr),
            requested: action::requested(csr),
            name: csr.name_any(),
            requester: csr.spec.username.clone().unwrap_or_default(),
            csr_user: self.requester(csr).csr_user.map(str::to_owned),
            csr: normalised(&csr.spec.request.0),
            signer: self.name(),
            generation: config.map_or(0, |config| config.generation),
            signer_name,
        }
    }

    /// Records the intent. If the ledger does not record a new one, the identity gets its token back.
    async fn intend(&self, intent: Intent, approved: &Approved) -> Result<Intended, SignerError> {
        let intended = self.shared.ledger.intend(intent).await;
        if intended != Ok(Intended::Recorded)
            && let Some(identity) = approved.identity()
        {
            self.shared.limits.certificates.lock().unwrap_or_else(PoisonError::into_inner).give_back(identity);
        }
        Ok(intended?)
    }

    fn take_token(&self, request: &ApprovedRequest<'_>) -> Result<(), Duration> {
        let Some(identity) = request.approved.identity() else { return Ok(()) };
        self.shared
            .limits
            .certificates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(identity, request.request.now)
    }

    async fn reserved(&self, ready: &ReadyLine, until: Timestamp) -> bool {
        if ready.line().reserve(until).is_none() {
            return true;
        }
        let Some(active) = ready.line().active() else { return false };
        let (done, persisted) = oneshot::channel();
        let reserve = Reserve { authority: active.authority.id().clone(), until, done };
        self.reserve.send(reserve).await.is_ok() && persisted.await.unwrap_or(false)
    }

    async fn refuse_outdated(&self, request: &ApprovedRequest<'_>) -> Result<(), SignerError> {
        let sentence = "The certificate that was signed for this request was expired, revoked or untrusted before the \
                        hub could publish it. Make a new request.";
        let verdict = if request.approve { RefusalKind::Denied } else { RefusalKind::Failed };
        Ok(self
            .answers(request.request.leads)
            .refuse(request.request.csr, verdict, "CertificateOutdated", sentence)
            .await?)
    }

    fn report(&self, request: &ApprovedRequest<'_>, issued: &Issued) {
        let csr = request.request.csr;
        self.shared.audit.granted(&Grant {
            signer: &self.name(),
            csr: &csr.name_any(),
            requester: self.requester(csr),
            identity: request.approved.identity(),
            issuer: issued.issuer.as_str(),
            serial: issued.serial,
            not_after: issued.not_after,
        });
        self.shared.metrics.requests.issued(&self.name());
    }
}
