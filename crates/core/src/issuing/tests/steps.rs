//! Each event and the effect that follows it.

use super::*;

/// Performs effects until one is found that `is_it` accepts; returns the issuance and that effect.
fn until<'s>(hub: &'s Hub, world: &mut World, is_it: impl Fn(&Effect) -> bool) -> (Issuance<'s>, Effect) {
    let mut issuance = hub.issuance();
    let mut event = Event::Started(None);
    loop {
        let effect = issuance.next(event, hub.around(0)).unwrap();
        if is_it(&effect) {
            return (issuance, effect);
        }
        event = world.take(effect, hub.signing());
    }
}

fn end(issuance: &mut Issuance<'_>, event: Event, around: Surroundings<'_>) -> End {
    match issuance.next(event, around).unwrap() {
        Effect::End(end) => end,
        other => panic!("{other:?}"),
    }
}

fn mk_issued(hub: &Hub) -> Issued {
    let mut world = World::default();
    hub.work(&mut world, 4);
    world.signatures.remove(0)
}

#[test]
fn an_intent_says_what_the_certificate_will_say() {
    let hub = Hub::new();
    let (_, effect) = until(&hub, &mut World::default(), |effect| matches!(effect, Effect::RecordIntent(_)));
    let Effect::RecordIntent(intent) = effect else { panic!() };
    let prepared = hub.issuer.prepare(hub.approved.clone(), intent.serial, NOW).unwrap();
    let RequestFacts { uid, requested, name, requester, csr_user, csr, signer, generation, signer_name } = facts();
    let expected = Intent {
        uid,
        requested,
        request: name,
        signer,
        generation,
        signer_name,
        requester,
        csr_user,
        identity: hub.approved.identity().cloned(),
        issuer: hub.issuer.authority().id().clone(),
        serial: intent.serial,
        not_before: prepared.not_before(),
        not_after: prepared.not_after(),
        prepared: NOW,
        tbs: prepared.digest(),
        csr,
    };
    assert!(expected.identity.is_some());
    assert_eq!(*intent, expected);
}

#[test]
fn without_a_reservation_nothing_is_decided_or_signed() {
    let hub = Hub::new();
    let is_reserve = |effect: &Effect| matches!(effect, Effect::Reserve(_));
    let (mut issuance, _) = until(&hub, &mut World::default(), is_reserve);
    assert_eq!(end(&mut issuance, Event::Reserved(false), hub.around(0)), End::Later);
    let mut world = World::default();
    hub.work(&mut world, 3);
    let mut issuance = hub.issuance();
    let mut event = Event::Started(None);
    for _ in 0..3 {
        event = world.take(issuance.next(event, hub.around(0)).unwrap(), hub.signing());
    }
    let again = issuance.next(event, hub.around(0)).unwrap();
    assert!(matches!(again, Effect::Reserve(until) if Some(until) == world.intent.map(|intent| intent.not_after)));
    assert_eq!(end(&mut issuance, Event::Reserved(false), hub.around(0)), End::Later);
}

#[test]
fn an_identity_over_its_rate_waits() {
    let hub = Hub::new();
    let (mut issuance, _) = until(&hub, &mut World::default(), |effect| matches!(effect, Effect::Count));
    let pause = Duration::from_secs(9);
    assert_eq!(end(&mut issuance, Event::Counted(Err(pause)), hub.around(0)), End::Limited(pause));
}

#[test]
fn a_row_that_is_not_the_requests_is_named() {
    let hub = Hub::new();
    let is_intent = |effect: &Effect| matches!(effect, Effect::RecordIntent(_));
    let issued = mk_issued(&hub);
    let Issued { issuer, serial, .. } = issued.clone();
    let certificate = b"no certificate".to_vec();
    let cases = [
        (Existing::Unreadable { row: 5, fault: RecordFault::Serial }, 5, RecordFault::Serial),
        (Existing::Signed { row: 6, issuer, serial, certificate }, 6, RecordFault::Unreadable),
    ];
    for (existing, row, fault) in cases {
        let (mut issuance, _) = until(&hub, &mut World::default(), is_intent);
        let event = Event::Intended(Intended::Existing(existing));
        assert_eq!(end(&mut issuance, event, hub.around(0)), End::Unusable { row, fault });
    }
    // The bytes are the same, and the ledger names another authority.
    let (mut issuance, effect) = until(&hub, &mut World::default(), is_intent);
    let Effect::RecordIntent(intent) = effect else { panic!() };
    let Intent { serial, prepared, tbs, .. } = *intent;
    let existing = Existing::Intent { issuer: "another".into(), serial, prepared, tbs };
    let effect = issuance.next(Event::Intended(Intended::Existing(existing)), hub.around(0)).unwrap();
    assert!(matches!(effect, Effect::Close(Record::Abandoned { serial: of, .. }) if of == serial));
}

