//! Issues the certificate of one approved CSR: performs the steps of [`issuing::issue`].
//!
//! A CSR is quarantined if its row of the ledger cannot be used, because the ledger was altered or belongs to another
//! hub. The hub signs nothing for it, because it does not know which certificate it got.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use ring::rand::SystemRandom;
use tokio::sync::oneshot;
use tracing::{debug, error, warn};

use super::{Outcome, Signer, SignerError, SignerKind, SignerShared};
use crate::authorities::reconciler::Reserve;
use crate::authorities::state::ReadyLineage;
use crate::csrs::action::{self, RATE_LIMITED, RECORD_UNUSABLE, REVOKED};
use crate::csrs::status_writer::{RefusalKind, StatusWriter};
use crate::lease::Leads;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::ca::issuer::{Issued, Prepared, RecordFault};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::conditions::{
    CERTIFICATE_OUTDATED, LEDGER_ROW_UNUSABLE, REVOKED_UNTIL_LATER, TOO_MANY_REQUESTS,
};
use addon_signer_core::csr::normalised;
use addon_signer_core::issuing::{self, Effects, End, Request, Signing, Surroundings};
use addon_signer_core::journal::record::{Intended, Intent, Record};
use addon_signer_core::policy::Approved;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_telemetry::audit::Grant;

/// Pauses of a CSR whose certificates are revoked until a future time.
const REVOKED_PAUSE: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(5);

/// One attempt to issue a certificate. Writes on the CSR check that this hub leads; the ledger refuses writes of an
/// earlier leader.
struct Attempt<'a> {
    signer: &'a Signer,
    leads: &'a Leads,
    answers: StatusWriter<'a>,
    csr: &'a CertificateSigningRequest,
    /// The object after its approval, on which the certificate is written.
    approved_csr: Option<CertificateSigningRequest>,
    /// The configuration of the decision; `None` for the gateway's own signers.
    config: Option<&'a SignerConfig>,
    request: &'a Request,
    ready: &'a ReadyLineage,
    signing: Signing<'a>,
}

impl Signer {
    pub(super) async fn issue(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        now: Timestamp,
        config: Option<&SignerConfig>,
        approved: Approved,
        approves: bool,
    ) -> Result<Outcome, SignerError> {
        // Recovery has locked this CSR; the signer checks it again afterwards.
        let Some(_lock) = self.shared.links.ledger.lock(action::uid(csr)) else {
            return Ok(Outcome::Wait);
        };
        if let Some(until) = approved.waits_until(now) {
            return self.say_revoked(leads, csr, now, until).await;
        }
        let Some(ready) = self.signing_lineage() else { return Ok(Outcome::Wait) };
        if let Some(outcome) = self.unproven(leads, csr, now).await? {
            return Ok(outcome);
        }
        let serial = Serial::new(now, &SystemRandom::new())?;
        let signing = Signing { issuer: &ready.stored.issuer, published: &ready.bundle, serial, now };
        let request = self.request(csr, config, approved, approves);
        let mut attempt = Attempt {
            signer: self,
            leads,
            answers: self.answers(leads),
            csr,
            approved_csr: None,
            config,
            request: &request,
            ready: &ready,
            signing,
        };
        match issuing::issue(&mut attempt, &request, signing, self.unconfirmed.recall(csr)).await? {
            End::Published(issued) => {
                let published = self.shared.links.clock.now();
                self.unconfirmed.mark_published(csr, published);
                attempt.report(&issued);
                self.shared.links.ledger.published(issued.serial, published).await;
                Ok(Outcome::Published)
            }
            End::Refused => Ok(Outcome::Later(self.shared.retention)),
            End::Later => Ok(Outcome::Wait),
            End::Limited(pause) => attempt.say_limited(pause).await,
            End::Unusable { row, fault } => {
                let unusable = Unusable { row, csr: csr.name_any(), fault };
                self.hold(leads, csr, now, &unusable).await
            }
        }
    }

    /// The lineage that signs; `None` while it may not sign.
    fn signing_lineage(&self) -> Option<Arc<ReadyLineage>> {
        let ready = self.lineage.borrow().ready().cloned()?;
        self.serving.borrow().last()?;
        let is_clients = matches!(self.kind, SignerKind::Client { .. });
        // The gateway's lineages never wait: a gateway without a new certificate would end, and that would not stop an
        // attacker who has the key.
        let waits =
            || ready.lineage().is_tainted() || ready.first_waits_for(&self.shared.links.in_effect.borrow()).is_some();
        if is_clients && waits() { None } else { Some(ready) }
    }

