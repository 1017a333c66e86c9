//! The handshakes under way, whose clients are strangers. Their number is bounded. While there is room everybody gets a
//! place, because behind a load balancer all clusters have one address. Without room the places are shared fairly by
//! source: the oldest handshake of the source that has most of them makes room for the newest.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Where connections come from: an IPv4 address, or the network of an IPv6 address, because a network has 2^64 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source(IpAddr);

impl Source {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

/// The place of one handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    source: Source,
    arrival: u64,
}

/// The handshakes under way, each with something by which the caller can end it.
#[derive(Debug)]
pub struct Handshakes<T> {
    max: usize,
    arrivals: u64,
    under_way: usize,
    by_source: BTreeMap<Source, BTreeMap<u64, T>>,
}

impl<T> Handshakes<T> {
    /// No handshakes, of which there may be `max` at a time.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, arrivals: 0, under_way: 0, by_source: BTreeMap::new() }
    }

    /// Begins a handshake. If that is one too many, also returns the one that the caller must end.
    pub fn begin(&mut self, from: IpAddr, handshake: T) -> (Place, Option<T>) {
        let place = Place { source: Source::of(from), arrival: self.arrivals };
        self.arrivals += 1;
        self.under_way += 1;
        self.by_source.entry(place.source).or_default().insert(place.arrival, handshake);
        let displaced = if self.under_way > self.max { self.oldest_of_the_largest() } else { None };
        (place, displaced.and_then(|place| self.end(place)))
    }

    /// Ends a handshake, and returns it unless it ended before.
    pub fn end(&mut self, place: Place) -> Option<T> {
        let same = self.by_source.get_mut(&place.source)?;
        let handshake = same.remove(&place.arrival)?;
        if same.is_empty() {
            self.by_source.remove(&place.source);
        }
        self.under_way -= 1;
        Some(handshake)
    }

    /// If several sources have as many, the one whose handshake is older than those of the others.
    fn oldest_of_the_largest(&self) -> Option<Place> {
        let sources = self.by_source.iter().filter_map(|(source, same)| {
            let arrival = *same.keys().next()?;
            Some((same.len(), Place { source: *source, arrival }))
        });
        sources.max_by_key(|(number, place)| (*number, Reverse(place.arrival))).map(|(_, place)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    /// Begins a handshake from each address, in this order; returns who was displaced by whom, by their order.
    fn displaced(max: usize, from: &[&str]) -> Vec<(usize, usize)> {
        let mut handshakes = Handshakes::new(max);
        let begin = |(order, from): (usize, &&str)| handshakes.begin(ip(from), order).1.map(|other| (order, other));
        from.iter().enumerate().filter_map(begin).collect()
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
        // The flood from 10.0.0.9 gives way to others, then to itself, and never takes the place of one with fewer.
        let arrivals = ["10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9", "10.0.0.2", "10.0.0.9", "10.0.0.9"];
        assert_eq!(displaced(4, &arrivals), [(4, 1), (5, 2), (6, 3)]);
    }

    #[test]
    fn among_equals_the_oldest_gives_way() {
        assert_eq!(displaced(2, &["10.0.0.3", "10.0.0.2", "10.0.0.1"]), [(2, 0)]);
    }

    #[test]
    fn a_network_of_ipv6_is_one_source_and_a_mapped_address_is_that_of_ipv4() {
        let one = ["2001:db8::1", "2001:db8::2:1", "2001:db8:0:1::1", "2001:db8:0:2::1"];
        assert_eq!(displaced(3, &one), [(3, 0)]);
        assert_eq!(displaced(3, &["10.0.0.2", "::ffff:10.0.0.1", "10.0.0.1", "10.0.0.3"]), [(3, 1)]);
    }

    #[test]
    fn a_handshake_that_ended_has_no_place() {
        let mut handshakes = Handshakes::new(2);
        let (first, _) = handshakes.begin(ip("10.0.0.1"), 'a');
        let (second, _) = handshakes.begin(ip("10.0.0.1"), 'b');
        assert_eq!((handshakes.end(first), handshakes.end(first)), (Some('a'), None));
        assert_eq!(handshakes.begin(ip("10.0.0.1"), 'c').1, None);
        assert_eq!(handshakes.begin(ip("10.0.0.1"), 'd').1, Some('b'));
        assert_eq!(handshakes.end(second), None, "it was displaced");
        assert_eq!(handshakes.under_way, 2);
    }

    #[test]
    fn a_flood_cannot_displace_a_few_others() {
        let mut handshakes = Handshakes::new(64);
        let few: Vec<IpAddr> = (1..=8).map(|last| IpAddr::from([10, 0, 0, last])).collect();
        few.iter().for_each(|from| assert_eq!(handshakes.begin(*from, *from).1, None));
        let flood = ip("192.0.2.1");
        for _ in 0..10_000 {
            assert!(handshakes.begin(flood, flood).1.is_none_or(|displaced| displaced == flood));
        }
        assert_eq!(handshakes.under_way, 64);
    }
}
