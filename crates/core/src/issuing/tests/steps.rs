//! The steps of an attempt, and what ends it early.

use super::*;
use crate::ca::authority::Authority;
use crate::keys::private::PrivateKey;

/// The effects of an attempt that nothing ends early.
pub(super) const STEPS: [&str; 7] =
    ["reserve", "count", "record intent", "sign", "record certificate", "approve", "publish"];

/// Works to the end; returns how the attempt ended, and its effects.
fn work(hub: &Hub, world: &mut World) -> (End, Vec<&'static str>) {
    let (end, effects) = hub.work(world, usize::MAX);
    (end.unwrap(), effects)
}

/// What the hub decides on.
fn intended(hub: &Hub) -> Intent {
    let mut world = World::default();
    hub.work(&mut world, 3);
    world.intent.unwrap()
}

/// A CSR whose certificate is recorded and not published; and that certificate.
fn recorded(hub: &Hub) -> (World, Issued) {
    let mut world = World::default();
    hub.work(&mut world, 5);
    let issued = world.signatures[0].clone();
    assert!(world.signed.is_some());
    assert!(!world.approved);
    (world, issued)
}

#[test]
fn a_certificate_is_issued_in_this_order() {
    let mut world = World::default();
    let (end, effects) = work(&Hub::new(), &mut world);
    assert_eq!(effects, STEPS);
    assert_eq!(end, End::Published(world.signatures.remove(0)));
}

#[test]
fn an_intent_says_what_the_certificate_will_say() {
    let hub = Hub::new();
    let intent = intended(&hub);
    let prepared = hub.issuer.prepare(hub.approved.clone(), intent.serial, NOW).unwrap();
    let Request { uid, requested, name, requester, csr_user, csr, signer, generation, signer_name, approved, .. } =
        hub.request();
    let expected = Intent {
        uid,
        requested,
        request: name,
        signer,
        generation,
        signer_name,
        requester,
        csr_user,
        identity: approved.identity().cloned(),
        issuer: hub.issuer.authority().id().clone(),
        serial: intent.serial,
        not_before: prepared.not_before(),
        not_after: prepared.not_after(),
        prepared: NOW,
        tbs: prepared.digest(),
        csr,
    };
    assert!(expected.identity.is_some());
    assert_eq!(intent, expected);
}

#[test]
fn without_a_reservation_nothing_is_decided_or_signed() {
    let mut world = World::default();
    let unreserved = Hub { unreserved: Some(0), ..Hub::new() };
    assert_eq!(work(&unreserved, &mut world), (End::Later, vec!["reserve"]));
    let first = Hub::new();
    first.work(&mut world, 3);
    let not_after = world.intent.as_ref().map(|intent| intent.not_after);
    // A minute later a new certificate would end later; the intent is reserved for as it is.
    let later = Hub { now: NOW.plus(Duration::from_secs(60)), ..first };
    later.work(&mut world, 3);
    assert_ne!(world.reserved, not_after);
    later.work(&mut world, 4);
    assert_eq!(world.reserved, not_after);
    let unreserved = Hub { unreserved: Some(3), ..later };
    assert_eq!(work(&unreserved, &mut world), (End::Later, vec!["reserve", "count", "record intent", "reserve"]));
    assert!(world.signatures.is_empty());
}

#[test]
fn an_identity_over_its_rate_waits() {
    let pause = Duration::from_secs(9);
    let hub = Hub { limited: Some(pause), ..Hub::new() };
    let mut world = World::default();
    assert_eq!(work(&hub, &mut world), (End::Limited(pause), vec!["reserve", "count"]));
    assert_eq!(world.intent, None);
}

#[test]
fn a_row_that_is_not_the_requests_is_named() {
    let hub = Hub::new();
    let (_, Issued { issuer, serial, .. }) = recorded(&hub);
    let certificate = b"no certificate".to_vec();
    let cases = [
        (Existing::Unreadable { row: 5, fault: RecordFault::Serial }, 5, RecordFault::Serial),
        (Existing::Signed { row: 6, issuer, serial, certificate }, 6, RecordFault::Unreadable),
    ];
    for (existing, row, fault) in cases {
        let mut world = World { altered: Some(existing), ..World::default() };
        assert_eq!(work(&hub, &mut world), (End::Unusable { row, fault }, STEPS[..3].to_vec()));
    }
    // The bytes are the same, and the ledger names another authority.
    let intent = intended(&hub);
    let serial = intent.serial;
    let mut world = World { intent: Some(Intent { issuer: "another".into(), ..intent }), ..World::default() };
    assert_eq!(work(&hub, &mut world), (End::Later, vec!["reserve", "count", "record intent", "close"]));
    assert!(matches!(world.closed.as_slice(), [Record::Abandoned { serial: of, .. }] if *of == serial));
}

