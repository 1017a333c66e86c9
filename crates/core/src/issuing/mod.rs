//! The order in which one certificate is issued: record the intent, sign, record the certificate, publish it
//! (invariant I13).
//!
//! [`Issuance::next`] names an [`Effect`]. The caller performs it and reports its [`Event`] to the next call. The
//! intent is durable before the key is used, and the certificate is durable before anybody can get it. If the hub stops
//! in between, it starts over with the same request, and the ledger says which steps are done.

use std::mem;
use std::time::Duration;

use crate::ca::authority::AuthorityId;
use crate::ca::bundle::Bundle;
use crate::ca::issuer::{IssueError, Issued, Issuer, Prepared, RecordFault, purpose};
use crate::ca::serial::Serial;
use crate::identity::SignerName;
use crate::journal::record::{Existing, Intended, Intent, Record};
use crate::journal::uid::RequestUid;
use crate::policy::Approved;
use crate::timestamp::Timestamp;

/// What the ledger records of the request itself.
#[derive(Debug, Clone)]
pub struct RequestFacts {
    /// `metadata.uid`.
    pub uid: RequestUid,
    /// `metadata.creationTimestamp`.
    pub requested: Timestamp,
    /// `metadata.name`.
    pub name: String,
    /// `spec.username`.
    pub requester: String,
    /// On whose behalf the gRPC proxy asked, if it did.
    pub csr_user: Option<String>,
    /// `spec.request`.
    pub csr: String,
    /// The AddOnSigner, or `gateway-serving`.
    pub signer: String,
    /// `metadata.generation` of the AddOnSigner.
    pub generation: i64,
    /// `spec.signerName`.
    pub signer_name: SignerName,
}

/// The authority that signs, and the trust bundle that must accept the result. The whole issuance uses one snapshot.
#[derive(Debug, Clone, Copy)]
pub struct Signing<'s> {
    /// The active authority with its key.
    pub issuer: &'s Issuer,
    /// The trust bundle that is in effect where the certificate will be used.
    pub published: &'s Bundle,
    /// The serial number of a new certificate.
    pub serial: Serial,
    /// The time of the decision.
    pub now: Timestamp,
}

/// Values that may change during the issuance. The caller reads them right before each call of [`Issuance::next`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Surroundings<'s> {
    /// Whether the registry and the rules still allow what policy has approved.
    pub is_allowed: bool,
    /// Certificates of this addon on this cluster that begin before this time are refused.
    pub valid_from: Option<Timestamp>,
    /// The trust bundle of the gateway's line, which agents get with each certificate.
    pub trust_bundle: Option<&'s Bundle>,
}

/// What the caller must do next.
#[derive(Debug)]
pub enum Effect {
    /// Make the line keep its authority's anchor at least until this time. Answer: [`Event::Reserved`].
    Reserve(Timestamp),
    /// Count one certificate of this identity. Answer: [`Event::Counted`].
    Count,
    /// Make the intent durable, unless the ledger already has a row for the request. Answer: [`Event::Intended`].
    RecordIntent(Box<Intent>),
    /// Sign with the authority's key ([`Issuer::sign`]). Answer: [`Event::Signed`].
    Sign(Box<Prepared>),
    /// Make the certificate durable with this record. Answer: [`Event::CertificateRecorded`].
    RecordCertificate(Issued, Record),
    /// Approve the request, whose certificate is durable. Answer: [`Event::Approved`].
    Approve(Box<Publication>),
    /// Write the certificate on the request. Answer: [`Event::Published`].
    Publish(Box<Publication>),
    /// Refuse the request: its certificate is no longer accepted, and one request never gets two. Answer:
    /// [`Event::Done`].
    Refuse(Issued),
    /// Make this record durable; it closes the request's row in the ledger. Answer: [`Event::Done`].
    Close(Record),
    /// Nothing: the issuance has ended.
    End(End),
}

/// What is published on the request.
#[derive(Debug)]
pub struct Publication {
    /// The certificate.
    pub issued: Issued,
    /// The trust bundle of the gateway's line, PEM.
    pub trust_bundle: String,
}

/// The result of an effect. An effect that failed has no event: the caller drops the issuance.
#[derive(Debug)]
pub enum Event {
    /// The attempt starts; with the certificate that this process has already signed for the request, if any.
    Started(Option<Issued>),
    /// Whether the reservation is durable.
    Reserved(bool),
    /// Whether the identity may have one more certificate now; if not, how long to wait.
    Counted(Result<(), Duration>),
    /// Whether the intent is durable.
    Intended(Intended),
    /// The signed and checked certificate.
    Signed(Issued),
    /// The certificate is durable.
    CertificateRecorded(Issued),
    /// The request is approved.
    Approved(Box<Publication>),
    /// The request has the certificate.
    Published(Box<Publication>),
    /// The effect was performed.
    Done,
}

