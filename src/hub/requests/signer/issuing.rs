//! Performs what [`Issuance`] says, for one approved request: the thin shell around the order in which a certificate is
//! recorded, signed and published.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use kube::runtime::controller::Action as Requeue;
use ring::rand::SystemRandom;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

use super::held::Unusable;
use super::{Kind, SOON, Signer, SignerError};
use crate::audit::Grant;
use crate::hub::authorities::keeper::Reserve;
use crate::hub::authorities::state::ReadyLine;
use crate::hub::lease::Leads;
use crate::hub::requests::answers::RefusalKind;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::{IssueError, Issued};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::identity::PeerIdentity;
use addon_signer_core::issuing::{Effect, End, Event, Issuance, RequestFacts, Signing, Surroundings};
use addon_signer_core::journal::record::{Intended, Intent};
use addon_signer_core::policy::{Approved, GATEWAY_SERVING_SIGNER, Profile};
use addon_signer_core::timestamp::Timestamp;

/// An approved request that is being worked on.
pub(super) struct ApprovedRequest<'j> {
    pub(super) leads: &'j Leads,
    pub(super) csr: &'j CertificateSigningRequest,
    pub(super) approve: bool,
    pub(super) now: Timestamp,
    /// The holder of an agent's certificate; `None` for the gateway's own.
    pub(super) identity: Option<PeerIdentity>,
}

/// The line that signs, and the trust bundle that is in effect where its certificates are used.
struct SigningLine {
    ready: Arc<ReadyLine>,
    published: Bundle,
}

impl Signer {
    pub(super) async fn issue(&self, approved: Approved, job: ApprovedRequest<'_>) -> Result<Requeue, SignerError> {
        // The sweep may be working on this request; it then sees what has become of it.
        let Some(_claim) = self.shared.ledger.claim(job.csr.metadata.uid.as_deref().unwrap_or_default()) else {
            return Ok(Requeue::requeue(SOON));
        };
        let Some(line) = self.signing_line() else { return Ok(Requeue::requeue(SOON)) };
        let signing = Signing {
            issuer: &line.ready.stored.issuer,
            published: &line.published,
            serial: Serial::new(job.now, &SystemRandom::new())?,
            now: job.now,
        };
        let (issuance, first) = Issuance::begin(self.facts(job.csr), approved, job.approve, signing);
        match self.perform(issuance, first, signing, &line.ready, &job).await? {
            End::Published(issued) => {
                self.unconfirmed.mark_published(job.csr);
                self.shared.ledger.published(issued.serial, self.shared.clock.now()).await;
                self.report(&job, &issued);
                Ok(Requeue::await_change())
            }
            End::Refused => Ok(Requeue::requeue(self.shared.retention)),
            End::Later => Ok(Requeue::requeue(SOON)),
            End::Limited(pause) => self.say_limited(job.leads, job.csr, pause).await,
            End::RevokedUntil(until) => self.say_revoked(job.leads, job.csr, until).await,
            End::Unusable { row, fault } => {
                let unusable = Unusable { row, csr: job.csr.name_any(), fault };
                self.hold(job.leads, job.csr, &unusable, job.now).await
            }
        }
    }

    /// Performs effect after effect, each only while this hub leads.
    async fn perform(
        &self,
        mut issuance: Issuance<'_>,
        first: Effect,
        signing: Signing<'_>,
        ready: &ReadyLine,
        job: &ApprovedRequest<'_>,
    ) -> Result<End, SignerError> {
        let answers = self.answers(job.leads);
        let mut approved_csr = None;
        let mut effect = first;
        loop {
            if !matches!(effect, Effect::End(_)) {
                job.leads.still()?;
            }
            let event = match effect {
                Effect::Recall => Event::Recalled(self.unconfirmed.recall(job.csr)),
                Effect::Reserve(until) => Event::Reserved(self.reserved(ready, until).await),
                Effect::Count => Event::Counted(self.take_token(job)),
                Effect::RecordIntent(intent) => Event::Intended(self.intend(*intent, job).await?),
                Effect::Sign(prepared) => {
                    let rng = SystemRandom::new();
                    Event::Signed(signing.issuer.sign(*prepared, signing.published, signing.now, &rng)?)
                }
                Effect::RecordCertificate(issued) => {
                    self.shared.ledger.append(issuance.signed(&issued), "").await?;
                    self.unconfirmed.remember(job.csr, &issued, job.now);
                    Event::Done
                }
                Effect::Approve => {
                    approved_csr = Some(answers.approve(job.csr, &self.name()).await?);
                    Event::Done
                }
                Effect::Publish(publication) => {
                    let csr = approved_csr.as_ref().unwrap_or(job.csr);
                    answers.publish(csr, &publication.issued, &publication.trust_bundle).await?;
                    Event::Done
                }
                Effect::Refuse => {
                    self.refuse_outdated(job).await?;
                    Event::Done
                }
                Effect::Close(record) => {
                    self.shared.ledger.append(record, "").await?;
                    Event::Done
                }
                Effect::End(end) => return Ok(end),
            };
            effect = self.advance(&mut issuance, event, job)?;
        }
    }

