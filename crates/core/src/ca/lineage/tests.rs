use std::collections::BTreeMap;
use std::time::Duration;

use ring::rand::SystemRandom;

use super::rollback_tests::roll_back;
use super::*;
use crate::keys::private::PrivateKey;
use crate::keys::public::KeyKind;

pub(super) const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);
pub(super) const YEAR: Duration = Duration::from_secs(365 * 86_400);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn mk_authority() -> Authority {
    mk_authority_for(YEAR)
}

pub(super) fn mk_authority_for(life: Duration) -> Authority {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    Authority::self_signed("test", &key, NOW, life, &rng).unwrap()
}

pub(super) fn mk_evidence(now: Timestamp) -> Evidence<'static> {
    let next_is_trusted = Err(WaitsFor::Publication);
    Evidence {
        now,
        requested: None,
        offered: false,
        roll_back: None,
        taint: None,
        revoke: None,
        renew_before: 90 * DAY,
        deferral: 20 * DAY,
        caps: true,
        next_is_trusted,
    }
}

pub(super) fn mk_lineage() -> Lineage {
    Lineage::default().begin(mk_authority(), NOW)
}

pub(super) fn states(lineage: &Lineage) -> Vec<State> {
    lineage.members().iter().map(|member| member.state).collect()
}

#[test]
fn an_empty_line_begins_and_then_rests() {
    assert_eq!(Lineage::default().next_step(&mk_evidence(NOW)), Step::Begin);
    assert_eq!(mk_lineage().next_step(&mk_evidence(NOW)), Step::Rest);
    assert_eq!(Lineage::default().bundle(), Err(BundleError::Empty));
}

#[test]
fn a_request_is_handled_once() {
    let asked = Evidence { requested: Some("r1"), ..mk_evidence(NOW) };
    let lineage = mk_lineage();
    assert_eq!((lineage.next_step(&asked), lineage.phase()), (Step::Prepare, Phase::Settled));
    let lineage = lineage.prepare(mk_authority(), Some("r1"), NOW);
    assert_eq!((states(&lineage), lineage.phase()), (vec![State::Next, State::Active], Phase::Activate));
    let lineage = lineage.activate(NOW);
    assert_eq!((states(&lineage), lineage.phase()), (vec![State::Active, State::Old], Phase::Finish));
    let id = lineage.members()[1].authority.id().clone();
    assert_eq!(lineage.next_step(&asked), Step::Finish(id.clone()));
    let lineage = lineage.finish(&id);
    assert_eq!((lineage.next_step(&asked), lineage.phase()), (Step::Rest, Phase::Settled));
    let again = Evidence { requested: Some("r2"), ..mk_evidence(NOW) };
    assert_eq!(lineage.next_step(&again), Step::Prepare);
    assert_eq!(mk_lineage().with_handled(Some("r1")).next_step(&asked), Step::Rest, "it is older than the lineage");
}

#[test]
fn next_does_not_sign_before_its_anchor_is_trusted() {
    let lineage = mk_lineage().prepare(mk_authority(), None, NOW);
    assert_eq!(lineage.next_step(&mk_evidence(NOW)), Step::Wait(WaitsFor::Publication));
    assert_eq!(lineage.bundle().unwrap().authorities().len(), 2, "published while it waits");
    let trusted = Evidence { next_is_trusted: Ok(()), ..mk_evidence(NOW) };
    assert_eq!(lineage.next_step(&trusted), Step::Activate);
}

#[test]
fn an_old_anchor_stays_until_its_last_leaf_has_expired() {
    let end = NOW.plus(DAY);
    let lineage = mk_lineage().reserve(end).unwrap();
    let lineage = lineage.prepare(mk_authority(), None, NOW).activate(NOW);
    let old = lineage.members()[1].authority.id().clone();
    let waits = Step::Wait(WaitsFor::OldCertificates { authority: old, at: end });
    assert_eq!(lineage.next_step(&mk_evidence(NOW)), waits);
    assert_eq!(lineage.next_step(&mk_evidence(end)), waits, "the last second still counts");
    let after = end.plus(Duration::from_secs(1));
    assert_eq!(lineage.next_step(&mk_evidence(after)), Step::Finish(lineage.members()[1].authority.id().clone()));
}

#[test]
fn an_ageing_authority_is_replaced_without_being_asked() {
    let lineage = mk_lineage();
    let due = lineage.active().unwrap().authority.not_after().minus(90 * DAY);
    assert_eq!(lineage.next_step(&mk_evidence(due.minus(DAY))), Step::Rest);
    assert_eq!(lineage.next_step(&mk_evidence(due)), Step::Prepare);
}

#[test]
fn the_number_of_authorities_is_bounded() {
    let mut lineage = mk_lineage();
    for round in 0..3_u32 {
        lineage = lineage.reserve(NOW.plus(DAY * (round + 1))).unwrap();
        lineage = lineage.prepare(mk_authority(), None, NOW.plus(Duration::from_secs(u64::from(round)))).activate(NOW);
    }
    assert_eq!(lineage.members().len(), MAX_AUTHORITIES);
    let asked = Evidence { requested: Some("more"), ..mk_evidence(NOW) };
    assert!(matches!(lineage.next_step(&asked), Step::Wait(_)));
}

