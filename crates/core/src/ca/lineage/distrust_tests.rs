use super::rollback_tests::refused;
use super::tests::{DAY, NOW, id, mk_authority, mk_evidence, mk_lineage, mk_recorded, states};
use super::*;

/// The lineage after the step that the request leads to.
fn taint(lineage: &Lineage, n: usize, now: Timestamp) -> Lineage {
    let asked = id(lineage, n);
    let step = lineage.next_step(&Evidence { taint: Some(&asked), ..mk_evidence(now) });
    assert_eq!(step, Step::Taint { id: asked.clone() });
    let new = step.needs_authority(lineage).then(mk_authority);
    let after = lineage.clone().taint(&asked, new, now);
    let again = after.next_step(&Evidence { taint: Some(&asked), ..mk_evidence(now) });
    assert!(!matches!(again, Step::Taint { .. }), "once");
    after
}

fn revoke(lineage: &Lineage, n: usize) -> Lineage {
    let asked = id(lineage, n);
    let step = lineage.next_step(&Evidence { revoke: Some(&asked), ..mk_evidence(NOW) });
    assert_eq!(step, Step::Revoke { id: asked.clone() });
    let new = step.needs_authority(lineage).then(mk_authority);
    let after = lineage.clone().revoke(&asked, new, Some(NOW.plus(DAY)), NOW);
    assert!(after.members().iter().all(|member| *member.authority.id() != asked));
    let again = after.next_step(&Evidence { revoke: Some(&asked), ..mk_evidence(NOW) });
    assert!(!matches!(again, Step::Revoke { .. }), "once");
    after
}

/// Next, Active and Old, of which the last two have certificates in use.
fn mk_three() -> Lineage {
    let lineage = mk_lineage().reserve(NOW.plus(DAY)).unwrap().prepare(mk_authority(), None, NOW).activate(NOW);
    lineage.reserve(NOW.plus(2 * DAY)).unwrap().prepare(mk_authority(), Some("r1"), NOW)
}

#[test]
fn a_tainted_active_is_replaced_at_once_on_evidence() {
    let lineage = taint(&mk_lineage().reserve(NOW.plus(DAY)).unwrap(), 0, NOW);
    assert!(lineage.is_tainted());
    assert_eq!(lineage.distrusted().count(), 0, "a renewal would bring no better one");
    assert_eq!(lineage.next_step(&mk_evidence(NOW)), Step::Prepare, "nobody has to ask");
    let lineage = lineage.prepare(mk_authority(), None, NOW);
    assert_eq!(lineage.next_step(&mk_evidence(NOW)), Step::Wait(WaitsFor::Publication));
    let trusted = Evidence { next_is_trusted: Ok(()), ..mk_evidence(NOW) };
    assert_eq!(lineage.next_step(&trusted), Step::Activate);
    let lineage = lineage.activate(NOW);
    let tainted: Vec<_> = lineage.members().iter().map(|member| (member.state, member.tainted)).collect();
    assert_eq!((tainted, lineage.is_tainted()), (vec![(State::Active, false), (State::Old, true)], false));
    assert_eq!(lineage.distrusted().collect::<Vec<_>>(), [&id(&lineage, 1)]);
    assert!(matches!(lineage.next_step(&mk_evidence(NOW)), Step::Wait(WaitsFor::OldCertificates { .. })));
}

/// The Secret comes from a backup of the time before Next signed, and the ledger knows that it was tainted since.
#[test]
fn a_next_from_a_backup_that_was_tainted_never_signs() {
    let backup = mk_three();
    let next = id(&backup, 0);
    let later = backup.clone().activate(NOW).taint(&next, None::<Authority>, NOW);
    let lineage = backup.older_than(&mk_recorded(&later)).unwrap().lineage;
    let trusted = Evidence { next_is_trusted: Ok(()), ..mk_evidence(NOW) };
    assert_eq!(lineage.next_step(&trusted), Step::Taint { id: next.clone() });
    let without = lineage.next_step_without_authority(&trusted, "somebody");
    assert_eq!(without, Step::Taint { id: next.clone() });
    let lineage = lineage.taint(&next, Some(mk_authority()), NOW);
    assert!(lineage.next().is_some_and(|it| *it.authority.id() != next && !it.tainted));
}