    fn request(
        &self,
        csr: &CertificateSigningRequest,
        config: Option<&SignerConfig>,
        approved: Approved,
        approves: bool,
    ) -> Request {
        let signer_name = match &self.kind {
            SignerKind::Client { config, .. } => config.borrow().rules.signer_name.clone(),
            SignerKind::Gateway { certificate, .. } => certificate.signer_name(),
        };
        Request {
            uid: action::uid(csr),
            requested: action::requested(csr),
            name: csr.name_any(),
            requester: csr.spec.username.clone().unwrap_or_default(),
            csr_user: self.requester(csr).csr_user.map(str::to_owned),
            csr: normalised(&csr.spec.request.0),
            signer: self.name(),
            generation: config.map_or(0, |config| config.generation),
            signer_name,
            approved,
            approves,
        }
    }

    /// Lets a CSR wait. It is not denied: a wrong clock may have set the revocation seconds ahead, and OCM's agent
    /// waits forever on a denied CSR. The signer checks it again now and then, because an administrator may set the
    /// time back.
    async fn say_revoked(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Outcome, SignerError> {
        if !action::has_condition(csr, REVOKED) && self.may_answer(csr, now).is_ok() {
            let sentence = format!(
                "The CSR waits until the hub's clock reaches {until}: no certificate of this addon on this cluster \
                 may begin earlier, because earlier ones are revoked or the addon was created then."
            );
            let answers = self.answers(leads);
            self.counted(csr, answers.add_condition(csr, REVOKED, REVOKED_UNTIL_LATER, &sentence)).await?;
        }
        let rest = self.shared.links.clock.now().until(until);
        Ok(Outcome::Later(rest.clamp(*REVOKED_PAUSE.start(), *REVOKED_PAUSE.end())))
    }
}

impl Attempt<'_> {
    fn remember(&self, issued: &Issued) {
        self.signer.unconfirmed.remember(self.csr, issued, self.signing.now);
    }

    fn report(&self, issued: &Issued) {
        let Self { signer, csr, request, .. } = self;
        signer.shared.links.audit.granted(&Grant {
            signer: &signer.name(),
            csr: &csr.name_any(),
            requester: signer.requester(csr),
            identity: request.approved.identity(),
            issuer: issued.issuer.as_str(),
            serial: issued.serial,
            not_after: issued.not_after,
        });
        signer.shared.links.metrics.issued(&signer.name());
    }

    async fn say_limited(&self, pause: Duration) -> Result<Outcome, SignerError> {
        let Self { signer, csr, answers, .. } = self;
        if !action::has_condition(csr, RATE_LIMITED) && signer.may_answer(csr, self.signing.now).is_ok() {
            let sentence = "This addon or its cluster had too many certificates; the CSR waits and is signed later.";
            signer.counted(csr, answers.add_condition(csr, RATE_LIMITED, TOO_MANY_REQUESTS, sentence)).await?;
            signer.shared.links.metrics.rate_limited(&signer.name());
        }
        Ok(Outcome::Limited(pause))
    }
}

