//! Checks the order of issuing without a server.

mod crashes;
mod steps;

use std::sync::Arc;

use ring::rand::SystemRandom;

use super::*;
use crate::ca::issuer::tests::{NOW, YEAR, bundle, mk_approved, mk_approved_after, mk_issuer};
use crate::keys::public::KeyKind;

/// What remains when a hub is killed: the ledger, the line and the request.
#[derive(Default)]
struct World {
    reserved: Option<Timestamp>,
    intent: Option<Intent>,
    signed: Option<Vec<u8>>,
    closed: Vec<Record>,
    approved: bool,
    refused: bool,
    published: Option<Issued>,
    /// Every certificate that a key has signed for the request.
    signatures: Vec<Issued>,
}

/// A hub that starts: its authority and what it knows.
#[derive(Clone)]
struct Hub {
    issuer: Arc<Issuer>,
    published: Bundle,
    approved: Approved,
    now: Timestamp,
    /// After so many effects everything that begins before this time is revoked.
    revoked: Option<(usize, Timestamp)>,
    /// After so many effects the addon has no standing.
    detached: Option<usize>,
}

impl Hub {
    fn new() -> Self {
        let issuer = Arc::new(mk_issuer(KeyKind::EcdsaP256, YEAR));
        let published = bundle(&issuer);
        Self { issuer, published, approved: mk_approved(), now: NOW, revoked: None, detached: None }
    }

    fn signing(&self) -> Signing<'_> {
        let serial = Serial::new(self.now, &SystemRandom::new()).unwrap();
        Signing { issuer: &self.issuer, published: &self.published, serial, now: self.now }
    }

    fn issuance(&self) -> Issuance<'_> {
        Issuance::new(facts(), self.approved.clone(), true, self.signing())
    }

    fn around(&self, taken: usize) -> Surroundings<'_> {
        let revoked = self.revoked.filter(|(from, _)| *from <= taken);
        Surroundings {
            is_allowed: self.detached.is_none_or(|from| taken < from),
            valid_from: revoked.map(|(_, before)| before),
            trust_bundle: Some(&self.published),
        }
    }

    /// Works on the request until the issuance ends, or until the hub is killed after `lives` effects. Returns how the
    /// issuance ended (`None` if the hub was killed) and the number of effects.
    fn work(&self, world: &mut World, lives: usize) -> (Option<End>, usize) {
        let mut issuance = self.issuance();
        let mut event = Event::Started(None);
        for taken in 0.. {
            event = match issuance.next(event, self.around(taken)).unwrap() {
                Effect::End(end) => return (Some(end), taken),
                _ if taken == lives => break,
                effect => world.take(effect, self.signing()),
            };
        }
        (None, lives)
    }
}

fn facts() -> RequestFacts {
    RequestFacts {
        uid: "uid-1".into(),
        requested: NOW,
        name: "csr-1".to_owned(),
        requester: "system:open-cluster-management:spoke1:a1".to_owned(),
        csr_user: None,
        csr: "the request".to_owned(),
        signer: "telemetry".to_owned(),
        generation: 7,
        signer_name: "example.com/telemetry".parse().unwrap(),
    }
}

impl World {
    /// Performs an effect, and checks that it is allowed.
    fn take(&mut self, effect: Effect, signing: Signing<'_>) -> Event {
        match effect {
            Effect::Reserve(until) => {
                self.reserved = Some(until);
                Event::Reserved(true)
            }
            Effect::Count => Event::Counted(Ok(())),
            Effect::RecordIntent(intent) => {
                assert_eq!(Some(intent.not_after), self.reserved, "reserved before it is decided");
                Event::Intended(self.intend(*intent))
            }
            Effect::Sign(prepared) => {
                let intent = self.intent.as_ref().expect("an intent is durable before the key is used");
                assert_eq!((&intent.tbs, intent.serial), (&prepared.digest(), prepared.serial()));
                assert_eq!(Some(prepared.not_after()), self.reserved, "the anchor stays while the certificate lives");
                let rng = SystemRandom::new();
                let issued = signing.issuer.sign(*prepared, signing.published, signing.now, &rng).unwrap();
                self.signatures.push(issued.clone());
                Event::Signed(issued)
            }
            Effect::RecordCertificate(issued, Record::Signed { uid, serial, certificate }) => {
                let intent = self.intent.as_ref().unwrap();
                assert_eq!((&intent.uid, intent.serial), (&uid, serial));
                assert_eq!(certificate, issued.certificate.to_vec());
                assert!(self.signed.replace(certificate).is_none(), "a second certificate");
                Event::CertificateRecorded(issued)
            }
            Effect::Approve(publication) => {
                assert_eq!(self.signed, Some(publication.issued.certificate.to_vec()), "durable before the approval");
                self.approved = true;
                Event::Approved(publication)
            }
            Effect::Publish(publication) => {
                assert_eq!(self.signed, Some(publication.issued.certificate.to_vec()), "what is recorded is published");
                assert!(self.approved && !self.refused && publication.trust_bundle == signing.published.pem());
                self.published = Some(publication.issued.clone());
                Event::Published(publication)
            }
            Effect::Refuse(_) => {
                assert!(self.published.is_none());
                self.refused = true;
                Event::Done
            }
            Effect::Close(record) => {
                self.close(record);
                Event::Done
            }
            Effect::RecordCertificate(..) | Effect::End(_) => unreachable!("nobody performs this"),
        }
    }

    fn close(&mut self, record: Record) {
        match &record {
            Record::Abandoned { uid, serial, .. } => {
                assert!(self.signed.is_none(), "a certificate is not abandoned");
                let intent = self.intent.take().unwrap();
                assert_eq!((&intent.uid, intent.serial), (uid, *serial));
            }
            Record::Unpublished { uid, serial, .. } => {
                assert!(self.refused, "the request is refused first: who sees the row closed sees why");
                let intent = self.intent.as_ref().unwrap();
                assert_eq!((&intent.uid, intent.serial), (uid, *serial));
            }
            other => panic!("{other:?} closes no row"),
        }
        self.closed.push(record);
    }

    /// Does the same as `Ledger::intend`.
    fn intend(&mut self, intent: Intent) -> Intended {
        let Some(Intent { issuer, serial, prepared, tbs, .. }) = self.intent.clone() else {
            self.intent = Some(intent);
            return Intended::Recorded;
        };
        Intended::Existing(match &self.signed {
            Some(certificate) => Existing::Signed { row: 2, issuer, serial, certificate: certificate.clone() },
            None => Existing::Intent { issuer, serial, prepared, tbs },
        })
    }

    /// Starts attempts until one ends with something else than [`End::Later`].
    fn finish(&mut self, hub: &Hub) -> End {
        for _ in 0..3 {
            match hub.work(self, usize::MAX) {
                (Some(End::Later), _) => {}
                (end, _) => return end.unwrap(),
            }
        }
        panic!("three attempts ended with End::Later");
    }
}