#[test]
fn blocked_successor_signs_a_day_before_active_authority_ends() {
    let lineage = mk_lineage().prepare(mk_authority(), None, NOW);
    let end = lineage.active().unwrap().authority.not_after();
    let before = end.minus(DAY + Duration::from_secs(1));
    assert_eq!(lineage.next_step(&mk_evidence(before)), Step::Wait(WaitsFor::Publication));
    assert_eq!(lineage.next_step(&mk_evidence(end.minus(DAY))), Step::Force(WaitsFor::Publication));
    let trusted = Evidence { next_is_trusted: Ok(()), ..mk_evidence(end) };
    assert_eq!(lineage.next_step(&trusted), Step::Activate, "with evidence it is an ordinary step");
    let forced = lineage.clone().force(end);
    assert_eq!(states(&forced), [State::Active, State::Old]);
    assert_eq!(forced.forced(end), forced.active(), "it says so");
    assert_eq!(lineage.clone().activate(end).forced(end), None);
    let known = lineage.hold_next_until(end.plus(DAY), end).force(end);
    assert!(known.forced(end.plus(DAY)).is_some());
    assert_eq!(known.forced(end.plus(2 * DAY)), None, "by then everybody has the new anchor");
}

#[test]
fn late_successor_still_has_time_to_gather_evidence() {
    let lineage = mk_lineage().prepare(mk_authority(), None, NOW);
    let end = lineage.active().unwrap().authority.not_after();
    let hour = Duration::from_secs(3_600);
    let evidence = |now| Evidence { renew_before: hour, ..mk_evidence(now) };
    assert_eq!(lineage.next_step(&evidence(end.minus(hour))), Step::Wait(WaitsFor::Publication));
    assert_eq!(lineage.next_step(&evidence(end.minus(hour / 2))), Step::Force(WaitsFor::Publication));
}

#[test]
fn a_full_line_makes_another_authority_before_its_last_one_ends() {
    let mut lineage = mk_lineage();
    for round in 0..3 {
        lineage = lineage.reserve(NOW.plus(10 * YEAR + DAY * round)).unwrap();
        lineage = lineage.prepare(mk_authority(), None, NOW).activate(NOW);
    }
    // Those before it must stay, because they end later.
    let end = NOW.plus(YEAR).minus(DAY);
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &SystemRandom::new()).unwrap();
    let last = Authority::self_signed("short", &key, NOW, YEAR - DAY, &SystemRandom::new()).unwrap();
    let mut members = lineage.members().to_vec();
    members[0] = Member::new(last.into(), State::Active, NOW);
    let lineage = Lineage::restore(members, None, None).unwrap();
    assert!(matches!(lineage.next_step(&mk_evidence(end.minus(2 * DAY))), Step::Wait(_)));
    assert_eq!(lineage.next_step(&mk_evidence(end.minus(DAY))), Step::Prepare);
    let lineage = lineage.prepare(mk_authority(), None, end.minus(DAY));
    assert_eq!(lineage.members().len(), MOST_AUTHORITIES);
    assert!(!matches!(lineage.next_step(&mk_evidence(end)), Step::Prepare));
}

#[test]
fn finish_never_drops_what_is_not_old() {
    let lineage = mk_lineage().prepare(mk_authority(), None, NOW);
    for member in lineage.members() {
        assert_eq!(lineage.clone().finish(member.authority.id()), lineage);
    }
}

#[test]
fn reserving_is_needed_only_beyond_what_is_reserved() {
    let lineage = mk_lineage().reserve(NOW.plus(DAY)).unwrap();
    assert_eq!(lineage.reserve(NOW.plus(DAY)), None);
    assert!(lineage.reserve(NOW.plus(2 * DAY)).is_some());
    assert_eq!(Lineage::default().reserve(NOW), None);
}

#[test]
fn contradictory_stores_are_refused() {
    let member = |state| Member::new(mk_authority().into(), state, NOW);
    let restore = |members| Lineage::restore(members, None, None);
    assert_eq!(restore(vec![member(State::Old)]), Err(LineageError::NoActive));
    assert_eq!(
        restore(vec![member(State::Active), member(State::Active)]),
        Err(LineageError::TooMany(2, State::Active))
    );
    let twice = Member { state: State::Old, ..member(State::Active) };
    let active = Member { state: State::Active, ..twice.clone() };
    assert!(matches!(restore(vec![twice, active]), Err(LineageError::Duplicate(_))));
    let lineage = mk_lineage().prepare(mk_authority(), Some("r"), NOW);
    assert_eq!(Lineage::restore(lineage.members().to_vec(), Some("r".to_owned()), None), Ok(lineage));
}

/// What the ledger has of each authority of a lineage, if it has seen all steps of the lineage.
pub(super) fn mk_recorded(lineage: &Lineage) -> BTreeMap<AuthorityId, RecordedAuthority> {
    let known = |member: &Member| RecordedAuthority {
        state: Some(member.state),
        leaves_expire: member.leaves_expire,
        tainted: member.tainted,
    };
    lineage.members().iter().map(|member| (member.authority.id().clone(), known(member))).collect()
}

