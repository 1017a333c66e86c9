//! The order in which one certificate is issued: record the intent, sign, record the certificate, publish it
//! (invariant I13).
//!
//! [`issue`] takes the steps; its caller performs them ([`Effects`]). The intent is durable before the key is used, and
//! the certificate is durable before any client can get it. If the hub stops in between, it starts over with the same
//! CSR, and the ledger shows which steps are done.

use std::time::Duration;

use crate::ca::authority::AuthorityId;
use crate::ca::bundle::Bundle;
use crate::ca::issuer::{IssueError, Issued, Issuer, Prepared, RecordFault, purpose};
use crate::ca::serial::Serial;
use crate::identity::SignerName;
use crate::journal::CsrUid;
use crate::journal::record::{Existing, Intended, Intent, Record};
use crate::policy::Approved;
use crate::timestamp::Timestamp;

/// A CSR that policy has approved, with what the ledger records of it.
#[derive(Debug, Clone)]
pub struct Request {
    /// `metadata.uid`.
    pub uid: CsrUid,
    /// `metadata.creationTimestamp`.
    pub requested: Timestamp,
    /// `metadata.name`.
    pub name: String,
    /// `spec.username`.
    pub requester: String,
    /// The user for whom the gRPC proxy made the CSR, if it did.
    pub csr_user: Option<String>,
    /// `spec.request`.
    pub csr: String,
    /// The AddOnSigner, or `gateway-serving` or `gateway-client`.
    pub signer: String,
    /// `metadata.generation` of the AddOnSigner.
    pub generation: i64,
    /// `spec.signerName`.
    pub signer_name: SignerName,
    /// What policy allows.
    pub approved: Approved,
    /// Whether the hub must approve the CSR; if not, it is approved already.
    pub approves: bool,
}

/// The authority that signs, and the trust bundle that must accept the result. The whole attempt uses one snapshot.
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

/// Values that may change during the attempt. [`issue`] reads them right before each decision.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Whether the registry and the rules still allow what policy has approved.
    pub is_allowed: bool,
    /// Certificates of this addon on this cluster that begin before this time are refused.
    pub valid_from: Option<Timestamp>,
    /// The trust bundle of the gateway's lineage, which agents get with each certificate.
    pub trust_bundle: Option<Bundle>,
    /// The latest end of an agent's certificate that comes with it.
    pub last_end: Option<Timestamp>,
}

impl Surroundings {
    fn is_revoked(&self, not_before: Timestamp) -> bool {
        self.valid_from.is_some_and(|valid_from| not_before < valid_from)
    }

    /// Whether a certificate that begins at this time may go on to its next step.
    fn allow(&self, not_before: Timestamp) -> bool {
        self.is_allowed && !self.is_revoked(not_before)
    }
}

/// What [`issue`] does to the world. An error ends the attempt; the next one continues from what the ledger has.
#[expect(async_fn_in_trait, reason = "issue is generic: whoever spawns it knows the type and whether it is Send")]
pub trait Effects {
    /// Why an effect failed, or why the authority cannot sign this certificate.
    type Error: From<IssueError>;

    /// What holds at this moment.
    fn surroundings(&self) -> Surroundings;
    /// Makes the lineage keep its authority's anchor at least until this time. Returns whether that is durable.
    async fn reserve(&mut self, until: Timestamp) -> Result<bool, Self::Error>;
    /// Counts one certificate of this identity. If it may not have one more now, returns how long to wait.
    async fn count(&mut self) -> Result<Result<(), Duration>, Self::Error>;
    /// Makes the intent durable, unless the ledger already has a row for the CSR.
    async fn record_intent(&mut self, intent: Intent) -> Result<Intended, Self::Error>;
    /// Signs with the authority's key ([`Issuer::sign`]) and checks the certificate.
    async fn sign(&mut self, prepared: Prepared) -> Result<Issued, Self::Error>;
    /// Makes the certificate durable with this record.
    async fn record_certificate(&mut self, issued: &Issued, record: Record) -> Result<(), Self::Error>;
    /// Approves the CSR, whose certificate is durable.
    async fn approve(&mut self, issued: &Issued) -> Result<(), Self::Error>;
    /// Writes the certificate on the CSR, with the trust bundle of the gateway's lineage as PEM.
    async fn publish(&mut self, issued: &Issued, trust_bundle: &str) -> Result<(), Self::Error>;
    /// Refuses the CSR: its certificate is no longer accepted, and one CSR never gets two.
    async fn refuse(&mut self, issued: &Issued) -> Result<(), Self::Error>;
    /// Makes this record durable; it closes the CSR's row in the ledger.
    async fn close(&mut self, record: Record) -> Result<(), Self::Error>;
}

