//! From an approved request to its certificate: record, sign, check, record, publish (invariant I13).
//!
//! The intent is durable before the key is used, and the certificate before it is written to the request. Whatever ends
//! in between, the ledger says how far it came, and the same request goes on from there.

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
use crate::ledger::{Existing, Intended};
use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_core::ca::issuer::{Issued, Prepared, RecordFault};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::record::{Intent, Record};
use addon_signer_core::policy::{Approved, GATEWAY_SERVING_SIGNER, Profile};
use addon_signer_core::timestamp::Timestamp;

/// What signing needs.
struct Signing {
    ready: Arc<ReadyLine>,
    published: Bundle,
}

enum Obtained {
    Signed(Issued),
    /// The identity had too many.
    Limited(Duration),
    /// Something inside the hub is not there yet.
    NotYet,
    /// It was signed before, and nobody would accept that certificate any more.
    Outdated(Serial),
}

impl Signer {
    pub(super) async fn issue(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        approved: Approved,
        approve: bool,
        now: Timestamp,
    ) -> Result<Requeue, SignerError> {
        // The sweep may have it, which then sees what has become of the request.
        let Some(_claim) = self.shared.ledger.claim(csr.metadata.uid.as_deref().unwrap_or_default()) else {
            return Ok(Requeue::requeue(SOON));
        };
        if let Some(until) = approved.revoked_before().filter(|until| now < *until) {
            return self.say_revoked(leads, csr, until).await;
        }
        let Some(signing) = self.signing() else { return Ok(Requeue::requeue(SOON)) };
        let profile = approved.profile().clone();
        let issued = match self.obtain(leads, csr, approved, &signing, now).await {
            Ok(Obtained::Signed(issued)) => issued,
            Ok(Obtained::Limited(pause)) => return self.say_limited(leads, csr, pause).await,
            Ok(Obtained::NotYet) => return Ok(Requeue::requeue(SOON)),
            Ok(Obtained::Outdated(serial)) => return self.give_up(leads, csr, approve, serial).await,
            Err(SignerError::Row(unusable)) => return self.hold(leads, csr, &unusable, now).await,
            Err(error) => return Err(error),
        };
        // Read after the reservation: whoever sees these anchors replaced sees the reservation too, and a new serving
        // authority waits for this certificate (invariant I5).
        let Some(trust_bundle) = self.trust_bundle() else { return Ok(Requeue::requeue(SOON)) };
        // Signed before the revocation, perhaps by a hub that has ended: the agent would keep a revoked certificate
        // until it renews.
        if self.is_revoked(&profile, issued.not_before) {
            return self.give_up(leads, csr, approve, issued.serial).await;
        }
        let answers = self.answers(leads);
        let approved_csr = if approve { Some(answers.approve(csr, &self.name()).await?) } else { None };
        answers.publish(approved_csr.as_ref().unwrap_or(csr), &issued, &trust_bundle).await?;
        self.unconfirmed.mark_published(csr);
        self.shared.ledger.published(issued.serial.to_string(), self.shared.clock.now()).await;
        self.report(csr, &profile, &issued);
        Ok(Requeue::await_change())
    }

    /// Everything that signing needs, or `None` while any of it is not there yet.
    fn signing(&self) -> Option<Signing> {
        let ready = self.line.borrow().ready().cloned()?;
        self.trust_bundle()?;
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
        trusted.then_some(Signing { ready, published })
    }

    /// The anchors of the gateway, which stay good when its line can no longer sign.
    fn trust_bundle(&self) -> Option<String> {
        self.serving.borrow().last().map(|ready| ready.bundle.pem())
    }

    /// The one certificate of this request: the one that was signed before, or a new one.
    async fn obtain(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        approved: Approved,
        signing: &Signing,
        now: Timestamp,
    ) -> Result<Obtained, SignerError> {
        if let Some(issued) = self.unconfirmed.recall(csr) {
            return Ok(self.if_accepted(issued, signing, now));
        }
        let profile = approved.profile().clone();
        let issuer = &signing.ready.stored.issuer;
        let prepared = issuer.prepare(approved.clone(), Serial::new(now, &SystemRandom::new())?, now)?;
        // Persisted before it is signed: an anchor is dropped only when no leaf of it can live any more (invariant I6).
        if !self.reserved(&signing.ready, prepared.not_after()).await {
            return Ok(Obtained::NotYet);
        }
        leads.still()?;
        // Last, so that a request that waits for the hub does not use up what its identity may have.
        if let Err(pause) = self.take_token(&profile, now) {
            return Ok(Obtained::Limited(pause));
        }
        let intended = self.shared.ledger.intend(self.intent(csr, &prepared, &profile, now)).await;
        if intended != Ok(Intended::Recorded) {
            self.give_token_back(&profile);
        }
        match intended? {
            Intended::Recorded => self.sign(leads, csr, prepared, signing, now).await,
            Intended::Existing(Existing::Intent { row, issuer, serial, prepared, tbs }) => {
                let serial = Serial::from_hex(&serial).ok_or_else(|| unusable(csr, row, RecordFault::Serial))?;
                self.go_on(leads, csr, approved, signing, (issuer, serial, prepared, tbs), now).await
            }
            Intended::Existing(Existing::Signed { row, issuer, serial, certificate }) => {
                let serial = Serial::from_hex(&serial).ok_or_else(|| unusable(csr, row, RecordFault::Serial))?;
                let issued = Issued::recorded(certificate, &issuer, serial, &approved);
                let issued = issued.map_err(|fault| unusable(csr, row, fault))?;
                self.unconfirmed.remember(csr, &issued, now);
                Ok(self.if_accepted(issued, signing, now))
            }
        }
    }

