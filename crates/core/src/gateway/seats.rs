//! How many connections and calls each addon on each cluster has at the gateway, and each cluster.

use std::collections::BTreeMap;

use crate::identity::{AddOnName, ClusterName};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A connection.
    Connection,
    /// A call that is being answered.
    Call,
}

/// How many connections and calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeatCount {
    /// Connections.
    pub connections: usize,
    /// Calls.
    pub calls: usize,
}

impl SeatCount {
    fn of(&mut self, kind: Use) -> &mut usize {
        match kind {
            Use::Connection => &mut self.connections,
            Use::Call => &mut self.calls,
        }
    }
}

/// Who already has all its seats, and how many these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSeat {
    /// The addon on the cluster.
    AddOn(usize),
    /// All addons of the cluster together.
    Cluster(usize),
}

/// An addon on a cluster, or all addons of the cluster.
type Holder = (ClusterName, Option<AddOnName>);

/// The seats that are taken. A holder of none costs no memory.
#[derive(Debug)]
pub struct Seats {
    of_addon: SeatCount,
    of_cluster: SeatCount,
    taken: BTreeMap<Holder, SeatCount>,
}

impl Seats {
    /// Nothing is taken; each addon on each cluster and each cluster may take this many.
    #[must_use]
    pub fn new(of_addon: SeatCount, of_cluster: SeatCount) -> Self {
        Self { of_addon, of_cluster, taken: BTreeMap::new() }
    }

    /// Takes a seat.
    ///
    /// # Errors
    /// The holder that has no seat left.
    pub fn take(&mut self, cluster: &ClusterName, addon: &AddOnName, kind: Use) -> Result<(), NoSeat> {
        let [one, all] = holders(cluster, addon);
        let number = |mut count: SeatCount| *count.of(kind);
        let is_full = |holder, max| number(self.taken.get(holder).copied().unwrap_or_default()) >= max;
        let (of_addon, of_cluster) = (number(self.of_addon), number(self.of_cluster));
        if is_full(&one, of_addon) {
            return Err(NoSeat::AddOn(of_addon));
        }
        if is_full(&all, of_cluster) {
            return Err(NoSeat::Cluster(of_cluster));
        }
        for holder in [one, all] {
            *self.taken.entry(holder).or_default().of(kind) += 1;
        }
        Ok(())
    }

    /// Gives a seat back.
    pub fn give_back(&mut self, cluster: &ClusterName, addon: &AddOnName, kind: Use) {
        for holder in holders(cluster, addon) {
            if let Some(taken) = self.taken.get_mut(&holder) {
                let number = taken.of(kind);
                *number = number.saturating_sub(1);
                if *taken == SeatCount::default() {
                    self.taken.remove(&holder);
                }
            }
        }
    }
}

fn holders(cluster: &ClusterName, addon: &AddOnName) -> [Holder; 2] {
    [(cluster.clone(), Some(addon.clone())), (cluster.clone(), None)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_seats(of_addon: (usize, usize), of_cluster: (usize, usize)) -> Seats {
        let count = |(connections, calls)| SeatCount { connections, calls };
        Seats::new(count(of_addon), count(of_cluster))
    }

    /// Takes a seat for an addon and cluster, such as `a@c1`.
    fn take(seats: &mut Seats, who: &str, kind: Use) -> Result<(), NoSeat> {
        let (addon, cluster) = who.split_once('@').unwrap();
        seats.take(&cluster.parse().unwrap(), &addon.parse().unwrap(), kind)
    }

    fn give_back(seats: &mut Seats, who: &str, kind: Use) {
        let (addon, cluster) = who.split_once('@').unwrap();
        seats.give_back(&cluster.parse().unwrap(), &addon.parse().unwrap(), kind);
    }

    #[test]
    fn each_addon_of_a_cluster_has_its_own_seats() {
        let mut seats = mk_seats((2, 1), (8, 8));
        let mut connect = |who| take(&mut seats, who, Use::Connection);
        assert_eq!([(); 3].map(|()| connect("a@c1")), [Ok(()), Ok(()), Err(NoSeat::AddOn(2))]);
        assert_eq!([connect("b@c1"), connect("a@c2")], [Ok(()); 2], "the seats of others are free");
        assert_eq!([(); 2].map(|()| take(&mut seats, "a@c1", Use::Call)), [Ok(()), Err(NoSeat::AddOn(1))]);
        give_back(&mut seats, "a@c1", Use::Connection);
        let mut connect = |who| take(&mut seats, who, Use::Connection);
        assert_eq!([(); 2].map(|()| connect("a@c1")), [Ok(()), Err(NoSeat::AddOn(2))]);
    }

    #[test]
    fn the_addons_of_a_cluster_share_its_seats() {
        let mut seats = mk_seats((2, 2), (3, 2));
        let mut connect = |who| take(&mut seats, who, Use::Connection);
        let all = ["a@c1", "a@c1", "b@c1", "b@c1", "c@c1"].map(&mut connect);
        assert_eq!(all, [Ok(()), Ok(()), Ok(()), Err(NoSeat::Cluster(3)), Err(NoSeat::Cluster(3))]);
        assert_eq!(connect("a@c2"), Ok(()), "another cluster has its own");
        let calls = ["a@c1", "b@c1", "c@c1"].map(|who| take(&mut seats, who, Use::Call));
        assert_eq!(calls, [Ok(()), Ok(()), Err(NoSeat::Cluster(2))]);
        give_back(&mut seats, "a@c1", Use::Connection);
        let mut connect = |who| take(&mut seats, who, Use::Connection);
        assert_eq!(["c@c1", "b@c1"].map(&mut connect), [Ok(()), Err(NoSeat::Cluster(3))]);
    }

    #[test]
    fn whoever_has_no_seats_costs_nothing() {
        let mut seats = mk_seats((1, 1), (1, 1));
        assert_eq!(take(&mut seats, "a@c1", Use::Connection), Ok(()));
        assert_eq!(take(&mut seats, "a@c1", Use::Call), Ok(()));
        give_back(&mut seats, "a@c1", Use::Connection);
        assert_eq!(seats.taken.len(), 2, "a call is under way");
        give_back(&mut seats, "a@c1", Use::Call);
        assert!(seats.taken.is_empty());
        assert_eq!(take(&mut mk_seats((0, 0), (1, 1)), "a@c1", Use::Connection), Err(NoSeat::AddOn(0)));
    }
}