#[test]
fn a_line_that_is_ahead_of_the_ledger_is_not_older() {
    let first = mk_lineage().reserve(NOW.plus(DAY)).unwrap();
    let second = first.clone().prepare(mk_authority(), None, NOW);
    let third = second.clone().activate(NOW);
    let old = third.members()[1].authority.id().clone();
    let spent = mk_recorded(&third);
    let spent = spent.into_iter().map(|(id, known)| (id, RecordedAuthority { leaves_expire: None, ..known })).collect();
    for (lineage, recorded) in [
        (&first, BTreeMap::new()),
        (&first, mk_recorded(&first)),
        (&second, mk_recorded(&first)),
        (&third, mk_recorded(&second)),
        (&third.clone().finish(&old), spent),
    ] {
        assert_eq!(lineage.older_than(&recorded), None);
    }
}

#[test]
fn a_line_that_lacks_what_the_ledger_knows_is_older() {
    let first = mk_lineage();
    let id = |lineage: &Lineage, n: usize| lineage.members()[n].authority.id().clone();
    let second = first.clone().prepare(mk_authority(), None, NOW);
    let older = first.older_than(&mk_recorded(&second)).unwrap();
    assert_eq!(older, Older { lineage: first.clone(), behind: vec![], missing: vec![id(&second, 0)] });
    let third = second.clone().activate(NOW).reserve(NOW.plus(DAY)).unwrap();
    let older = first.older_than(&mk_recorded(&third)).unwrap();
    assert_eq!((older.behind, older.missing), (vec![id(&first, 0)], vec![id(&third, 0)]));
    let older = second.older_than(&mk_recorded(&third)).unwrap();
    assert_eq!((older.behind, older.missing), (vec![id(&second, 0), id(&second, 1)], vec![]));
    let mut finished = mk_recorded(&third);
    finished.insert(id(&first, 0), RecordedAuthority { state: None, leaves_expire: None, tainted: false });
    assert_eq!(first.older_than(&finished).unwrap().behind, [id(&first, 0)]);
}

/// Whoever can write the ledger's store could otherwise keep an Old authority for ever.
#[test]
fn no_certificate_is_recorded_for_longer_than_its_authority() {
    let lineage = mk_lineage();
    let end = lineage.members()[0].authority.not_after();
    let mut recorded = mk_recorded(&lineage);
    recorded.values_mut().for_each(|known| known.leaves_expire = Some(end.plus(DAY)));
    let older = lineage.older_than(&recorded).unwrap().lineage;
    assert_eq!(older.members()[0].leaves_expire, Some(end));
    assert_eq!(older.older_than(&recorded), None);
}

#[test]
fn only_an_old_authority_without_certificates_may_be_missing() {
    let before = mk_lineage().reserve(NOW.plus(DAY)).unwrap().prepare(mk_authority(), None, NOW).activate(NOW);
    let old = before.members()[1].authority.id().clone();
    let lineage = before.clone().finish(&old);
    let mut recorded = mk_recorded(&before);
    assert_eq!(lineage.older_than(&recorded), None, "it has left the lineage");
    let lineage = lineage.with_gone(Vec::new());
    assert_eq!(lineage.older_than(&recorded).unwrap().missing, std::slice::from_ref(&old));
    recorded.get_mut(&old).unwrap().leaves_expire = None;
    assert_eq!(lineage.older_than(&recorded), None);
}

#[test]
fn older_line_keeps_anchor_while_recorded_certificates_live() {
    let lineage = mk_lineage().reserve(NOW.plus(DAY)).unwrap();
    let recorded = mk_recorded(&lineage.reserve(NOW.plus(2 * DAY)).unwrap());
    let older = lineage.older_than(&recorded).unwrap();
    assert_eq!(older.lineage, lineage.reserve(NOW.plus(2 * DAY)).unwrap());
    assert_eq!(older.lineage.older_than(&recorded), None);
}

pub(super) fn id(lineage: &Lineage, n: usize) -> AuthorityId {
    lineage.members()[n].authority.id().clone()
}

#[test]
fn the_last_authorities_that_left_the_line_are_remembered() {
    let mut lineage = mk_lineage();
    let mut left = vec![id(&lineage, 0)];
    for _ in 0..MOST_GONE {
        assert_eq!(lineage.gone(), &left[..left.len() - 1], "the others are there");
        lineage = lineage.prepare(mk_authority(), None, NOW).activate(NOW).finish(left.last().unwrap());
        left.push(id(&lineage, 0));
    }
    let dropped = lineage.prepare(mk_authority(), None, NOW);
    let lineage = roll_back(&dropped, 0, NOW);
    assert_eq!(lineage.gone().last(), Some(&id(&dropped, 0)));
    assert_eq!((lineage.gone().len(), &lineage.gone()[..1]), (MOST_GONE, &left[1..2]), "the oldest is forgotten");
}
