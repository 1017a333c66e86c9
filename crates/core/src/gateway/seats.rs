//! How many connections and calls each identity has at the gateway.

use std::collections::BTreeMap;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A connection.
    Connection,
    /// A call that is being answered.
    Call,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SeatsTaken {
    connections: usize,
    calls: usize,
}

impl SeatsTaken {
    fn of(&mut self, kind: Use) -> &mut usize {
        match kind {
            Use::Connection => &mut self.connections,
            Use::Call => &mut self.calls,
        }
    }
}

/// The seats that are taken. An identity without any costs no memory.
#[derive(Debug)]
pub struct Seats<K> {
    max_connections: usize,
    max_calls: usize,
    taken: BTreeMap<K, SeatsTaken>,
}

impl<K: Ord + Clone> Seats<K> {
    /// Nothing is taken; each identity may take this many connections and calls.
    #[must_use]
    pub fn new(max_connections: usize, max_calls: usize) -> Self {
        Self { max_connections, max_calls, taken: BTreeMap::new() }
    }

    /// Takes a seat.
    ///
    /// # Errors
    /// How many seats the identity has, if all are taken.
    pub fn take(&mut self, who: &K, kind: Use) -> Result<(), usize> {
        let max = match kind {
            Use::Connection => self.max_connections,
            Use::Call => self.max_calls,
        };
        let taken = self.taken.get(who).copied().unwrap_or_default().of(kind).to_owned();
        if taken >= max {
            return Err(max);
        }
        *self.taken.entry(who.clone()).or_default().of(kind) += 1;
        Ok(())
    }

    /// Gives a seat back.
    pub fn give_back(&mut self, who: &K, kind: Use) {
        if let Some(taken) = self.taken.get_mut(who) {
            let number = taken.of(kind);
            *number = number.saturating_sub(1);
            if *taken == SeatsTaken::default() {
                self.taken.remove(who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_identity_has_its_own_seats() {
        let mut seats = Seats::new(2, 1);
        assert_eq!([(); 3].map(|()| seats.take(&"c1", Use::Connection)), [Ok(()), Ok(()), Err(2)]);
        assert_eq!([(); 2].map(|()| seats.take(&"c1", Use::Call)), [Ok(()), Err(1)]);
        assert_eq!(seats.take(&"c2", Use::Connection), Ok(()), "another's seats are free");
        seats.give_back(&"c1", Use::Connection);
        assert_eq!([(); 2].map(|()| seats.take(&"c1", Use::Connection)), [Ok(()), Err(2)]);
    }

    #[test]
    fn an_identity_without_seats_costs_nothing() {
        let mut seats = Seats::new(1, 1);
        assert_eq!(seats.take(&"c1", Use::Connection), Ok(()));
        assert_eq!(seats.take(&"c1", Use::Call), Ok(()));
        seats.give_back(&"c1", Use::Connection);
        assert_eq!(seats.taken.len(), 1, "a call is under way");
        seats.give_back(&"c1", Use::Call);
        assert!(seats.taken.is_empty());
        assert_eq!(Seats::new(0, 0).take(&"c1", Use::Connection), Err(0));
    }
}
