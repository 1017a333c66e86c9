//! The order in which one certificate is issued: record, sign, record, publish (invariant I13).
//!
//! [`Issuance::begin`] names the first [`Effect`]. Whoever performs it reports its [`Event`] to [`Issuance::next`],
//! which names the next one. The intent is durable before the key is used, and the certificate before anybody can get
//! it. Whoever stops in between begins anew with the same request, and the ledger says how far it came.

use std::mem;
use std::time::Duration;

use crate::ca::bundle::{Bundle, Purpose};
use crate::ca::issuer::{IssueError, Issued, Issuer, Prepared, RecordFault};
use crate::ca::serial::Serial;
use crate::journal::record::{Existing, Intended, Intent, Record};
use crate::policy::{Approved, Profile};
use crate::timestamp::Timestamp;

/// What the ledger records of the request itself.
#[derive(Debug, Clone)]
pub struct RequestFacts {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub requested: Timestamp,
    /// `metadata.name`.
    pub name: String,
    /// `spec.username`.
    pub requester: String,
    /// `spec.request`.
    pub csr: String,
    /// The AddOnSigner, or `gateway-serving`.
    pub signer: String,
    /// `metadata.generation` of the AddOnSigner.
    pub generation: i64,
    /// `spec.signerName`.
    pub signer_name: String,
}

/// What signs, and who must accept the result. One snapshot serves the whole issuance.
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

/// What may change while a certificate is issued; read right before each call of [`Issuance::next`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Surroundings<'s> {
    /// Certificates of this addon on this cluster that begin before this time are revoked.
    pub revoked_before: Option<Timestamp>,
    /// The trust bundle of the gateway's line, which agents get with each certificate.
    pub trust_bundle: Option<&'s Bundle>,
}

/// What is to be done next.
#[derive(Debug)]
pub enum Effect {
    /// Look whether this process has signed for the request before. Answer: [`Event::Recalled`].
    Recall,
    /// Have the line keep its authority's anchor at least until this time. Answer: [`Event::Reserved`].
    Reserve(Timestamp),
    /// Count one certificate of this identity. Answer: [`Event::Counted`].
    Count,
    /// Make the intent durable, unless the ledger has something of the request. Answer: [`Event::Intended`].
    RecordIntent(Box<Intent>),
    /// Use the key ([`Issuer::sign`]). Answer: [`Event::Signed`].
    Sign(Box<Prepared>),
    /// Make the certificate durable ([`Issuance::signed`]). Answer: [`Event::Done`].
    RecordCertificate(Issued),
    /// Approve the request. Answer: [`Event::Done`].
    Approve,
    /// Write the certificate on the request. Answer: [`Event::Done`].
    Publish(Box<Publication>),
    /// Refuse the request: its certificate came too late, and one request never gets two. Answer: [`Event::Done`].
    Refuse,
    /// Make this end of a row durable. Answer: [`Event::Done`].
    Close(Record),
    /// Nothing more.
    End(End),
}

/// What goes onto the request.
#[derive(Debug)]
pub struct Publication {
    /// The certificate.
    pub issued: Issued,
    /// The trust bundle of the gateway's line, PEM.
    pub trust_bundle: String,
}

/// What became of an effect. An effect that failed has no event: the issuance is dropped.
#[derive(Debug)]
pub enum Event {
    /// The certificate that this process signed for the request, if there is one.
    Recalled(Option<Issued>),
    /// Whether the reservation is durable.
    Reserved(bool),
    /// Whether the identity may have one more certificate now; otherwise when to ask again.
    Counted(Result<(), Duration>),
    /// Whether the intent is durable.
    Intended(Intended),
    /// The certificate, checked.
    Signed(Issued),
    /// The effect took place.
    Done,
}

/// How an issuance ends.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The request has this certificate.
    Published(Box<Issued>),
    /// The request was refused.
    Refused,
    /// Something inside the hub is not there yet: begin anew soon.
    Later,
    /// The identity had too many certificates: begin anew after this time.
    Limited(Duration),
    /// All certificates of the addon are revoked until this time, which has not come.
    RevokedUntil(Timestamp),
    /// What the ledger has of the request is not the request's.
    Unusable {
        /// The row.
        row: u64,
        /// What is wrong with it.
        fault: RecordFault,
    },
}

