//! Crash order without a server: a hub that is killed between any two effects, twice, leaves one certificate.

use std::sync::Arc;

use ring::rand::SystemRandom;

use super::*;
use crate::ca::issuer::tests::{NOW, YEAR, bundle, mk_approved, mk_approved_after, mk_issuer};
use crate::keys::public::KeyKind;

/// What outlives a hub: the ledger and the request.
#[derive(Default)]
struct World {
    intent: Option<Intent>,
    signed: Option<Issued>,
    closed: Vec<Record>,
    approved: bool,
    refused: bool,
    published: Option<Issued>,
    /// Every certificate that a key has signed for the request.
    signatures: Vec<Issued>,
}

/// What a hub that starts finds.
#[derive(Clone)]
struct Hub {
    issuer: Arc<Issuer>,
    published: Bundle,
    now: Timestamp,
    revoked_before: Option<Timestamp>,
}

impl Hub {
    fn new() -> Self {
        let issuer = Arc::new(mk_issuer(KeyKind::EcdsaP256, YEAR));
        let published = bundle(&issuer);
        Self { issuer, published, now: NOW, revoked_before: None }
    }

    /// Works on the request until it ends, or until it is killed after so many effects. How it ended, and how many
    /// effects it took.
    fn work(&self, world: &mut World, lives: usize) -> (Option<End>, usize) {
        let serial = Serial::new(self.now, &SystemRandom::new()).unwrap();
        let signing = Signing { issuer: &self.issuer, published: &self.published, serial, now: self.now };
        let (mut issuance, mut effect) = Issuance::begin(facts(), mk_approved(), true, signing);
        for taken in 0..lives {
            let event = match effect {
                Effect::End(end) => return (Some(end), taken),
                effect => world.take(effect, signing),
            };
            let around = Surroundings { revoked_before: self.revoked_before, trust_bundle: Some(&self.published) };
            effect = issuance.next(event, around).unwrap();
        }
        (None, lives)
    }
}

fn facts() -> RequestFacts {
    RequestFacts {
        uid: "uid-1".to_owned(),
        requested: NOW,
        name: "csr-1".to_owned(),
        requester: "system:open-cluster-management:spoke1:a1".to_owned(),
        csr: String::new(),
        signer: "telemetry".to_owned(),
        generation: 1,
        signer_name: "example.com/telemetry".to_owned(),
    }
}

impl World {
    /// Lets an effect take place, and checks that it may.
    fn take(&mut self, effect: Effect, signing: Signing<'_>) -> Event {
        match effect {
            Effect::Recall => Event::Recalled(None),
            Effect::Reserve(until) => Event::Reserved(until <= signing.issuer.authority().not_after()),
            Effect::Count => Event::Counted(Ok(())),
            Effect::RecordIntent(intent) => Event::Intended(self.intend(*intent)),
            Effect::Sign(prepared) => {
                let intent = self.intent.as_ref().expect("an intent is durable before the key is used");
                assert_eq!((&intent.tbs, intent.serial), (&prepared.digest(), prepared.serial()));
                let rng = SystemRandom::new();
                let issued = signing.issuer.sign(*prepared, signing.published, signing.now, &rng).unwrap();
                self.signatures.push(issued.clone());
                Event::Signed(issued)
            }
            Effect::RecordCertificate(issued) => {
                assert_eq!(self.intent.as_ref().map(|intent| intent.serial), Some(issued.serial));
                assert!(self.signed.replace(issued).is_none(), "a second certificate");
                Event::Done
            }
            Effect::Approve => {
                assert!(self.signed.is_some(), "a certificate is durable before the request is approved");
                self.approved = true;
                Event::Done
            }
            Effect::Publish(publication) => {
                assert_eq!(self.signed.as_ref(), Some(&publication.issued), "what is published is what is recorded");
                assert!(self.approved && !self.refused && !publication.trust_bundle.is_empty());
                self.published = Some(publication.issued);
                Event::Done
            }
            Effect::Refuse => {
                assert!(self.published.is_none());
                self.refused = true;
                Event::Done
            }
            Effect::Close(record) => {
                if let Record::Abandoned { serial, .. } = &record {
                    assert!(self.signed.is_none(), "a certificate is not abandoned");
                    assert_eq!(self.intent.take().map(|intent| intent.serial), Some(*serial));
                }
                self.closed.push(record);
                Event::Done
            }
            Effect::End(_) => unreachable!("it is nobody's to perform"),
        }
    }

    /// As `Ledger::intend`.
    fn intend(&mut self, intent: Intent) -> Intended {
        let Some(Intent { issuer, serial, prepared, tbs, .. }) = self.intent.clone() else {
            self.intent = Some(intent);
            return Intended::Recorded;
        };
        Intended::Existing(match &self.signed {
            Some(issued) => Existing::Signed { row: 2, issuer, serial, certificate: issued.certificate.to_vec() },
            None => Existing::Intent { row: 1, issuer, serial, prepared, tbs },
        })
    }