    /// What comes next, by what the hub knows at this moment.
    fn advance(
        &self,
        issuance: &mut Issuance<'_>,
        event: Event,
        job: &ApprovedRequest<'_>,
    ) -> Result<Effect, IssueError> {
        let revoked_before = job.identity.as_ref().and_then(|identity| {
            self.shared.registry.read(|registry| registry.revoked_before(&identity.cluster, &identity.addon))
        });
        let serving = self.serving.borrow();
        // The anchors stay good when the line can no longer sign.
        let trust_bundle = serving.last().map(|ready| &ready.bundle);
        issuance.next(event, Surroundings { revoked_before, trust_bundle })
    }

    /// Everything that signing needs, or `None` while any of it is not there yet.
    fn signing_line(&self) -> Option<SigningLine> {
        let ready = self.line.borrow().ready().cloned()?;
        self.serving.borrow().last()?;
        let published = match &self.kind {
            // What the gateway has in effect, not what it was told: its anchor is trusted before a key signs (invariant
            // I5).
            Kind::Client { name, .. } => {
                let applied = self.shared.applied.borrow().clone();
                applied.signers.iter().find(|signer| signer.name == *name)?.client_anchors.clone()
            }
            Kind::Serving(_) => ready.bundle.clone(),
        };
        let trusted = published.authorities().contains(ready.stored.issuer.authority());
        trusted.then_some(SigningLine { ready, published })
    }

    fn facts(&self, csr: &CertificateSigningRequest) -> RequestFacts {
        let (signer_name, generation) = match &self.kind {
            Kind::Client { config, .. } => {
                let config = config.borrow();
                (config.rules.signer_name.clone(), config.generation)
            }
            Kind::Serving(_) => (GATEWAY_SERVING_SIGNER.to_owned(), 0),
        };
        let requested = csr.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        RequestFacts {
            uid: csr.metadata.uid.clone().unwrap_or_default(),
            requested: Timestamp::from_unix(requested),
            name: csr.name_any(),
            requester: csr.spec.username.clone().unwrap_or_default(),
            csr: String::from_utf8_lossy(&csr.spec.request.0).into_owned(),
            signer: self.name(),
            generation,
            signer_name,
        }
    }

    /// An identity gets its token back unless the intent is a new one.
    async fn intend(&self, intent: Intent, job: &ApprovedRequest<'_>) -> Result<Intended, SignerError> {
        let intended = self.shared.ledger.intend(intent).await;
        if intended != Ok(Intended::Recorded)
            && let Some(identity) = &job.identity
        {
            self.limiter.lock().unwrap_or_else(PoisonError::into_inner).give_back(identity);
        }
        Ok(intended?)
    }

    fn take_token(&self, job: &ApprovedRequest<'_>) -> Result<(), Duration> {
        let Some(identity) = &job.identity else { return Ok(()) };
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner).take(identity, job.now)
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

    async fn refuse_outdated(&self, job: &ApprovedRequest<'_>) -> Result<(), SignerError> {
        let sentence = "The certificate that was signed for this request is not accepted any more: it could not be handed \
                        over in time. Make a new request.";
        let verdict = if job.approve { RefusalKind::Denied } else { RefusalKind::Failed };
        Ok(self.answers(job.leads).refuse(job.csr, verdict, "CertificateOutdated", sentence).await?)
    }

    fn report(&self, job: &ApprovedRequest<'_>, issued: &Issued) {
        self.shared.audit.granted(&Grant {
            signer: &self.name(),
            csr: &job.csr.name_any(),
            requester: job.csr.spec.username.as_deref().unwrap_or_default(),
            identity: job.identity.as_ref(),
            issuer: &issued.issuer,
            serial: issued.serial,
            not_after: issued.not_after,
        });
        self.shared.metrics.issued(&self.name());
    }
}

/// Whose certificate it is; `None` for the gateway's own.
pub(super) fn holder(approved: &Approved) -> Option<PeerIdentity> {
    match approved.profile() {
        Profile::Client { identity, .. } => Some(identity.clone()),
        Profile::Serving { .. } => None,
    }
}