/// One attempt to issue the certificate of one request.
#[derive(Debug)]
pub struct Issuance<'s> {
    request: RequestFacts,
    approved: Approved,
    /// Whether the hub approves; otherwise somebody has.
    approves: bool,
    signing: Signing<'s>,
    pending: Pending,
}

/// Which effect is under way.
#[derive(Debug)]
enum Pending {
    Recalling,
    Reserving(Prepared),
    Counting(Prepared),
    Intending(Prepared),
    /// For an intent that the ledger had already.
    ReservingAgain(Prepared),
    Signing,
    RecordingCertificate(Issued),
    Approving(Publication),
    Publishing(Issued),
    Refusing(Serial),
    /// The row is being closed.
    Closing(End),
    Over,
}

impl<'s> Issuance<'s> {
    /// A new attempt for an approved request.
    pub fn begin(request: RequestFacts, approved: Approved, approves: bool, signing: Signing<'s>) -> (Self, Effect) {
        let until = approved.revoked_before().filter(|until| signing.now < *until);
        let pending = if until.is_some() { Pending::Over } else { Pending::Recalling };
        let effect = until.map_or(Effect::Recall, |until| Effect::End(End::RevokedUntil(until)));
        (Self { request, approved, approves, signing, pending }, effect)
    }

    /// What to do after `event`. An event that does not belong to the last effect ends the attempt.
    ///
    /// # Errors
    /// [`IssueError`] if the authority cannot sign this certificate.
    pub fn next(&mut self, event: Event, around: Surroundings<'_>) -> Result<Effect, IssueError> {
        Ok(match (mem::replace(&mut self.pending, Pending::Over), event) {
            (Pending::Recalling, Event::Recalled(Some(issued))) => self.hand_over(issued, around),
            (Pending::Recalling, Event::Recalled(None)) => {
                let Signing { issuer, serial, now, .. } = self.signing;
                let prepared = issuer.prepare(self.approved.clone(), serial, now)?;
                // Durable before it is signed: an anchor is dropped only after the last leaf has expired (invariant I6).
                let effect = Effect::Reserve(prepared.not_after());
                self.enter(Pending::Reserving(prepared), effect)
            }
            // Last, so that a request that waits for the hub does not use up what its identity may have.
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
            (Pending::Signing, Event::Signed(issued)) => {
                let effect = Effect::RecordCertificate(issued.clone());
                self.enter(Pending::RecordingCertificate(issued), effect)
            }
            (Pending::RecordingCertificate(issued), Event::Done) => self.publish(issued, around),
            (Pending::Approving(publication), Event::Done) => self.write(publication),
            (Pending::Publishing(issued), Event::Done) => Effect::End(End::Published(Box::new(issued))),
            (Pending::Refusing(serial), Event::Done) => {
                let reason = "It was not accepted any more when it could be handed over.".to_owned();
                let record = Record::Unpublished { uid: self.request.uid.clone(), serial, reason };
                self.enter(Pending::Closing(End::Refused), Effect::Close(record))
            }
            (Pending::Closing(end), Event::Done) => Effect::End(end),
            _ => Effect::End(End::Later),
        })
    }

    /// What makes a certificate of this request durable.
    pub fn signed(&self, issued: &Issued) -> Record {
        let certificate = issued.certificate.to_vec();
        Record::Signed { uid: self.request.uid.clone(), serial: issued.serial, certificate }
    }

    fn enter(&mut self, pending: Pending, effect: Effect) -> Effect {
        self.pending = pending;
        effect
    }

