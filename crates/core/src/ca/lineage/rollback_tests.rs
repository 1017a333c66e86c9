use ring::rand::SystemRandom;

use super::tests::{DAY, NOW, YEAR, id, mk_authority, mk_authority_for, mk_evidence, mk_lineage, mk_recorded, states};
use super::*;
use crate::keys::private::PrivateKey;
use crate::keys::public::KeyKind;

pub(super) fn roll_back(lineage: &Lineage, n: usize, now: Timestamp) -> Lineage {
    let asked = id(lineage, n);
    let evidence = Evidence { roll_back: Some(&asked), ..mk_evidence(now) };
    match lineage.next_step(&evidence) {
        Step::RollBack { id, signs } if id == asked => lineage.clone().roll_back(&id, &signs, now),
        step => panic!("{step:?}"),
    }
}

pub(super) fn refused(lineage: &Lineage, n: usize, now: Timestamp) -> Option<NotRolledBack> {
    let asked = id(lineage, n);
    let evidence = Evidence { roll_back: Some(&asked), ..mk_evidence(now) };
    assert!(!matches!(lineage.next_step(&evidence), Step::RollBack { .. }));
    lineage.previous(&evidence)?.err()
}

#[test]
fn next_that_is_rolled_back_is_gone_and_does_not_come_again() {
    let lineage = mk_lineage().reserve(NOW.plus(DAY)).unwrap();
    let with_next = lineage.clone().prepare(mk_authority(), Some("r1"), NOW);
    let next = id(&with_next, 0);
    let back = roll_back(&with_next, 0, NOW);
    assert_eq!((back.members(), back.rolled_back()), (lineage.members(), Some(&next)));
    let asked = Evidence { requested: Some("r1"), roll_back: Some(&next), ..mk_evidence(NOW) };
    assert_eq!(back.next_step(&asked), Step::Rest, "its request is handled");
    let trusted = Evidence { next_is_trusted: Ok(()), ..asked };
    assert!(matches!(with_next.next_step(&trusted), Step::RollBack { .. }), "even if it could sign");
    // The ledger may have recorded Next and not yet the rollback.
    assert_eq!(back.older_than(&mk_recorded(&with_next)), None);
    assert!(lineage.older_than(&mk_recorded(&with_next)).is_some(), "without a rollback it is missing");
}

/// Such a lineage comes from a backup: its Next has signed in the meantime.
#[test]
fn next_with_certificates_in_use_becomes_old() {
    let mut lineage = mk_lineage().prepare(mk_authority(), None, NOW);
    lineage.members[0].leaves_expire = Some(NOW.plus(DAY));
    let back = roll_back(&lineage, 0, NOW);
    assert_eq!((id(&back, 1), states(&back)), (id(&lineage, 0), vec![State::Active, State::Old]));
    assert_eq!(states(&roll_back(&lineage, 0, NOW.plus(2 * DAY))), [State::Active]);
    let edited = back.clone().finish(&id(&back, 1)).with_gone(Vec::new());
    assert!(edited.older_than(&mk_recorded(&back)).is_some(), "it is missed even though it was rolled back");
}

#[test]
fn active_that_is_rolled_back_is_old_and_the_previous_signs() {
    let lineage = mk_lineage().reserve(NOW.plus(DAY)).unwrap();
    let lineage = lineage.prepare(mk_authority(), None, NOW).force(NOW).reserve(NOW.plus(2 * DAY)).unwrap();
    let (new, first) = (id(&lineage, 0), id(&lineage, 1));
    let later = NOW.plus(DAY);
    let back = roll_back(&lineage, 0, later);
    assert_eq!((id(&back, 0), id(&back, 1), states(&back)), (first, new.clone(), vec![State::Active, State::Old]));
    assert_eq!(back.members()[1].leaves_expire, Some(NOW.plus(2 * DAY)), "its certificates are still in use");
    assert_eq!(back.forced(NOW), None);
    assert_eq!(Lineage::restore(back.members().to_vec(), None, Some(new.clone())), Ok(back.clone()));
    let asked = Evidence { roll_back: Some(&new), ..mk_evidence(later) };
    assert!(matches!(back.next_step(&asked), Step::Wait(WaitsFor::OldCertificates { .. })), "once");
    assert_eq!(back.older_than(&mk_recorded(&lineage)), None);
}

fn mk_later_authority() -> Authority {
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &SystemRandom::new()).unwrap();
    Authority::self_signed("test", &key, NOW.plus(DAY), YEAR, &SystemRandom::new()).unwrap()
}