    /// Lets hubs work until one comes to an end that stays.
    fn finish(&mut self, hub: &Hub) -> End {
        for _ in 0..3 {
            match hub.work(self, usize::MAX) {
                (Some(End::Later), _) => {}
                (end, _) => return end.unwrap(),
            }
        }
        panic!("it comes to no end");
    }
}

/// Kills a first hub after every number of effects, and a second one after every number.
fn killed_twice(second: &Hub, first: &Hub, check: impl Fn(&World, End)) {
    let effects = first.work(&mut World::default(), usize::MAX).1;
    assert_eq!(effects, 8, "recall, reserve, count, intent, sign, certificate, approve, publish");
    for lives in 0..effects {
        for lives_after in 0..=effects {
            let mut world = World::default();
            assert_eq!(first.work(&mut world, lives).0, None);
            second.work(&mut world, lives_after);
            let end = if world.published.is_some() { End::Refused } else { world.finish(second) };
            check(&world, end);
        }
    }
}

#[test]
fn a_hub_that_is_killed_between_any_two_effects_leaves_one_certificate_that_is_the_recorded_one() {
    let hub = Hub::new();
    killed_twice(&hub, &hub, |world, _| {
        assert_eq!(world.published, world.signed);
        assert!(world.published.is_some() && !world.refused && world.closed.is_empty());
        let first = &world.signatures[0];
        assert!(world.signatures.iter().all(|issued| issued.serial == first.serial), "one serial number");
    });
}

#[test]
fn an_intent_of_an_authority_that_is_gone_is_abandoned_and_its_certificate_never_leaves() {
    let first = Hub::new();
    let second = Hub::new();
    killed_twice(&second, &first, |world, end| {
        let of_second = |issued: &Issued| issued.issuer == second.issuer.authority().id();
        match &world.published {
            Some(issued) => assert!(of_second(issued) && Some(issued) == world.signed.as_ref()),
            None => {
                assert_eq!(end, End::Refused);
                assert!(world.refused && world.signed.as_ref().is_some_and(|issued| !of_second(issued)));
            }
        }
    });
}

#[test]
fn an_intent_is_abandoned_when_half_of_its_life_has_passed() {
    let hub = Hub::new();
    let mut world = World::default();
    hub.work(&mut world, 4);
    let life = world.intent.as_ref().map(|intent| NOW.until(intent.not_after)).unwrap();
    let serial = world.intent.as_ref().map(|intent| intent.serial);
    let late = Hub { now: NOW.plus(life / 2), ..hub.clone() };
    late.work(&mut world, 5);
    assert_eq!(world.intent.as_ref().map(|intent| intent.serial), serial, "half a life is left");
    let too_late = Hub { now: late.now.plus(Duration::from_secs(1)), ..hub };
    assert_eq!(too_late.work(&mut world, usize::MAX).0, Some(End::Later));
    assert!(matches!(world.closed.as_slice(), [Record::Abandoned { .. }]) && world.intent.is_none());
}

#[test]
fn nothing_that_is_revoked_is_signed_or_published() {
    let hub = Hub::new();
    for lives in 0..8 {
        let mut world = World::default();
        hub.work(&mut world, lives);
        let signatures = world.signatures.len();
        let revoked = Hub { revoked_before: Some(NOW), ..hub.clone() };
        revoked.work(&mut world, usize::MAX);
        assert_eq!((world.published.as_ref(), world.signatures.len()), (None, signatures), "after {lives} effects");
        assert_eq!(world.refused, world.signed.is_some());
    }
}

#[test]
fn a_request_waits_for_a_revocation_that_lies_in_the_future() {
    let hub = Hub::new();
    let until = NOW.plus(Duration::from_secs(60));
    let serial = Serial::new(NOW, &SystemRandom::new()).unwrap();
    let signing = Signing { issuer: &hub.issuer, published: &hub.published, serial, now: NOW };
    let (_, effect) = Issuance::begin(facts(), mk_approved_after(Some(until)), true, signing);
    assert!(matches!(effect, Effect::End(End::RevokedUntil(time)) if time == until));
}

#[test]
fn an_answer_to_another_question_does_nothing() {
    let hub = Hub::new();
    let serial = Serial::new(NOW, &SystemRandom::new()).unwrap();
    let signing = Signing { issuer: &hub.issuer, published: &hub.published, serial, now: NOW };
    let (mut issuance, _) = Issuance::begin(facts(), mk_approved(), true, signing);
    let effect = issuance.next(Event::Intended(Intended::Recorded), Surroundings::default()).unwrap();
    assert!(matches!(effect, Effect::End(End::Later)));
}