    /// Goes on from what the ledger has of the request.
    fn go_on(&mut self, existing: Existing, around: Surroundings<'_>) -> Effect {
        match existing {
            Existing::Intent { issuer, serial, prepared, tbs, .. } => {
                match self.same(&issuer, serial, prepared, &tbs) {
                    Some(again) => {
                        let effect = Effect::Reserve(again.not_after());
                        self.enter(Pending::ReservingAgain(again), effect)
                    }
                    None => {
                        let reason = "It was not signed before the authority, the rules or the time changed, or certificates were revoked.".to_owned();
                        let record = Record::Abandoned { uid: self.request.uid.clone(), serial, reason };
                        self.enter(Pending::Closing(End::Later), Effect::Close(record))
                    }
                }
            }
            Existing::Signed { row, issuer, serial, certificate } => {
                match Issued::recorded(certificate, &issuer, serial, &self.approved) {
                    Ok(issued) => self.hand_over(issued, around),
                    Err(fault) => Effect::End(End::Unusable { row, fault }),
                }
            }
            Existing::Unreadable { row, fault } => Effect::End(End::Unusable { row, fault }),
        }
    }

    /// The bytes of an earlier intent, if the hub would sign the same now.
    fn same(&self, issuer: &str, serial: Serial, at: Timestamp, tbs: &str) -> Option<Prepared> {
        let Signing { issuer: active, now, .. } = self.signing;
        // An error means that this authority would not sign it: the intent is outdated.
        let again = active.prepare(self.approved.clone(), serial, at).ok()?;
        let same = again.digest() == tbs && active.authority().id() == issuer;
        // Half a life is left: a certificate that ends soon is worth a new decision.
        (same && at.until(now) <= now.until(again.not_after())).then_some(again)
    }

    fn sign(&mut self, prepared: Prepared, around: Surroundings<'_>) -> Effect {
        // A certificate that was revoked meanwhile is not worth a signature: the next attempt abandons the intent.
        if is_revoked(prepared.not_before(), around) {
            return Effect::End(End::Later);
        }
        self.enter(Pending::Signing, Effect::Sign(Box::new(prepared)))
    }

    /// A certificate that was signed before goes out only if it is still accepted.
    fn hand_over(&mut self, issued: Issued, around: Surroundings<'_>) -> Effect {
        let purpose = match self.approved.profile() {
            Profile::Client { .. } => Purpose::Client,
            Profile::Serving { .. } => Purpose::Server,
        };
        match self.signing.published.verify(&issued.certificate, purpose, self.signing.now) {
            Ok(_) => self.publish(issued, around),
            Err(_) => self.enter(Pending::Refusing(issued.serial), Effect::Refuse),
        }
    }

    fn publish(&mut self, issued: Issued, around: Surroundings<'_>) -> Effect {
        // Read after the reservation: whoever sees these anchors replaced sees the reservation too, and a new serving
        // authority waits for this certificate (invariant I5).
        let Some(bundle) = around.trust_bundle else { return Effect::End(End::Later) };
        // Signed before the revocation, perhaps by a hub that has ended: the agent would keep a revoked certificate
        // until it renews.
        if is_revoked(issued.not_before, around) {
            return self.enter(Pending::Refusing(issued.serial), Effect::Refuse);
        }
        let publication = Publication { issued, trust_bundle: bundle.pem() };
        if self.approves {
            self.enter(Pending::Approving(publication), Effect::Approve)
        } else {
            self.write(publication)
        }
    }

    fn write(&mut self, publication: Publication) -> Effect {
        self.enter(Pending::Publishing(publication.issued.clone()), Effect::Publish(Box::new(publication)))
    }

    fn intent(&self, prepared: &Prepared) -> Intent {
        let RequestFacts { uid, requested, name, requester, csr, signer, generation, signer_name } =
            self.request.clone();
        let identity = match prepared.profile() {
            Profile::Client { identity, .. } => Some(identity.clone()),
            Profile::Serving { .. } => None,
        };
        Intent {
            uid,
            requested,
            request: name,
            signer,
            generation,
            signer_name,
            requester,
            identity,
            issuer: prepared.issuer().to_owned(),
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
    around.revoked_before.is_some_and(|revoked_before| not_before < revoked_before)
}

#[cfg(test)]
mod tests;
