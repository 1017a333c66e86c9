//! Explores every order of up to a number of actions, then random walks.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use super::*;

/// Actions of a random walk.
const LENGTH: usize = 40;

/// How an invariant broke.
pub(super) struct Violation {
    pub(super) broken: Broken,
    actions: Vec<Action>,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {:?}", self.broken, self.actions)
    }
}

impl Scope {
    /// Explores every order of up to `depth` actions; a world that is known is not explored again.
    pub(super) fn search(&self, machine: Machine) -> Result<usize, Violation> {
        let first = self.first(machine);
        let mut known = HashSet::from([first.key()]);
        let mut open = VecDeque::from([(first, Vec::new())]);
        while let Some((world, actions)) = open.pop_front() {
            for action in self.actions.iter().copied() {
                let (mut world, mut actions) = (world.clone(), actions.clone());
                actions.push(action);
                if let Err(broken) = world.act(action) {
                    return Err(Violation { broken, actions });
                }
                if known.insert(world.key()) && actions.len() < self.depth {
                    open.push_back((world, actions));
                }
            }
        }
        Ok(known.len())
    }

    /// Walks at random, the same ones each time.
    pub(super) fn walk(&self, machine: Machine) -> Result<(), Violation> {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let first = self.first(machine);
        for _ in 0..self.walks {
            let (mut world, mut actions) = (first.clone(), Vec::new());
            for _ in 0..LENGTH {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let action = self.actions[usize::try_from(random % self.actions.len() as u64).unwrap()];
                actions.push(action);
                if let Err(broken) = world.act(action) {
                    return Err(Violation { broken, actions });
                }
            }
        }
        Ok(())
    }
}

fn explore(scope: &Scope) {
    let worlds = scope.search(MACHINE).unwrap();
    assert!(worlds > 10_000, "{worlds}");
    scope.walk(MACHINE).unwrap();
}

#[test]
fn no_order_of_rotations_breaks_an_invariant() {
    explore(&Scope::rotations());
}

#[test]
fn no_order_of_agents_breaks_an_invariant() {
    explore(&Scope::agents());
}

#[test]
fn no_signer_that_comes_and_goes_breaks_an_invariant() {
    explore(&Scope::signers());
}

#[test]
fn no_order_of_taints_and_revocations_breaks_an_invariant() {
    explore(&Scope::distrust());
}

#[test]
fn no_late_answer_of_an_issuer_breaks_an_invariant() {
    explore(&Scope::issuer());
}

#[test]
fn no_clock_and_no_restored_secret_breaks_an_invariant() {
    explore(&Scope::mishaps());
}