#[test]
fn remembered_certificate_is_published_if_still_accepted() {
    let hub = Hub::new();
    let (mut world, issued) = recorded(&hub);
    let remembers = |hub: Hub| Hub { earlier: Some(issued.clone()), ..hub };
    let late = Hub { now: issued.not_after.plus(Duration::from_secs(1)), ..hub.clone() };
    for other in [late, Hub::new()] {
        let mut world = World { intent: world.intent.clone(), signed: world.signed.clone(), ..World::default() };
        assert_eq!(work(&remembers(other), &mut world), (End::Refused, vec!["refuse", "close"]));
        assert!(matches!(world.closed.as_slice(), [Record::Unpublished { .. }]));
    }
    let published = work(&remembers(hub), &mut world);
    assert_eq!(published, (End::Published(issued), vec!["approve", "publish"]));
}

#[test]
fn a_request_that_somebody_else_approved_is_only_published() {
    let hub = Hub { approves: false, ..Hub::new() };
    let (mut world, issued) = recorded(&hub);
    let remembers = Hub { earlier: Some(issued.clone()), ..hub };
    assert_eq!(work(&remembers, &mut world), (End::Published(issued), vec!["publish"]));
    assert!(!world.approved);
}

#[test]
fn without_the_gateways_trust_bundle_nothing_is_published() {
    let hub = Hub::new();
    let (mut world, issued) = recorded(&hub);
    let hub = Hub { earlier: Some(issued.clone()), serving: None, ..hub };
    assert_eq!(work(&hub, &mut world), (End::Later, vec![]));
    // The bundle is the one of the moment, not the one that must accept the certificate.
    let serving = Hub::new().published;
    let hub = Hub { serving: Some(serving.clone()), ..hub };
    assert_eq!(work(&hub, &mut world), (End::Published(issued), vec!["approve", "publish"]));
    assert_eq!(world.trust_bundle, Some(serving.pem()));
}

#[test]
fn an_addon_that_is_detached_meanwhile_gets_nothing() {
    let (end, effects) = work(&Hub::new(), &mut World::default());
    assert!(matches!(end, End::Published(_)));
    for from in 0..effects.len() {
        let mut world = World::default();
        let hub = Hub { detached: Some(from), ..Hub::new() };
        let (end, taken) = work(&hub, &mut world);
        assert!(end == End::Later, "detached after {from} effects: {end:?}");
        assert!(taken.len() <= effects.len(), "detached after {from} effects: {end:?}");
        assert_eq!(world.published, None);
        assert!(world.signatures.is_empty() || from > 3, "signed although detached after {from} effects");
        assert!(!world.approved || from > 5, "approved although detached after {from} effects");
    }
}

#[test]
fn agent_leaf_ends_two_days_before_newest_gateway_authority() {
    let hub = Hub::new();
    let ordinary = intended(&hub).not_after;
    let end = |serving: Vec<Authority>| {
        let serving = Some(Bundle::new(serving).unwrap());
        intended(&Hub { serving, ..hub.clone() }).not_after
    };
    let day = Duration::from_secs(86_400);
    let long = mk_issuer(KeyKind::EcdsaP256, YEAR).authority().clone();
    assert_eq!(end(vec![long]), ordinary);
    let short = mk_issuer(KeyKind::EcdsaP256, 2 * day + day / 2).authority().clone();
    let cut = NOW.plus(day / 2);
    assert!(cut < ordinary);
    assert_eq!(end(vec![short.clone()]), cut);
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let newer = Authority::self_signed("newer", &key, NOW.plus(day / 24), YEAR, &rng).unwrap();
    assert_eq!(end(vec![short, newer]), ordinary, "the agent gets the next one");
    let ending = mk_issuer(KeyKind::EcdsaP256, day).authority().clone();
    let least = NOW.plus(crate::policy::MIN_LIFETIME);
    assert_eq!(end(vec![ending]), least, "signing goes on all the same");
}