#[test]
fn a_larger_fleet_renews_in_a_longer_time() {
    let windows = [0, 1_200, 1_201, 3_500, 1_000_000].map(renewal_window);
    assert_eq!(windows, [60, 60, 61, 175, 50_000]);
}

#[test]
fn a_tainted_authority_is_never_rolled_back_to() {
    let lineage = mk_lineage().reserve(NOW.plus(DAY)).unwrap();
    let first = id(&lineage, 0);
    let waits = taint(&lineage, 0, NOW).prepare(mk_authority(), None, NOW);
    assert_eq!(refused(&waits, 0, NOW), Some(NotRolledBack::Tainted(first.clone())));
    assert_eq!(refused(&waits.activate(NOW), 0, NOW), Some(NotRolledBack::Tainted(first)));
}

#[test]
fn a_full_line_with_a_tainted_active_makes_one_more() {
    let mut lineage = mk_lineage();
    while lineage.members().len() < MAX_AUTHORITIES {
        lineage = lineage.reserve(NOW.plus(DAY)).unwrap().prepare(mk_authority(), None, NOW).activate(NOW);
    }
    let asked = Evidence { requested: Some("more"), ..mk_evidence(NOW) };
    assert_eq!(lineage.next_step(&asked), Step::Wait(WaitsFor::OldestAuthority));
    let lineage = taint(&lineage.reserve(NOW.plus(DAY)).unwrap(), 0, NOW);
    assert_eq!(lineage.next_step(&mk_evidence(NOW)), Step::Prepare);
    let lineage =
        taint(&lineage.prepare(mk_authority(), None, NOW).activate(NOW).reserve(NOW.plus(DAY)).unwrap(), 0, NOW);
    assert_eq!(lineage.members().len(), MOST_AUTHORITIES);
    assert_eq!(lineage.next_step(&mk_evidence(NOW)), Step::Wait(WaitsFor::OldestAuthority), "gateways accept no more");
}

#[test]
fn a_tainted_next_is_replaced_with_another() {
    let before = mk_three();
    let lineage = taint(&before, 0, NOW);
    assert_eq!(states(&lineage), [State::Next, State::Active, State::Old]);
    assert!(lineage.members().iter().all(|member| !member.tainted && *member.authority.id() != id(&before, 0)));
    assert_eq!((lineage.gone(), lineage.handled_request()), (&[id(&before, 0)][..], Some("r1")));
    assert_eq!(lineage.older_than(&mk_recorded(&before)), None);
    assert!(lineage.with_gone(Vec::new()).older_than(&mk_recorded(&before)).is_some());
}

/// Such a lineage comes from a backup: its Next has signed in the meantime.
#[test]
fn a_tainted_next_with_certificates_in_use_becomes_old() {
    let mut before = mk_three();
    before.members[0].leaves_expire = Some(NOW.plus(DAY));
    let lineage = taint(&before, 0, NOW);
    assert_eq!(states(&lineage), [State::Next, State::Active, State::Old, State::Old]);
    let kept = lineage.members().iter().find(|member| *member.authority.id() == id(&before, 0)).unwrap();
    assert!(kept.tainted && kept.state == State::Old);
    assert!(lineage.gone().is_empty());
    while before.members.len() < MOST_AUTHORITIES {
        before.members.push(Member::new(mk_authority().into(), State::Old, NOW));
    }
    let asked = id(&before, 0);
    assert_eq!(before.taint(&asked, Some(mk_authority()), NOW).members().len(), MOST_AUTHORITIES);
}