#[test]
fn what_cannot_be_rolled_back_has_its_reason() {
    let two = mk_lineage().reserve(NOW.plus(2 * YEAR)).unwrap().prepare(mk_later_authority(), None, NOW).activate(NOW);
    let first = id(&two, 1);
    let three = two.clone().prepare(mk_authority(), None, NOW);
    assert_eq!(refused(&three, 1, NOW), Some(NotRolledBack::NextComesFirst(id(&three, 0))));
    assert_eq!(refused(&three, 2, NOW), None, "it neither waits nor signs");
    let unknown = AuthorityId::from("0123456789abcdef");
    for lineage in [&two, &three] {
        let evidence = Evidence { roll_back: Some(&unknown), ..mk_evidence(NOW) };
        assert_eq!(lineage.previous(&evidence), None);
        assert_eq!(lineage.next_step(&evidence), lineage.next_step(&mk_evidence(NOW)));
    }
    assert_eq!(refused(&mk_lineage(), 0, NOW), Some(NotRolledBack::NoPrevious));
    let back = roll_back(&two.clone().reserve(NOW.plus(2 * YEAR)).unwrap(), 0, NOW);
    assert_eq!(refused(&back, 0, NOW), Some(NotRolledBack::NoPrevious), "the other one is newer");
    let end = NOW.plus(YEAR);
    assert_eq!(states(&roll_back(&two, 0, end.minus(71 * DAY))), [State::Active, State::Old]);
    let soon = Some(NotRolledBack::ExpiresSoon(first.clone()));
    assert_eq!(refused(&two, 0, end.minus(70 * DAY)), soon);
    let next = mk_lineage().prepare(mk_authority(), None, NOW);
    assert_eq!(refused(&next, 0, end.minus(70 * DAY)), Some(NotRolledBack::ExpiresSoon(id(&next, 1))));
    let mut keyless = two.clone();
    keyless.members[1].has_key = false;
    assert_eq!(refused(&keyless, 0, NOW), Some(NotRolledBack::NoKey(first)));
    let mut full = two;
    while full.members.len() < MOST_AUTHORITIES {
        full = full.reserve(NOW.plus(2 * YEAR)).unwrap_or(full).prepare(mk_later_authority(), None, NOW).activate(NOW);
    }
    assert_eq!(refused(&full, 0, NOW), Some(NotRolledBack::Full));
}

#[test]
fn after_a_rollback_age_begins_a_rotation_later() {
    let back = roll_back(&mk_lineage().prepare(mk_authority(), None, NOW), 0, NOW);
    let end = back.active().unwrap().authority.not_after();
    assert_eq!(back.next_step(&mk_evidence(end.minus(71 * DAY))), Step::Rest);
    assert_eq!(back.next_step(&mk_evidence(end.minus(70 * DAY))), Step::Prepare);
    let asked = Evidence { requested: Some("r"), ..mk_evidence(NOW) };
    assert_eq!(back.next_step(&asked), Step::Prepare);
    assert_eq!(back.prepare(mk_authority(), Some("r"), NOW).rolled_back(), None);
}

/// Otherwise no certificate could outlast it, although Active has years left.
#[test]
fn a_next_that_is_due_before_it_is_trusted_is_given_up() {
    let lineage = mk_lineage().prepare(mk_authority_for(120 * DAY), Some("r1"), NOW);
    let (next, active) = (id(&lineage, 0), id(&lineage, 1));
    let (early, late) = (mk_evidence(NOW.plus(29 * DAY)), mk_evidence(NOW.plus(30 * DAY)));
    assert_eq!(lineage.next_step(&early), Step::Wait(WaitsFor::Publication));
    assert_eq!(lineage.next_step(&late), Step::GiveUp(next.clone()));
    let another_lineage = Evidence { caps: false, ..late.clone() };
    assert_eq!(lineage.next_step(&another_lineage), Step::Wait(WaitsFor::Publication));
    assert_eq!(lineage.next_step(&Evidence { next_is_trusted: Ok(()), ..late.clone() }), Step::Activate);
    let sooner = Evidence { renew_before: 100 * DAY, ..mk_evidence(NOW.plus(20 * DAY)) };
    assert_eq!(lineage.next_step(&sooner), Step::GiveUp(next.clone()), "the plan was changed");
    let tainted = lineage.clone().taint(&active, None::<Authority>, NOW);
    assert_eq!(tainted.next_step(&late), Step::GiveUp(next.clone()));
    assert_eq!(tainted.give_up(late.now).next_step(&late), Step::Prepare);
    let lineage = lineage.give_up(late.now);
    assert_eq!((states(&lineage), lineage.next_step(&late)), (vec![State::Active], Step::Rest));
    assert_eq!((lineage.rolled_back(), lineage.gone()), (None, &[next][..]), "age begins the next rotation as always");
    let mut used = mk_lineage().prepare(mk_authority_for(120 * DAY), None, NOW);
    used.members[0].leaves_expire = Some(NOW.plus(40 * DAY));
    assert_eq!(states(&used.give_up(late.now)), [State::Active, State::Old], "it comes from a backup");
    let both = mk_lineage().prepare(mk_authority(), None, NOW);
    let last = mk_evidence(NOW.plus(300 * DAY));
    assert_eq!(both.next_step(&last), Step::Wait(WaitsFor::Publication), "Active is due as well");
}