    /// Signs what an earlier intent says, if the hub would sign the same now; otherwise abandons that intent.
    async fn go_on(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        approved: Approved,
        signing: &Signing,
        (issuer, serial, at, tbs): (String, Serial, Timestamp, String),
        now: Timestamp,
    ) -> Result<Obtained, SignerError> {
        let active = &signing.ready.stored.issuer;
        // An error means that this authority would not sign it: then the intent is abandoned below, with that reason.
        let again = active.prepare(approved, serial, at).ok();
        let again = again.filter(|again| again.digest() == tbs && active.authority().id() == issuer);
        // Half a life is left: a certificate that ends soon is worth a new decision.
        let again = again.filter(|again| at.until(now) <= now.until(again.not_after()));
        match again {
            Some(prepared) if !self.reserved(&signing.ready, prepared.not_after()).await => Ok(Obtained::NotYet),
            Some(prepared) => self.sign(leads, csr, prepared, signing, now).await,
            None => {
                let reason = "It was not signed before the authority, the rules or the time changed, or certificates were revoked.".to_owned();
                let (uid, serial) = (csr.metadata.uid.clone().unwrap_or_default(), serial.to_string());
                self.shared.ledger.append(Record::Abandoned { uid, serial, reason }, "").await?;
                Ok(Obtained::NotYet)
            }
        }
    }

    /// Signs, checks, and makes the certificate durable before anybody can have it.
    async fn sign(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        prepared: Prepared,
        signing: &Signing,
        now: Timestamp,
    ) -> Result<Obtained, SignerError> {
        // What was revoked meanwhile is not worth a signature: the intent is abandoned the next time.
        if self.is_revoked(prepared.profile(), prepared.not_before()) {
            return Ok(Obtained::NotYet);
        }
        leads.still()?;
        let issued = signing.ready.stored.issuer.sign(prepared, &signing.published, now, &SystemRandom::new())?;
        let signed = Record::Signed {
            uid: csr.metadata.uid.clone().unwrap_or_default(),
            serial: issued.serial.to_string(),
            certificate: issued.certificate.to_vec(),
        };
        self.shared.ledger.append(signed, "").await?;
        self.unconfirmed.remember(csr, &issued, now);
        Ok(Obtained::Signed(issued))
    }

    fn if_accepted(&self, issued: Issued, signing: &Signing, now: Timestamp) -> Obtained {
        let purpose = match self.kind {
            Kind::Client { .. } => Purpose::Client,
            Kind::Serving(_) => Purpose::Server,
        };
        match signing.published.verify(&issued.certificate, purpose, now) {
            Ok(_) => Obtained::Signed(issued),
            Err(_) => Obtained::Outdated(issued.serial),
        }
    }

    fn intent(
        &self,
        csr: &CertificateSigningRequest,
        prepared: &Prepared,
        profile: &Profile,
        now: Timestamp,
    ) -> Intent {
        let (signer_name, generation) = match &self.kind {
            Kind::Client { config, .. } => {
                let config = config.borrow();
                (config.rules.signer_name.clone(), config.generation)
            }
            Kind::Serving(_) => (GATEWAY_SERVING_SIGNER.to_owned(), 0),
        };
        let (cluster, addon, agent) = match profile {
            Profile::Client { identity, .. } => {
                (identity.cluster.to_string(), identity.addon.to_string(), identity.agent.to_string())
            }
            Profile::Serving { .. } => Default::default(),
        };
        let requested = csr.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        Intent {
            uid: csr.metadata.uid.clone().unwrap_or_default(),
            requested: Timestamp::from_unix(requested),
            request: csr.name_any(),
            signer: self.name(),
            generation,
            signer_name,
            requester: csr.spec.username.clone().unwrap_or_default(),
            cluster,
            addon,
            agent,
            issuer: prepared.issuer().to_owned(),
            serial: prepared.serial().to_string(),
            not_before: prepared.not_before(),
            not_after: prepared.not_after(),
            prepared: now,
            tbs: prepared.digest(),
            csr: String::from_utf8_lossy(&csr.spec.request.0).into_owned(),
        }
    }

    fn is_revoked(&self, profile: &Profile, not_before: Timestamp) -> bool {
        let Profile::Client { identity, .. } = profile else { return false };
        let revoked_before =
            self.shared.registry.read(|registry| registry.revoked_before(&identity.cluster, &identity.addon));
        revoked_before.is_some_and(|revoked_before| not_before < revoked_before)
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

    fn take_token(&self, profile: &Profile, now: Timestamp) -> Result<(), Duration> {
        let Profile::Client { identity, .. } = profile else { return Ok(()) };
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner).take(identity, now)
    }

    fn give_token_back(&self, profile: &Profile) {
        if let Profile::Client { identity, .. } = profile {
            self.limiter.lock().unwrap_or_else(PoisonError::into_inner).give_back(identity);
        }
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
}

fn unusable(csr: &CertificateSigningRequest, row: u64, fault: RecordFault) -> SignerError {
    SignerError::Row(Unusable { row, csr: csr.name_any(), fault })
}