#[test]
fn taint_of_an_old_or_unknown_authority_changes_no_state() {
    let before = mk_three();
    let lineage = taint(&before, 2, NOW);
    assert_eq!(states(&lineage), states(&before));
    assert!(lineage.members()[2].tainted && !lineage.is_tainted());
    let unknown = AuthorityId::from("0123456789abcdef");
    assert_eq!(lineage.clone().taint(&unknown, None::<Authority>, NOW), lineage);
    for evidence in [
        Evidence { taint: Some(&unknown), ..mk_evidence(NOW) },
        Evidence { revoke: Some(&unknown), ..mk_evidence(NOW) },
    ] {
        assert_eq!(lineage.next_step(&evidence), lineage.next_step(&mk_evidence(NOW)));
    }
}

#[test]
fn a_revoked_old_or_next_is_gone_whatever_depends_on_it() {
    let before = mk_three();
    for (n, left) in [(0, vec![State::Active, State::Old]), (2, vec![State::Next, State::Active])] {
        let lineage = revoke(&before, n);
        assert_eq!((states(&lineage), lineage.gone()), (left, &[id(&before, n)][..]));
        assert_eq!(lineage.forced(NOW), None);
        assert_eq!(lineage.older_than(&mk_recorded(&before)), None);
        assert!(lineage.with_gone(Vec::new()).older_than(&mk_recorded(&before)).is_some());
    }
}

#[test]
fn a_revoked_active_is_replaced_in_the_same_step() {
    let before = mk_three();
    let lineage = revoke(&before, 1);
    assert_eq!((states(&lineage), id(&lineage, 0)), (vec![State::Active, State::Old], id(&before, 0)), "by Next");
    assert_eq!(lineage.forced(NOW), lineage.active(), "nobody knows who trusts it");
    assert_eq!(lineage.forced(NOW.plus(2 * DAY)), None, "by then everybody has been told");
    assert_eq!(lineage.older_than(&mk_recorded(&before)), None);
    let first = mk_lineage();
    let lineage = revoke(&first, 0);
    assert_eq!(states(&lineage), [State::Active], "by a new one");
    assert_eq!(lineage.forced(NOW), lineage.active());
    assert_eq!(lineage.older_than(&mk_recorded(&first.reserve(NOW.plus(DAY)).unwrap())), None);
    assert_eq!(
        Lineage::restore(lineage.members().to_vec(), None, None).map(|it| it.with_gone(vec![id(&first, 0)])),
        Ok(lineage)
    );
    assert_eq!(first.clone().revoke(&id(&first, 0), None::<Authority>, None, NOW), first, "never without an Active");
}

#[test]
fn a_revocation_comes_before_every_other_step() {
    let lineage = mk_three();
    let (next, active) = (id(&lineage, 0), id(&lineage, 1));
    let late = NOW.plus(90 * DAY);
    let all = Evidence {
        taint: Some(&next),
        roll_back: Some(&next),
        revoke: Some(&active),
        next_is_trusted: Ok(()),
        ..mk_evidence(late)
    };
    assert_eq!(lineage.next_step(&all), Step::Revoke { id: active.clone() });
    let none = Evidence { revoke: None, ..all };
    assert!(matches!(lineage.next_step(&none), Step::Finish(_)), "an Old one that is spent");
    assert!(matches!(lineage.next_step(&Evidence { now: NOW, ..none }), Step::Taint { .. }));
}

#[test]
fn a_revocation_waits_for_no_issuer_of_another_one() {
    let lineage = mk_three();
    let [next, active, old] = [0, 1, 2].map(|n| id(&lineage, n));
    assert_eq!(lineage.first_to_revoke([&active, &old].into_iter()), Some(&active), "Next replaces it");
    let lineage = revoke(&lineage, 0);
    assert_eq!(lineage.first_to_revoke([&next].into_iter()), None);
    assert_eq!(lineage.first_to_revoke([&active].into_iter()), Some(&active));
    assert_eq!(lineage.first_to_revoke([&next, &active, &old].into_iter()), Some(&old));
}