#[test]
fn remembered_certificate_is_published_if_still_accepted() {
    let hub = Hub::new();
    let issued = mk_issued(&hub);
    let effect = hub.issuance().next(Event::Started(Some(issued.clone())), hub.around(0)).unwrap();
    assert!(matches!(effect, Effect::Approve(publication) if publication.issued == issued));
    let late = Hub { now: issued.not_after.plus(Duration::from_secs(1)), ..hub.clone() };
    for other in [late, Hub::new()] {
        let effect = other.issuance().next(Event::Started(Some(issued.clone())), other.around(0)).unwrap();
        assert!(matches!(effect, Effect::Refuse(_)));
    }
}

#[test]
fn a_request_that_somebody_else_approved_is_only_published() {
    let hub = Hub::new();
    let issued = mk_issued(&hub);
    let mut issuance = Issuance::new(facts(), hub.approved.clone(), false, hub.signing());
    let effect = issuance.next(Event::Started(Some(issued)), hub.around(0)).unwrap();
    assert!(matches!(effect, Effect::Publish(_)));
}

#[test]
fn without_the_gateways_trust_bundle_nothing_is_published() {
    let hub = Hub::new();
    let issued = mk_issued(&hub);
    let nothing = Surroundings { is_allowed: true, ..Surroundings::default() };
    assert_eq!(end(&mut hub.issuance(), Event::Started(Some(issued.clone())), nothing), End::Later);
    // The bundle is the one of the moment, not the one that must accept the certificate.
    let serving = Hub::new();
    let around = Surroundings { trust_bundle: Some(&serving.published), ..nothing };
    let effect = hub.issuance().next(Event::Started(Some(issued)), around).unwrap();
    assert!(matches!(effect, Effect::Approve(publication) if publication.trust_bundle == serving.published.pem()));
}

#[test]
fn an_addon_that_is_detached_meanwhile_gets_nothing() {
    let (end, effects) = Hub::new().work(&mut World::default(), usize::MAX);
    assert!(matches!(end, Some(End::Published(_))));
    for from in 0..effects {
        let mut world = World::default();
        let hub = Hub { detached: Some(from), ..Hub::new() };
        let (end, taken) = hub.work(&mut world, usize::MAX);
        assert!(end == Some(End::Later) && taken <= effects, "detached after {from} effects: {end:?}");
        assert_eq!(world.published, None);
        assert!(world.signatures.is_empty() || from > 3, "signed although detached after {from} effects");
    }
}

#[test]
fn an_answer_to_another_question_is_an_error() {
    let hub = Hub::new();
    let mut issuance = hub.issuance();
    let answer = issuance.next(Event::Intended(Intended::Recorded), hub.around(0));
    assert!(matches!(answer, Err(IssueError::OutOfOrder)));
    let answer = issuance.next(Event::Started(None), hub.around(0));
    assert!(matches!(answer, Err(IssueError::OutOfOrder)), "and the attempt is over");
}

#[test]
fn agent_leaf_ends_two_days_before_newest_gateway_authority() {
    let hub = Hub::new();
    let is_intent = |effect: &Effect| matches!(effect, Effect::RecordIntent(_));
    let intended = |serving: &Bundle| {
        let around = Surroundings { trust_bundle: Some(serving), ..Surroundings::default() };
        let mut world = World::default();
        let mut issuance = hub.issuance();
        let mut event = Event::Started(None);
        loop {
            match issuance.next(event, around).unwrap() {
                Effect::RecordIntent(intent) => return intent.not_after,
                effect => event = world.take(effect, hub.signing()),
            }
        }
    };
    let day = Duration::from_secs(86_400);
    let long = mk_issuer(KeyKind::EcdsaP256, YEAR).authority().clone();
    let (_, ordinary) = until(&hub, &mut World::default(), is_intent);
    let Effect::RecordIntent(ordinary) = ordinary else { panic!() };
    assert_eq!(intended(&Bundle::new(vec![long.clone()]).unwrap()), ordinary.not_after);
    let short = mk_issuer(KeyKind::EcdsaP256, 2 * day + day / 2).authority().clone();
    let cut = NOW.plus(day / 2);
    assert!(cut < ordinary.not_after);
    assert_eq!(intended(&Bundle::new(vec![short.clone()]).unwrap()), cut);
    let rng = SystemRandom::new();
    let (key, _) = crate::keys::private::PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let newer = crate::ca::authority::Authority::self_signed("newer", &key, NOW.plus(day / 24), YEAR, &rng).unwrap();
    assert_eq!(intended(&Bundle::new(vec![short, newer]).unwrap()), ordinary.not_after, "the agent gets the next one");
    let ending = mk_issuer(KeyKind::EcdsaP256, day).authority().clone();
    let least = NOW.plus(crate::policy::MIN_LIFETIME);
    assert_eq!(intended(&Bundle::new(vec![ending]).unwrap()), least, "signing goes on all the same");
}