impl Effects for Attempt<'_> {
    type Error = SignerError;

    fn surroundings(&self) -> Surroundings {
        let Self { signer, csr, config, request: Request { approved, .. }, .. } = self;
        let is_allowed = signer.still_allows(approved, *config) && signer.is_believed(csr);
        let valid_from = approved.identity().and_then(|identity| {
            signer.shared.links.registry.read(|registry| registry.valid_from(&identity.cluster, &identity.addon))
        });
        // The anchors stay valid even if the lineage can no longer sign.
        let serving = signer.serving.borrow().last().cloned();
        let trust_bundle = serving.as_ref().map(|ready| ready.anchors.clone());
        let last_end = serving.and_then(|ready| ready.lineage().last_end());
        Surroundings { is_allowed, valid_from, trust_bundle, last_end }
    }

    async fn reserve(&mut self, until: Timestamp) -> Result<bool, SignerError> {
        let lineage = self.ready.lineage();
        if lineage.reserve(until).is_none() {
            return Ok(true);
        }
        let Some(active) = lineage.active() else { return Ok(false) };
        let (done, persisted) = oneshot::channel();
        let reserve = Reserve { authority: active.authority.id().clone(), until, done };
        Ok(self.signer.reserve.send(reserve).await.is_ok() && persisted.await.unwrap_or(false))
    }

    async fn count(&mut self) -> Result<Result<(), Duration>, SignerError> {
        self.leads.still()?;
        let (limits, now) = (&self.signer.shared.limits, self.signing.now);
        Ok(match self.request.approved.identity() {
            Some(identity) => limits.certificates.lock().take(identity, now),
            None => limits.gateways.lock().take(&self.signer.tenant(self.csr), now),
        })
    }

    /// Records the intent. If the ledger does not record a new one, the identity gets its token back.
    async fn record_intent(&mut self, intent: Intent) -> Result<Intended, SignerError> {
        let SignerShared { links, limits, .. } = &self.signer.shared;
        let intended = links.ledger.intend(intent).await;
        if intended != Ok(Intended::Recorded) {
            match self.request.approved.identity() {
                Some(identity) => limits.certificates.lock().give_back(identity),
                None => limits.gateways.lock().give_back(&self.signer.tenant(self.csr)),
            }
        }
        Ok(intended?)
    }

    async fn sign(&mut self, prepared: Prepared) -> Result<Issued, SignerError> {
        self.leads.still()?;
        let Signing { issuer, published, now, .. } = self.signing;
        Ok(issuer.sign(prepared, published, now, &SystemRandom::new())?)
    }

    async fn record_certificate(&mut self, issued: &Issued, record: Record) -> Result<(), SignerError> {
        self.signer.shared.links.ledger.append(record, "").await?;
        self.remember(issued);
        Ok(())
    }

    async fn approve(&mut self, issued: &Issued) -> Result<(), SignerError> {
        self.remember(issued);
        self.approved_csr = Some(self.answers.approve(self.csr, &self.signer.name()).await?);
        Ok(())
    }

    async fn publish(&mut self, issued: &Issued, trust_bundle: &str) -> Result<(), SignerError> {
        self.remember(issued);
        let csr = self.approved_csr.as_ref().unwrap_or(self.csr);
        // Verifiers that trust only the root need the certificates between it and the authority.
        let mut members = self.ready.lineage().members().iter();
        let issuer = members.find(|member| *member.authority.id() == issued.issuer);
        let chain = issuer.map(|member| member.certified.pem_below_root()).unwrap_or_default();
        Ok(self.answers.publish(csr, issued.pem() + &chain, trust_bundle).await?)
    }

    async fn refuse(&mut self, issued: &Issued) -> Result<(), SignerError> {
        self.remember(issued);
        let sentence = "The certificate that was signed for this CSR was expired, revoked or untrusted before the \
                        hub could publish it. Make a new CSR.";
        let verdict = if self.request.approves { RefusalKind::Denied } else { RefusalKind::Failed };
        Ok(self.answers.refuse(self.csr, verdict, CERTIFICATE_OUTDATED, sentence).await?)
    }

    async fn close(&mut self, record: Record) -> Result<(), SignerError> {
        Ok(self.signer.shared.links.ledger.append(record, "").await?)
    }
}

/// A row of the ledger that cannot be used for its CSR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "row {row} of the ledger, which is about the CSR {csr}, holds {fault}: the ledger was altered, or restored \
     from another hub's backup; check it with `addon-signer certs verify`, restore the right ledger, or delete the \
     CSR, whose agent then makes a new one"
)]
pub(crate) struct Unusable {
    /// The number of the row.
    pub row: u64,
    /// The name of the CSR.
    pub csr: String,
    /// What is wrong with the row.
    pub fault: RecordFault,
}

impl Signer {
    /// Reports on the CSR, once, that its row cannot be used, and lets it wait.
    pub(super) async fn hold(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        now: Timestamp,
        unusable: &Unusable,
    ) -> Result<Outcome, SignerError> {
        if action::has_condition(csr, RECORD_UNUSABLE) {
            debug!(csr = csr.name_any(), "A CSR still cannot be worked on");
        } else if self.may_answer(csr, now).is_ok() {
            let answers = self.answers(leads);
            let reason = LEDGER_ROW_UNUSABLE;
            let sentence = sentence(unusable);
            self.counted(csr, answers.add_condition(csr, RECORD_UNUSABLE, reason, &sentence)).await?;
            error!(csr = csr.name_any(), error = %unusable, "A CSR cannot be worked on");
            self.shared.links.metrics.quarantined(&self.name());
            if let Err(error) = answers.event(csr, &self.shared.recorder, reason, &sentence).await {
                // The condition on the CSR says the same, so a lost event does no harm.
                warn!(%error, csr = csr.name_any(), "Could not write an event about a quarantined CSR");
            }
        }
        Ok(Outcome::Quarantined)
    }
}

/// The error as a sentence, for a condition.
fn sentence(unusable: &Unusable) -> String {
    let text = unusable.to_string();
    let mut letters = text.chars();
    letters.next().map(|first| format!("{}{}.", first.to_uppercase(), letters.as_str())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_names_row_request_and_what_to_do() {
        let unusable = Unusable { row: 12, csr: "addon-1".to_owned(), fault: RecordFault::OtherKey };
        assert_eq!(
            sentence(&unusable),
            "Row 12 of the ledger, which is about the CSR addon-1, holds a certificate whose public key is not the \
             CSR's: the ledger was altered, or restored from another hub's backup; check it with `addon-signer \
             certs verify`, restore the right ledger, or delete the CSR, whose agent then makes a new one."
        );
    }
}