/// How an issuance ends.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The request has this certificate.
    Published(Issued),
    /// The request was refused.
    Refused,
    /// This attempt cannot continue: start another one soon.
    Later,
    /// The identity had too many certificates: start another attempt after this time.
    Limited(Duration),
    /// The ledger's row of the request cannot be read, or does not belong to the request.
    Unusable {
        /// The number of the row.
        row: u64,
        /// The problem with the row.
        fault: RecordFault,
    },
}

/// One attempt to issue the certificate of one request.
#[derive(Debug)]
pub struct Issuance<'s> {
    request: RequestFacts,
    approved: Approved,
    /// Whether the hub must approve the request; if not, it is approved already.
    approves: bool,
    signing: Signing<'s>,
    pending: Pending,
}

/// The effect that is under way.
#[derive(Debug)]
enum Pending {
    Start,
    Reserving(Prepared),
    Counting(Prepared),
    Intending(Prepared),
    /// Reserving for an intent that the ledger already had.
    ReservingAgain(Prepared),
    Signing,
    RecordingCertificate,
    Approving,
    Publishing,
    Refusing(Serial),
    /// Closing the row; the issuance then ends like this.
    Closing(End),
    Over,
}

impl<'s> Issuance<'s> {
    /// An attempt for an approved request. Its first event is [`Event::Started`].
    pub fn new(request: RequestFacts, approved: Approved, approves: bool, signing: Signing<'s>) -> Self {
        Self { request, approved, approves, signing, pending: Pending::Start }
    }

    /// The effect that follows `event`.
    ///
    /// # Errors
    /// [`IssueError`] if the authority cannot sign this certificate, or if `event` does not belong to the last effect.
    pub fn next(&mut self, event: Event, around: Surroundings<'_>) -> Result<Effect, IssueError> {
        Ok(match (mem::replace(&mut self.pending, Pending::Over), event) {
            (Pending::Start, Event::Started(Some(issued))) => self.publish_earlier(issued, around),
            (Pending::Start, Event::Started(None)) => {
                let Signing { issuer, serial, now, .. } = self.signing;
                let latest = self.latest(around);
                let prepared = issuer.prepare_until(self.approved.clone(), serial, now, latest)?;
                // The reservation is durable before the leaf is signed: an anchor is dropped only after its last leaf
                // has expired (invariant I6).
                let effect = Effect::Reserve(prepared.not_after());
                self.enter(Pending::Reserving(prepared), effect)
            }
            // The certificate is counted only now, so that attempts that wait for the hub do not use up the identity's
            // rate.
            (Pending::Reserving(prepared), Event::Reserved(true)) => {
                self.enter(Pending::Counting(prepared), Effect::Count)
            }
            (Pending::Counting(_), Event::Counted(Err(pause))) => Effect::End(End::Limited(pause)),
            (Pending::Counting(prepared), Event::Counted(Ok(()))) => {
                let effect = Effect::RecordIntent(Box::new(self.intent(&prepared)));
                self.enter(Pending::Intending(prepared), effect)
            }
            (Pending::Intending(prepared), Event::Intended(Intended::Recorded)) => self.sign(prepared, around),
            (Pending::Intending(_), Event::Intended(Intended::Existing(existing))) => self.go_on(existing, around),
            (Pending::ReservingAgain(prepared), Event::Reserved(true)) => self.sign(prepared, around),
            (Pending::Reserving(_) | Pending::ReservingAgain(_), Event::Reserved(false)) => Effect::End(End::Later),
            (Pending::Signing, Event::Signed(issued)) => {
                let certificate = issued.certificate.to_vec();
                let record = Record::Signed { uid: self.request.uid.clone(), serial: issued.serial, certificate };
                self.enter(Pending::RecordingCertificate, Effect::RecordCertificate(issued, record))
            }
            (Pending::RecordingCertificate, Event::CertificateRecorded(issued)) => self.publish(issued, around),
            // The approval took a call; if the certificate may no longer be published, the next attempt refuses it.
            (Pending::Approving, Event::Approved(publication)) => {
                if !around.is_allowed || is_revoked(publication.issued.not_before, around) {
                    return Ok(Effect::End(End::Later));
                }
                self.enter(Pending::Publishing, Effect::Publish(publication))
            }
            (Pending::Publishing, Event::Published(publication)) => Effect::End(End::Published(publication.issued)),
            (Pending::Refusing(serial), Event::Done) => {
                let reason =
                    "The certificate was expired, revoked or untrusted before it could be published.".to_owned();
                let record = Record::Unpublished { uid: self.request.uid.clone(), serial, reason };
                self.enter(Pending::Closing(End::Refused), Effect::Close(record))
            }
            (Pending::Closing(end), Event::Done) => Effect::End(end),
            _ => return Err(IssueError::OutOfOrder),
        })
    }

    fn enter(&mut self, pending: Pending, effect: Effect) -> Effect {
        self.pending = pending;
        effect
    }