#[test]
fn without_an_authority_the_line_does_what_needs_none() {
    let waits = |text: &str| Step::Wait(WaitsFor::Issuer(text.to_owned()));
    let lineage = mk_lineage().reserve(NOW.plus(DAY)).unwrap();
    let first = id(&lineage, 0);
    let without =
        |lineage: &Lineage, evidence: &Evidence<'_>| lineage.next_step_without_authority(evidence, "an answer");
    assert_eq!(without(&Lineage::default(), &mk_evidence(NOW)), Step::Begin);
    let asked = Evidence { requested: Some("r1"), ..mk_evidence(NOW) };
    assert_eq!((without(&lineage, &asked), without(&lineage, &mk_evidence(NOW))), (waits("an answer"), Step::Rest));
    let revoked = Evidence { revoke: Some(&first), ..mk_evidence(NOW) };
    assert_eq!(without(&lineage, &revoked), Step::AwaitRevocation { id: first.clone() });
    let tainted = lineage.clone().taint(&first, None::<Authority>, NOW);
    assert_eq!(without(&tainted, &revoked), Step::AwaitRevocation { id: first.clone() });
    let doomed = lineage.await_revocation(&first, "ann");
    assert!(doomed.is_tainted(), "it signs no more");
    let text = format!("an answer; until then {first}, which is to be revoked, is trusted");
    assert_eq!(without(&doomed, &revoked), waits(&text));
    let with_next = doomed.prepare(mk_authority(), None, NOW);
    assert_eq!(without(&with_next, &revoked), Step::Revoke { id: first.clone() });
    let next = id(&with_next, 0);
    let evidence = Evidence { taint: Some(&next), ..mk_evidence(NOW) };
    assert_eq!(without(&with_next, &evidence), Step::Taint { id: next.clone() });
    assert_eq!(states(&with_next.taint(&next, None::<Authority>, NOW)), [State::Active]);
}

/// The annotation that asked for it may have been removed by then: with the object, or because another program wrote
/// the object.
#[test]
fn a_revocation_that_waits_is_remembered() {
    let lineage = mk_lineage().reserve(NOW.plus(DAY)).unwrap();
    let (first, none) = (id(&lineage, 0), [].into_iter());
    assert_eq!(lineage.first_to_revoke(none.clone()), None);
    let lineage = lineage.await_revocation(&first, "ann");
    assert_eq!(lineage.first_to_revoke(none.clone()), Some(&first));
    let lineage = lineage.prepare(mk_authority(), None, NOW);
    let evidence = Evidence { revoke: lineage.first_to_revoke(none.clone()), ..mk_evidence(NOW) };
    assert_eq!(lineage.next_step(&evidence), Step::Revoke { id: first.clone() });
    let lineage = lineage.clone().revoke(&first, None::<Authority>, None, NOW);
    assert_eq!((states(&lineage), lineage.first_to_revoke(none)), (vec![State::Active], None));
}

#[test]
fn an_older_line_does_not_forgive() {
    let before = mk_lineage();
    let recorded = mk_recorded(&taint(&before, 0, NOW));
    let older = before.older_than(&recorded).unwrap();
    assert_eq!((older.behind, older.lineage.is_tainted()), (vec![id(&before, 0)], true));
    assert_eq!(older.lineage.older_than(&recorded), None);
    assert_eq!(older.lineage.next_step(&mk_evidence(NOW)), Step::Prepare);
    let lineage = before.prepare(mk_authority(), None, NOW);
    let restored = lineage.older_than(&mk_recorded(&taint(&lineage, 1, NOW))).unwrap().lineage;
    assert!(restored.is_tainted() && restored.next().is_some_and(|next| !next.tainted));
}