/// How an attempt ends.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The CSR has this certificate.
    Published(Issued),
    /// The CSR was refused.
    Refused,
    /// This attempt cannot continue: start another one soon.
    Later,
    /// The identity had too many certificates: start another attempt after this time.
    Limited(Duration),
    /// The ledger's row of the CSR cannot be read, or does not belong to the CSR.
    Unusable {
        /// The number of the row.
        row: u64,
        /// The problem with the row.
        fault: RecordFault,
    },
}

/// Issues the certificate of one CSR, in one attempt. `earlier` is the certificate that this process has already
/// signed for the CSR, if any.
///
/// # Errors
/// The error of an effect, or [`IssueError`] if the authority cannot sign this certificate.
pub async fn issue<E: Effects>(
    effects: &mut E,
    request: &Request,
    signing: Signing<'_>,
    earlier: Option<Issued>,
) -> Result<End, E::Error> {
    if let Some(issued) = earlier {
        return publish_earlier(effects, request, signing, issued).await;
    }
    let prepared = prepare(effects, request, signing, signing.now)?;
    // The reservation is durable before the leaf is signed: an anchor is dropped only after its last leaf has expired
    // (invariant I6).
    if !effects.reserve(prepared.not_after()).await? {
        return Ok(End::Later);
    }
    // The certificate is counted only now, so that attempts that wait for the hub do not use up the identity's rate.
    if let Err(pause) = effects.count().await? {
        return Ok(End::Limited(pause));
    }
    let prepared = match effects.record_intent(intent(request, &prepared, signing.now)).await? {
        Intended::Recorded => prepared,
        Intended::Existing(Existing::Intent { issuer, serial, prepared: at, tbs }) => {
            let signing = Signing { serial, ..signing };
            let Some(again) = prepare_again(effects, request, signing, (&issuer, at, &tbs)) else {
                return abandon(effects, request, serial).await;
            };
            // The recorded intent may end at another time than the certificate that was just reserved for.
            if !effects.reserve(again.not_after()).await? {
                return Ok(End::Later);
            }
            again
        }
        Intended::Existing(Existing::Signed { row, issuer, serial, certificate }) => {
            return match Issued::recorded(certificate, issuer, serial, &request.approved) {
                Ok(issued) => publish_earlier(effects, request, signing, issued).await,
                Err(fault) => Ok(End::Unusable { row, fault }),
            };
        }
        Intended::Existing(Existing::Unreadable { row, fault }) => return Ok(End::Unusable { row, fault }),
    };
    // A certificate that was revoked meanwhile is not signed: the next attempt abandons the intent. Nor is one whose
    // addon has lost its eligibility, or whose rules have changed: the next attempt asks policy again.
    if !effects.surroundings().allow(prepared.not_before()) {
        return Ok(End::Later);
    }
    let issued = effects.sign(prepared).await?;
    let certificate = issued.certificate.to_vec();
    let record = Record::Signed { uid: request.uid.clone(), serial: issued.serial, certificate };
    effects.record_certificate(&issued, record).await?;
    publish(effects, request, issued).await
}

/// Publishes a certificate that was signed earlier, but only if it is still accepted.
async fn publish_earlier<E: Effects>(
    effects: &mut E,
    request: &Request,
    signing: Signing<'_>,
    issued: Issued,
) -> Result<End, E::Error> {
    match signing.published.verify(&issued.certificate, purpose(&request.approved), signing.now) {
        Ok(_) => publish(effects, request, issued).await,
        Err(_) => refuse(effects, request, &issued).await,
    }
}