    /// Continues from what the ledger already has for the request.
    fn go_on(&mut self, existing: Existing, around: Surroundings<'_>) -> Effect {
        match existing {
            Existing::Intent { issuer, serial, prepared, tbs } => {
                match self.same((&issuer, serial, &tbs), prepared, around) {
                    Some(again) => {
                        let effect = Effect::Reserve(again.not_after());
                        self.enter(Pending::ReservingAgain(again), effect)
                    }
                    None => {
                        let reason = "The certificate was not signed before its authority or the rules changed, \
                                      certificates were revoked, or half of its lifetime passed."
                            .to_owned();
                        let record = Record::Abandoned { uid: self.request.uid.clone(), serial, reason };
                        self.enter(Pending::Closing(End::Later), Effect::Close(record))
                    }
                }
            }
            Existing::Signed { row, issuer, serial, certificate } => {
                match Issued::recorded(certificate, issuer, serial, &self.approved) {
                    Ok(issued) => self.publish_earlier(issued, around),
                    Err(fault) => Effect::End(End::Unusable { row, fault }),
                }
            }
            Existing::Unreadable { row, fault } => Effect::End(End::Unusable { row, fault }),
        }
    }

    /// The certificate of an earlier intent, prepared again as of `at`, if the hub would still sign the same bytes.
    fn same(
        &self,
        (issuer, serial, tbs): (&AuthorityId, Serial, &str),
        at: Timestamp,
        around: Surroundings<'_>,
    ) -> Option<Prepared> {
        let Signing { issuer: active, now, .. } = self.signing;
        // An error means that this authority would not sign it: the intent is outdated.
        let again = active.prepare_until(self.approved.clone(), serial, at, self.latest(around)).ok()?;
        let same = again.digest() == tbs && active.authority().id() == issuer;
        // At least half of the lifetime must be left; otherwise the hub decides on a new certificate.
        (same && at.until(now) <= now.until(again.not_after())).then_some(again)
    }

    /// The latest end of the certificate. An agent's certificate ends before the gateway's authorities that come with
    /// it.
    fn latest(&self, around: Surroundings<'_>) -> Timestamp {
        let end = self.signing.issuer.authority().not_after();
        let serving = around.trust_bundle.filter(|_| self.approved.identity().is_some());
        serving.and_then(Bundle::last_end).map_or(end, |last| end.min(last))
    }

    fn sign(&mut self, prepared: Prepared, around: Surroundings<'_>) -> Effect {
        // A certificate that was revoked meanwhile is not signed: the next attempt abandons the intent. Nor is one
        // whose addon has lost its standing, or whose rules have changed: the next attempt asks policy again.
        if !around.is_allowed || is_revoked(prepared.not_before(), around) {
            return Effect::End(End::Later);
        }
        self.enter(Pending::Signing, Effect::Sign(Box::new(prepared)))
    }

    /// Publishes a certificate that was signed earlier, but only if it is still accepted.
    fn publish_earlier(&mut self, issued: Issued, around: Surroundings<'_>) -> Effect {
        match self.signing.published.verify(&issued.certificate, purpose(&self.approved), self.signing.now) {
            Ok(_) => self.publish(issued, around),
            Err(_) => self.enter(Pending::Refusing(issued.serial), Effect::Refuse(issued)),
        }
    }

    fn publish(&mut self, issued: Issued, around: Surroundings<'_>) -> Effect {
        // These anchors were read after the reservation. A keeper that replaces them later sees the reservation too,
        // and its new serving authority waits until this certificate has expired (invariant I5).
        let Some(bundle) = around.trust_bundle.filter(|_| around.is_allowed) else { return Effect::End(End::Later) };
        // The certificate was signed before the revocation, perhaps by a hub that has ended. It is not published,
        // because the agent would keep a revoked certificate until it renews.
        if is_revoked(issued.not_before, around) {
            return self.enter(Pending::Refusing(issued.serial), Effect::Refuse(issued));
        }
        let publication = Box::new(Publication { issued, trust_bundle: bundle.pem() });
        if self.approves {
            self.enter(Pending::Approving, Effect::Approve(publication))
        } else {
            self.enter(Pending::Publishing, Effect::Publish(publication))
        }
    }

    fn intent(&self, prepared: &Prepared) -> Intent {
        let RequestFacts { uid, requested, name, requester, csr_user, csr, signer, generation, signer_name } =
            self.request.clone();
        Intent {
            uid,
            requested,
            request: name,
            signer,
            generation,
            signer_name,
            requester,
            csr_user,
            identity: self.approved.identity().cloned(),
            issuer: prepared.issuer().clone(),
            serial: prepared.serial(),
            not_before: prepared.not_before(),
            not_after: prepared.not_after(),
            prepared: self.signing.now,
            tbs: prepared.digest(),
            csr,
        }
    }
}

fn is_revoked(not_before: Timestamp, around: Surroundings<'_>) -> bool {
    around.valid_from.is_some_and(|valid_from| not_before < valid_from)
}

#[cfg(test)]
mod tests;
