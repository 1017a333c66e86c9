//! Machines with one fault each, which the search and the walks must find.

use super::*;

fn find(machine: Machine, scope: &Scope, broken: Broken) {
    assert_eq!(scope.search(machine).unwrap_err().broken, broken);
    find_by_walks(machine, scope, broken);
}

/// For a fault that takes more actions than the search has.
fn find_by_walks(machine: Machine, scope: &Scope, broken: Broken) {
    assert_eq!(scope.walk(machine).unwrap_err().broken, broken);
}

#[test]
fn a_broken_machine_is_found() {
    let hasty = Machine {
        decide: |lineage, evidence, has| {
            decide(lineage, &Evidence { next_is_trusted: Ok(()), ..evidence.clone() }, has)
        },
        ..MACHINE
    };
    let forgetful = Machine {
        decide: |lineage, evidence, has| match lineage.members().iter().find(|member| member.state == State::Old) {
            Some(old) => Step::Finish(old.authority.id().clone()),
            None => decide(lineage, evidence, has),
        },
        ..MACHINE
    };
    let thorough = Machine {
        take: |lineage, step, new, requested, now| {
            let mut after = take(lineage, step, new, requested, now);
            if let Step::RollBack { id, .. } = step {
                after.remove(|member| member.authority.id() == id);
            }
            after
        },
        ..MACHINE
    };
    find_by_walks(thorough, &Scope::rotations(), Broken::Dropped);
    let careless = Machine { reserve: |_, _| None, ..MACHINE };
    for (machine, broken) in [(hasty, Broken::Untrusted), (forgetful, Broken::Dropped), (careless, Broken::Unreserved)]
    {
        find(machine, &Scope::rotations(), broken);
    }
}

/// Each asks less of agents than the rule does.
#[test]
fn a_machine_that_overlooks_agents_is_found() {
    let overlooks: [Trusted; 8] = [
        |agents, lineage, now| but(agents, |works| works.unapplied.clear()).have_next(lineage, now),
        |agents, lineage, now| but(agents, |works| works.recent.clear()).have_next(lineage, now),
        |agents, lineage, now| but(agents, |works| works.without.clear()).have_next(lineage, now),
        |agents, lineage, now| but(agents, |works| works.unserved = false).have_next(lineage, now),
        |agents, lineage, now| but(agents, |works| works.shrunk = false).have_next(lineage, now),
        |agents, lineage, now| {
            let next: Vec<_> = lineage.next().map(|next| next.authority.clone()).into_iter().collect();
            let works = agents.works.map(|works| Works { anchors: &next, ..works });
            Agents { works, ..agents }.have_next(lineage, now)
        },
        |agents, lineage, now| agents.have_next(lineage, now.plus(DAY)), // certificates that have not expired
        |agents, lineage, now| {
            let lineage = lineage.clone();
            let since = |member: &Member| Member { since: now.minus(LIFE), ..member.clone() }; // all addons are new
            let members = lineage.members.iter().map(since).collect();
            agents.have_next(&Lineage { members, ..lineage }, now)
        },
    ];
    for trusted in overlooks {
        find_by_walks(Machine { trusted, ..MACHINE }, &Scope::signers(), Broken::Untrusted);
    }
}

fn but<'k>(mut agents: Agents<'k>, change: impl Fn(&mut Works<'k>)) -> Agents<'k> {
    agents.works.iter_mut().for_each(change);
    agents
}

#[test]
fn a_machine_that_trusts_too_long_is_found() {
    let lenient = Machine {
        take: |mut lineage, step, new, requested, now| {
            if let Step::Taint { id } = step {
                lineage
                    .members
                    .iter_mut()
                    .filter(|member| member.authority.id() == id)
                    .for_each(|it| it.tainted = true);
                return lineage;
            }
            take(lineage, step, new, requested, now)
        },
        ..MACHINE
    };
    let quiet = Machine {
        take: |lineage, step, new, requested, now| {
            let mut after = take(lineage, step, new, requested, now);
            after.members.iter_mut().for_each(|member| member.forced = false);
            after
        },
        ..MACHINE
    };
    let keeping = Machine {
        take: |lineage, step, new, requested, now| {
            let before = lineage.members.clone();
            let mut after = take(lineage, step, new, requested, now);
            if let Step::Revoke { id } = step {
                let kept = before.into_iter().filter(|it| it.authority.id() == id);
                after.members.extend(kept.map(|member| Member { state: State::Old, ..member }));
            }
            after
        },
        ..MACHINE
    };
    for (machine, broken) in [(lenient, Broken::Kept), (quiet, Broken::Untrusted), (keeping, Broken::Back)] {
        find(machine, &Scope::distrust(), broken);
    }
}

/// Too many actions for the search: a rotation and its rollback.
#[test]
fn a_machine_that_forgives_is_found() {
    let forgiving = Machine {
        decide: |lineage, evidence, has| {
            let mut lineage = lineage.clone();
            let taint = evidence.taint.filter(|id| lineage.untainted(Some(*id)).is_some());
            let old = lineage.members.iter_mut().filter(|member| member.state == State::Old);
            old.for_each(|member| member.tainted = false);
            decide(&lineage, &Evidence { taint, ..evidence.clone() }, has)
        },
        ..MACHINE
    };
    let (taint, step) = (Action::Taint(Which::Signs), Action::Step(Crash::No));
    let actions =
        [Action::Issue, taint, step, step, Action::Hear(0), Action::Hear(1), step, Action::RollBack, step, step];
    let follow = |machine| {
        let first = World::new(machine, false, false);
        actions.into_iter().try_fold(first, |mut world, action| world.act(action).map(|()| world))
    };
    assert_eq!(follow(forgiving).err(), Some(Broken::Back));
    assert_eq!(follow(MACHINE).err(), None);
}

#[test]
fn a_machine_that_only_waits_is_found() {
    let oblivious = Machine {
        take: |lineage, step, new, requested, now| match step {
            Step::AwaitRevocation { id } => lineage.taint(id, None::<Authority>, now),
            _ => take(lineage, step, new, requested, now),
        },
        ..MACHINE
    };
    find_by_walks(oblivious, &Scope::issuer(), Broken::Forgotten);
    let capped = Machine {
        decide: |lineage, evidence, has| match decide(lineage, evidence, has) {
            Step::GiveUp(_) => Step::Wait(WaitsFor::Publication),
            step => step,
        },
        ..MACHINE
    };
    find_by_walks(capped, &Scope::issuer(), Broken::Capped);
}

#[test]
fn a_machine_that_believes_everybody_is_found() {
    let trusting = Machine { refuses: |_, _| false, ..MACHINE };
    find(trusting, &Scope::issuer(), Broken::Back);
    let remembers_one = Machine { refuses: |lineage, id| lineage.gone().last() == Some(id), ..MACHINE };
    find_by_walks(remembers_one, &Scope::issuer(), Broken::Back);
    let timeless = Machine { confirms: |_, _| true, ..MACHINE };
    let own = Machine { compare: |world, hub, _| world.older(hub), ..MACHINE };
    let blind = Machine { compare: |_, _, _| None, ..MACHINE };
    let forgiving = Machine {
        compare: |world, hub, server| {
            let mut world = world.clone();
            world.past.tainted.clear();
            world.older(hub.min(server))
        },
        ..MACHINE
    };
    find_by_walks(forgiving, &Scope::mishaps(), Broken::Back);
    for (machine, broken) in [(timeless, Broken::Dropped), (own, Broken::Unreserved), (blind, Broken::Unreserved)] {
        find(machine, &Scope::mishaps(), broken);
    }
}
