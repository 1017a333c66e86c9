//! Two hubs that are killed one after the other, each between any two effects, leave one certificate.

use super::steps::STEPS;
use super::*;

/// Kills a first hub after each number of effects, and for each of these a second hub after each number of effects.
/// Then hubs work to the end, and `check` gets the result.
fn killed_twice(first: &Hub, second: &Hub, check: impl Fn(&World, End)) {
    for lives in 0..STEPS.len() {
        for lives_after in 0..=STEPS.len() {
            let mut world = World::default();
            assert_eq!(first.work(&mut world, lives).0, None);
            second.work(&mut world, lives_after);
            let end = match world.published.clone() {
                Some(issued) => End::Published(issued),
                None => world.finish(second),
            };
            check(&world, end);
        }
    }
}

#[test]
fn kill_between_effects_leaves_only_the_recorded_certificate() {
    let hub = Hub::new();
    killed_twice(&hub, &hub, |world, end| {
        assert_eq!(world.published.clone().map(End::Published), Some(end));
        assert_eq!(world.published.as_ref().map(|issued| issued.certificate.to_vec()), world.signed);
        assert!(!world.refused);
        assert!(world.closed.is_empty());
        let first = &world.signatures[0];
        assert!(world.signatures.iter().all(|issued| issued.serial == first.serial), "one serial number");
    });
}

#[test]
fn certificate_of_vanished_authority_is_never_published() {
    let first = Hub::new();
    let second = Hub::new();
    killed_twice(&first, &second, |world, end| match end {
        End::Published(issued) => {
            assert_eq!(&issued.issuer, second.issuer.authority().id());
            assert!(world.closed.iter().all(|record| matches!(record, Record::Abandoned { .. })));
        }
        end => {
            assert_eq!(end, End::Refused);
            assert_eq!(&world.signatures[0].issuer, first.issuer.authority().id());
            assert!(world.refused);
            assert!(matches!(world.closed.last(), Some(Record::Unpublished { .. })));
        }
    });
}

#[test]
fn an_intent_under_other_rules_is_abandoned() {
    let first = Hub::new();
    // The same authority; the certificate would begin later.
    let revoked_before = Some(NOW.minus(Duration::from_secs(60)));
    let second = Hub { approved: mk_approved_after(revoked_before), ..first.clone() };
    let mut world = World::default();
    first.work(&mut world, 3);
    assert_eq!(second.work(&mut world, usize::MAX).0, Some(End::Later));
    assert!(matches!(world.closed.as_slice(), [Record::Abandoned { .. }]));
    assert!(matches!(world.finish(&second), End::Published(issued) if Some(issued.not_before) == revoked_before));
}

#[test]
fn an_intent_is_abandoned_when_half_of_its_life_has_passed() {
    let hub = Hub::new();
    let mut world = World::default();
    hub.work(&mut world, 3);
    let intent = world.intent.clone().unwrap();
    let late = Hub { now: NOW.plus(NOW.until(intent.not_after) / 2), ..hub.clone() };
    late.work(&mut world, 4);
    assert_eq!(world.intent.as_ref().map(|intent| intent.serial), Some(intent.serial), "half a life is left");
    let too_late = Hub { now: late.now.plus(Duration::from_secs(1)), ..hub };
    assert_eq!(too_late.work(&mut world, usize::MAX).0, Some(End::Later));
    assert!(matches!(world.closed.as_slice(), [Record::Abandoned { .. }]));
    assert!(world.intent.is_none());
}

#[test]
fn nothing_revoked_between_effects_is_signed_or_published() {
    for effects in 0..6 {
        let mut world = World::default();
        let hub = Hub { revoked: Some((effects, NOW)), ..Hub::new() };
        let end = hub.work(&mut world, usize::MAX).0;
        let signed = effects > 3;
        assert_eq!(end, Some(if signed { End::Refused } else { End::Later }), "after {effects} effects");
        assert_eq!((world.signatures.len(), world.refused), (usize::from(signed), signed));
        assert_eq!(world.published, None);
    }
    // Revoked during the approval: the next attempt refuses the CSR.
    let mut world = World::default();
    let hub = Hub { revoked: Some((6, NOW)), ..Hub::new() };
    assert_eq!(hub.work(&mut world, usize::MAX), (Some(End::Later), STEPS[..6].to_vec()));
    assert_eq!(world.finish(&Hub { revoked: Some((0, NOW)), ..hub }), End::Refused);
    assert_eq!(world.published, None);
}

#[test]
fn what_begins_at_the_time_of_a_revocation_is_published() {
    let before = NOW.minus(Duration::from_secs(60));
    let approved = mk_approved_after(Some(before));
    assert_eq!(approved.waits_until(NOW), None);
    assert_eq!(approved.waits_until(before), None);
    assert_eq!(approved.waits_until(before.minus(Duration::from_secs(1))), Some(before));
    let hub = Hub { approved, revoked: Some((0, before)), ..Hub::new() };
    assert!(matches!(World::default().finish(&hub), End::Published(issued) if issued.not_before == before));
}
