//! The handshakes under way, whose clients are strangers. Their number is bounded. While permits are left every
//! connection gets one, because behind a load balancer all clusters have one address. Then the permits are shared
//! fairly by source: the newest handshake displaces the oldest one of the source that has the most, unless the newest
//! comes from the same source and the oldest has only just begun. Otherwise a burst from one address would displace
//! every handshake before it finishes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::identity::ClusterName;

/// Where connections come from, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerNetwork {
    /// An IPv4 address, or the network of an IPv6 address, because a network has 2^64 of them.
    Address(IpAddr),
    /// The cluster of a valid certificate.
    Cluster(ClusterName),
}

impl From<IpAddr> for PeerNetwork {
    fn from(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

/// The permit of one handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    source: PeerNetwork,
    arrival: u64,
}

/// The handshakes under way, each with a handle that lets the caller end it.
#[derive(Debug)]
pub struct Handshakes<T> {
    max: usize,
    grace: Duration,
    arrivals: u64,
    under_way: usize,
    by_source: BTreeMap<PeerNetwork, BTreeMap<u64, (Duration, T)>>,
    /// How many handshakes each source has, and the oldest of them. The last one is displaced. They are kept in order
    /// because a search through all sources would cost the gateway more than it costs the attacker.
    ranks: BTreeSet<(usize, Reverse<u64>, PeerNetwork)>,
}

impl<T> Handshakes<T> {
    /// No handshakes yet; at most `max` at a time. Each is guaranteed its permit for `grace`.
    #[must_use]
    pub fn new(max: usize, grace: Duration) -> Self {
        Self { max, grace, arrivals: 0, under_way: 0, by_source: BTreeMap::new(), ranks: BTreeSet::new() }
    }

    /// Begins a handshake at `now`, a time since any fixed moment. If that is one too many, also returns the one that
    /// the caller must end; returns `None` if there is no permit.
    pub fn begin(&mut self, source: PeerNetwork, now: Duration, handshake: T) -> Option<(Permit, Option<T>)> {
        let permit = Permit { source, arrival: self.arrivals };
        self.arrivals += 1;
        // The new one is counted first, because its own source may be the one that has the most.
        self.under_way += 1;
        self.change(&permit.source, |same| same.insert(permit.arrival, (now, handshake)));
        if self.under_way <= self.max {
            return Some((permit, None));
        }
        let (oldest, since) = self.oldest_of_the_largest()?;
        if oldest.source == permit.source && now.saturating_sub(since) < self.grace {
            drop(self.end(&permit));
            return None;
        }
        let displaced = self.end(&oldest);
        Some((permit, displaced))
    }

    /// Ends a handshake, and returns it unless it has already ended.
    pub fn end(&mut self, permit: &Permit) -> Option<T> {
        let (_, handshake) = self.change(&permit.source, |same| same.remove(&permit.arrival))?;
        self.under_way -= 1;
        Some(handshake)
    }

    /// Changes the handshakes of a source, and its rank.
    fn change<R>(&mut self, source: &PeerNetwork, change: impl FnOnce(&mut BTreeMap<u64, (Duration, T)>) -> R) -> R {
        let same = self.by_source.entry(source.clone()).or_default();
        if let Some((oldest, _)) = same.first_key_value() {
            self.ranks.remove(&(same.len(), Reverse(*oldest), source.clone()));
        }
        let changed = change(same);
        match same.first_key_value() {
            Some((oldest, _)) => {
                self.ranks.insert((same.len(), Reverse(*oldest), source.clone()));
            }
            None => {
                self.by_source.remove(source);
            }
        }
        changed
    }

