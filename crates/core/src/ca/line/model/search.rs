//! Explores every order of up to so many actions, then random walks; broken machines show that both find faults.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use super::*;

/// Depth of the exhaustive search of rotations.
const DEPTH: usize = 9;
/// Depth of the one in which authorities are tainted and revoked too.
const DISTRUST_DEPTH: usize = 6;
const WALKS: usize = 100_000;
const LENGTH: usize = 40;

/// How an invariant broke.
struct Found {
    broken: Broken,
    actions: Vec<Action>,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {:?}", self.broken, self.actions)
    }
}

/// Explores every order of up to `depth` actions; a world that is known is not explored again.
fn search(machine: Machine, among: &[Action], depth: usize) -> Result<usize, Found> {
    let first = World::new(machine);
    let mut known = HashSet::from([first.key()]);
    let mut open = VecDeque::from([(first, Vec::new())]);
    while let Some((world, actions)) = open.pop_front() {
        for action in among.iter().copied() {
            let (mut world, mut actions) = (world.clone(), actions.clone());
            actions.push(action);
            if let Err(broken) = world.act(action) {
                return Err(Found { broken, actions });
            }
            if known.insert(world.key()) && actions.len() < depth {
                open.push_back((world, actions));
            }
        }
    }
    Ok(known.len())
}

/// Walks at random, the same ones each time.
fn walk(machine: Machine, among: &[Action], walks: usize) -> Result<(), Found> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let first = World::new(machine);
    for _ in 0..walks {
        let (mut world, mut actions) = (first.clone(), Vec::new());
        for _ in 0..LENGTH {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let action = among[usize::try_from(random % among.len() as u64).unwrap()];
            actions.push(action);
            if let Err(broken) = world.act(action) {
                return Err(Found { broken, actions });
            }
        }
    }
    Ok(())
}

#[test]
fn no_order_of_events_breaks_an_invariant() {
    for (among, depth) in [(&ACTIONS[..ROTATIONS], DEPTH), (&ACTIONS[..], DISTRUST_DEPTH)] {
        let worlds = search(MACHINE, among, depth).unwrap();
        assert!(worlds > 10_000, "{worlds}");
    }
}

#[test]
fn no_random_walk_breaks_an_invariant() {
    walk(MACHINE, &ACTIONS[..ROTATIONS], WALKS).unwrap();
    walk(MACHINE, &ACTIONS, WALKS / 2).unwrap();
}

/// Each has one fault, which both must find.
#[test]
fn a_broken_machine_is_found() {
    let hasty: Machine = Machine {
        decide: |line, evidence| line.next_step(&Evidence { next_is_trusted: Ok(()), ..evidence.clone() }),
        ..MACHINE
    };
    let forgetful = Machine {
        decide: |line, evidence| match line.members().iter().find(|member| member.state == State::Old) {
            Some(old) => Step::Finish(old.authority.id().clone()),
            None => line.next_step(evidence),
        },
        ..MACHINE
    };
    let thorough = Machine {
        take: |line, step, new, requested, now| {
            let mut after = take(line, step, new, requested, now);
            if let Step::RollBack { id, .. } = step {
                after.members.retain(|member| member.authority.id() != id);
            }
            after
        },
        ..MACHINE
    };
    let careless = Machine { reserve: |_, _| None, ..MACHINE };
    for (machine, broken) in [
        (hasty, Broken::Untrusted(0)),
        (forgetful, Broken::Dropped),
        (thorough, Broken::Dropped),
        (careless, Broken::Unreserved),
    ] {
        find(machine, &ACTIONS[..ROTATIONS], DEPTH, &broken);
    }
}

/// Each has one fault in how it taints or revokes.
#[test]
fn a_machine_that_trusts_too_long_is_found() {
    let forgiving = Machine {
        decide: |line, evidence| {
            let mut line = line.clone();
            let taint = evidence.taint.filter(|id| line.untainted(Some(*id)).is_some());
            let old = line.members.iter_mut().filter(|member| member.state == State::Old);
            old.for_each(|member| member.tainted = false);
            line.next_step(&Evidence { taint, ..evidence.clone() })
        },
        ..MACHINE
    };
    let lenient = Machine {
        take: |mut line, step, new, requested, now| {
            if let Step::Taint { id } = step {
                line.members.iter_mut().filter(|member| member.authority.id() == id).for_each(|it| it.tainted = true);
                return line;
            }
            take(line, step, new, requested, now)
        },
        ..MACHINE
    };
    let quiet = Machine {
        take: |line, step, new, requested, now| {
            let mut after = take(line, step, new, requested, now);
            after.members.iter_mut().for_each(|member| member.forced = false);
            after
        },
        ..MACHINE
    };
    let keeping = Machine {
        take: |line, step, new, requested, now| {
            let before = line.members.clone();
            let mut after = take(line, step, new, requested, now);
            if let Step::Revoke { id } = step {
                let kept = before.into_iter().filter(|it| it.authority.id() == id);
                after.members.extend(kept.map(|member| Member { state: State::Old, ..member }));
            }
            after
        },
        ..MACHINE
    };
    for (machine, broken) in [(lenient, Broken::Kept), (quiet, Broken::Untrusted(0)), (keeping, Broken::Back)] {
        find(machine, &ACTIONS, DISTRUST_DEPTH, &broken);
    }
    // Too many actions for the search: a rotation and its rollback.
    let (taint, step) = (Action::Taint(Which::Signs), Action::Step(Crash::No));
    let actions =
        [Action::Issue, taint, step, step, Action::Hear(0), Action::Hear(1), step, Action::RollBack, step, step];
    let follow = |machine| {
        actions.into_iter().try_fold(World::new(machine), |mut world, action| world.act(action).map(|()| world))
    };
    assert_eq!(follow(forgiving).err(), Some(Broken::Back));
    assert_eq!(follow(MACHINE).err(), None);
}

fn find(machine: Machine, among: &[Action], depth: usize, broken: &Broken) {
    assert_eq!(search(machine, among, depth).unwrap_err().broken, *broken);
    let found = walk(machine, among, WALKS).unwrap_err().broken;
    let is_alike = matches!((&found, broken), (Broken::Untrusted(_), Broken::Untrusted(_)));
    assert!(found == *broken || is_alike, "{found:?}");
}