/// Approves the CSR and publishes its certificate, which is durable.
async fn publish<E: Effects>(effects: &mut E, request: &Request, issued: Issued) -> Result<End, E::Error> {
    let around = effects.surroundings();
    // These anchors were read after the reservation. A reconciler that replaces them later sees the reservation too,
    // and its new serving authority waits until this certificate has expired (invariant I5).
    let Some(bundle) = around.trust_bundle.as_ref().filter(|_| around.is_allowed) else { return Ok(End::Later) };
    // The certificate was signed before the revocation, perhaps by a hub that has ended. It is not published, because
    // the agent would keep a revoked certificate until it renews.
    if around.is_revoked(issued.not_before) {
        return refuse(effects, request, &issued).await;
    }
    let trust_bundle = bundle.pem();
    if request.approves {
        effects.approve(&issued).await?;
        // The approval took a request to the API server; if the certificate may no longer be published, the next
        // attempt refuses it.
        if !effects.surroundings().allow(issued.not_before) {
            return Ok(End::Later);
        }
    }
    effects.publish(&issued, &trust_bundle).await?;
    Ok(End::Published(issued))
}

/// Refuses the CSR and closes its row.
async fn refuse<E: Effects>(effects: &mut E, request: &Request, issued: &Issued) -> Result<End, E::Error> {
    effects.refuse(issued).await?;
    let reason = "The certificate was expired, revoked or untrusted before it could be published.".to_owned();
    effects.close(Record::Unpublished { uid: request.uid.clone(), serial: issued.serial, reason }).await?;
    Ok(End::Refused)
}

/// Closes the row of an intent that is outdated; the next attempt decides on a new certificate.
async fn abandon<E: Effects>(effects: &mut E, request: &Request, serial: Serial) -> Result<End, E::Error> {
    let reason =
        "The certificate was not signed before its authority or the rules changed, certificates were revoked, \
                  or half of its lifetime passed."
            .to_owned();
    effects.close(Record::Abandoned { uid: request.uid.clone(), serial, reason }).await?;
    Ok(End::Later)
}

/// The certificate, prepared as of `at`. An agent's certificate ends before the gateway's authorities that come with
/// it.
fn prepare(
    effects: &impl Effects,
    request: &Request,
    signing: Signing<'_>,
    at: Timestamp,
) -> Result<Prepared, IssueError> {
    let end = signing.issuer.authority().not_after();
    let serving = effects.surroundings().last_end.filter(|_| request.approved.identity().is_some());
    let latest = serving.map_or(end, |last| end.min(last));
    signing.issuer.prepare_until(request.approved.clone(), signing.serial, at, latest)
}

/// The certificate of an earlier intent, prepared again as of `at`, if the hub would still sign the same bytes.
fn prepare_again(
    effects: &impl Effects,
    request: &Request,
    signing: Signing<'_>,
    (issuer, at, tbs): (&AuthorityId, Timestamp, &str),
) -> Option<Prepared> {
    // An error means that this authority would not sign it: the intent is outdated.
    let again = prepare(effects, request, signing, at).ok()?;
    let same = again.digest() == tbs && again.issuer() == issuer;
    // At least half of the lifetime must be left; otherwise the hub decides on a new certificate.
    (same && at.until(signing.now) <= signing.now.until(again.not_after())).then_some(again)
}

fn intent(request: &Request, certificate: &Prepared, prepared: Timestamp) -> Intent {
    let Request { uid, requested, name, requester, csr_user, csr, signer, generation, signer_name, approved, .. } =
        request.clone();
    Intent {
        uid,
        requested,
        request: name,
        signer,
        generation,
        signer_name,
        requester,
        csr_user,
        identity: approved.identity().cloned(),
        issuer: certificate.issuer().clone(),
        serial: certificate.serial(),
        not_before: certificate.not_before(),
        not_after: certificate.not_after(),
        prepared,
        tbs: certificate.digest(),
        csr,
    }
}

#[cfg(test)]
mod tests;