    /// Among sources with equally many, the one whose handshake is the oldest.
    fn oldest_of_the_largest(&self) -> Option<(Permit, Duration)> {
        let (_, Reverse(arrival), source) = self.ranks.last()?;
        let (since, _) = self.by_source.get(source)?.get(arrival)?;
        Some((Permit { source: source.clone(), arrival: *arrival }, *since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(1);

    fn ip(address: &str) -> PeerNetwork {
        address.parse::<IpAddr>().unwrap().into()
    }

    /// Begins a handshake from each address, in this order and each long after the other; returns which was displaced
    /// by which, by their order.
    fn displaced(max: usize, from: &[&str]) -> Vec<(usize, usize)> {
        let mut handshakes = Handshakes::new(max, GRACE);
        let begin = |(order, from): (usize, &&str)| {
            let now = GRACE * u32::try_from(order).unwrap();
            handshakes.begin(ip(from), now, order).unwrap().1.map(|other| (order, other))
        };
        from.iter().enumerate().filter_map(begin).collect()
    }

    #[test]
    fn a_burst_from_one_address_lets_those_end_that_have_begun() {
        let mut handshakes = Handshakes::new(4, GRACE);
        let balancer = ip("10.0.0.1");
        let tenth = |n: u32| GRACE / 10 * n;
        let begun =
            (0..8).map(|n| handshakes.begin(balancer.clone(), tenth(n), n).map(|(_, other)| other)).collect::<Vec<_>>();
        assert_eq!(begun, [Some(None), Some(None), Some(None), Some(None), None, None, None, None]);
        let (_, other) = handshakes.begin(ip("10.0.0.2"), tenth(8), 8).unwrap();
        assert_eq!(other, Some(0), "somebody else gets a permit");
        let (_, other) = handshakes.begin(balancer, tenth(11), 9).unwrap();
        assert_eq!(other, Some(1), "as does the same one when the oldest had its time");
        assert_eq!(handshakes.under_way, 4);
    }

    #[test]
    fn while_there_is_room_one_source_may_have_all_of_it() {
        assert_eq!(displaced(4, &["10.0.0.1"; 4]), []);
    }

    #[test]
    fn behind_a_load_balancer_the_newest_replaces_the_oldest() {
        assert_eq!(displaced(3, &["10.0.0.1"; 5]), [(3, 0), (4, 1)]);
    }

    #[test]
    fn without_room_the_source_with_most_handshakes_gives_way() {
        // The flood from 10.0.0.9 is displaced by others, then by itself, and never takes the permit of a source with
        // fewer.
        let arrivals = ["10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9", "10.0.0.2", "10.0.0.9", "10.0.0.9"];
        assert_eq!(displaced(4, &arrivals), [(4, 1), (5, 2), (6, 3)]);
    }

    #[test]
    fn among_equals_the_oldest_gives_way() {
        assert_eq!(displaced(2, &["10.0.0.3", "10.0.0.2", "10.0.0.1"]), [(2, 0)]);
    }

    #[test]
    fn ipv6_network_is_one_source_and_mapped_address_is_ipv4() {
        let one = ["2001:db8::1", "2001:db8::2:1", "2001:db8:0:1::1", "2001:db8:0:2::1"];
        assert_eq!(displaced(3, &one), [(3, 0)]);
        assert_eq!(displaced(3, &["10.0.0.2", "::ffff:10.0.0.1", "10.0.0.1", "10.0.0.3"]), [(3, 1)]);
    }

    #[test]
    fn a_handshake_that_ended_has_no_permit() {
        let mut handshakes = Handshakes::new(2, GRACE);
        let begin = |handshakes: &mut Handshakes<char>, name, seconds| {
            handshakes.begin(ip("10.0.0.1"), GRACE * seconds, name).unwrap()
        };
        let (first, _) = begin(&mut handshakes, 'a', 0);
        let (second, _) = begin(&mut handshakes, 'b', 0);
        assert_eq!((handshakes.end(&first), handshakes.end(&first)), (Some('a'), None));
        assert_eq!(begin(&mut handshakes, 'c', 0).1, None);
        assert_eq!(begin(&mut handshakes, 'd', 1).1, Some('b'));
        assert_eq!(handshakes.end(&second), None, "it was displaced");
        assert_eq!(handshakes.under_way, 2);
    }

    #[test]
    fn a_flood_cannot_displace_a_few_others() {
        let mut handshakes = Handshakes::new(64, GRACE);
        let few: Vec<_> = (1..=8).map(|last| PeerNetwork::from(IpAddr::from([10, 0, 0, last]))).collect();
        for from in few {
            assert_eq!(handshakes.begin(from.clone(), Duration::ZERO, from).unwrap().1, None);
        }
        let flood = ip("192.0.2.1");
        for n in 0..10_000 {
            let begun = handshakes.begin(flood.clone(), GRACE / 100 * n, flood.clone());
            assert!(begun.and_then(|(_, displaced)| displaced).is_none_or(|displaced| displaced == flood));
        }
        assert_eq!(handshakes.under_way, 64);
    }

    #[test]
    fn ranks_match_all_sources_after_any_starts_and_ends() {
        let mut handshakes = Handshakes::new(8, Duration::ZERO);
        let mut permits = Vec::new();
        for n in 0..1_000_usize {
            let from = IpAddr::from([10, 0, 0, u8::try_from(n * n % 11).unwrap()]);
            permits.extend(handshakes.begin(from.into(), Duration::ZERO, ()).map(|(permit, _)| permit));
            if n % 3 == 0 {
                handshakes.end(&permits.swap_remove(n * 7 % permits.len())); // maybe one that was displaced
            }
            let rank = |(source, same): (&PeerNetwork, &BTreeMap<u64, _>)| {
                (same.len(), Reverse(*same.first_key_value().unwrap().0), source.clone())
            };
            assert_eq!(handshakes.ranks, handshakes.by_source.iter().map(rank).collect());
        }
    }

    #[test]
    fn without_grace_the_newest_always_has_a_permit() {
        let mut handshakes = Handshakes::new(2, Duration::ZERO);
        let displaced: Vec<_> =
            (0..4).map(|n| handshakes.begin(ip("10.0.0.1"), Duration::ZERO, n).unwrap().1).collect();
        assert_eq!(displaced, [None, None, Some(0), Some(1)]);
    }
}
