//! How many connections and requests each addon on each cluster has at the gateway, and each cluster; and how slowly a
//! client may send or read a body.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::identity::{AddOnName, ClusterName};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A connection.
    Connection,
    /// A request that is being answered.
    Request,
}

/// How many connections and requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PermitCount {
    /// Connections.
    pub connections: usize,
    /// Requests.
    pub requests: usize,
}

impl PermitCount {
    fn of(&mut self, kind: Use) -> &mut usize {
        match kind {
            Use::Connection => &mut self.connections,
            Use::Request => &mut self.requests,
        }
    }
}

/// The holder that already has all its permits, and how many these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPermit {
    /// The addon on the cluster.
    AddOn(usize),
    /// All addons of the cluster together.
    Cluster(usize),
}

/// An addon on a cluster, or all addons of the cluster.
type Holder = Arc<(ClusterName, Option<AddOnName>)>;

/// The two holders of which an addon on a cluster takes permits: itself and the cluster. Made once for each connection.
#[derive(Debug, Clone)]
pub struct Holders([Holder; 2]);

impl Holders {
    /// Of this addon on this cluster.
    #[must_use]
    pub fn new(cluster: &ClusterName, addon: &AddOnName) -> Self {
        Self([Some(addon.clone()), None].map(|addon| Arc::new((cluster.clone(), addon))))
    }
}

/// The permits that are taken. A holder of none costs no memory.
#[derive(Debug)]
pub struct Permits {
    of_addon: PermitCount,
    of_cluster: PermitCount,
    taken: BTreeMap<Holder, PermitCount>,
}

impl Permits {
    /// Nothing is taken; each addon on each cluster and each cluster may take this many.
    #[must_use]
    pub fn new(of_addon: PermitCount, of_cluster: PermitCount) -> Self {
        Self { of_addon, of_cluster, taken: BTreeMap::new() }
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// The holder that has no permit left.
    pub fn take(&mut self, holders: &Holders, kind: Use) -> Result<(), NoPermit> {
        let Holders([one, all]) = holders;
        let number = |mut count: PermitCount| *count.of(kind);
        let is_full = |holder, max| number(self.taken.get(holder).copied().unwrap_or_default()) >= max;
        let (of_addon, of_cluster) = (number(self.of_addon), number(self.of_cluster));
        if is_full(one, of_addon) {
            return Err(NoPermit::AddOn(of_addon));
        }
        if is_full(all, of_cluster) {
            return Err(NoPermit::Cluster(of_cluster));
        }
        for holder in [one, all] {
            *self.taken.entry(Arc::clone(holder)).or_default().of(kind) += 1;
        }
        Ok(())
    }

    /// Gives a permit back.
    pub fn give_back(&mut self, holders: &Holders, kind: Use) {
        for holder in &holders.0 {
            if let Some(taken) = self.taken.get_mut(holder) {
                let number = taken.of(kind);
                *number = number.saturating_sub(1);
                if *taken == PermitCount::default() {
                    self.taken.remove(holder);
                }
            }
        }
    }
}

/// The least that a client must send or read on average. Only the time in which the client must act counts, so a slow
/// backend does not make a client slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinRate {
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// How far a client may fall behind, and how long it may do nothing.
    pub grace: Duration,
}

/// How much longer a client may take for the next piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tempo {
    rate: MinRate,
    left: Duration,
}

impl Tempo {
    /// A body that begins.
    #[must_use]
    pub fn new(rate: MinRate) -> Self {
        Self { rate, left: rate.grace }
    }

    /// Adds a piece for which the client took this long. It earns the time that it may take at the lowest rate; even a
    /// fast client may be idle no longer than the timeout.
    pub fn add(&mut self, waited: Duration, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let earned = Duration::from_micros(bytes.saturating_mul(1_000_000) / self.rate.bytes_per_second.max(1));
        self.left = self.left(waited).saturating_add(earned).min(self.rate.grace);
    }

    /// How much longer the client may take after the gateway has waited this long for it; zero if it is too slow.
    #[must_use]
    pub fn left(&self, waited: Duration) -> Duration {
        self.left.saturating_sub(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_permits(of_addon: (usize, usize), of_cluster: (usize, usize)) -> Permits {
        let count = |(connections, requests)| PermitCount { connections, requests };
        Permits::new(count(of_addon), count(of_cluster))
    }

    /// An addon and cluster, such as `a@c1`.
    fn mk_holders(who: &str) -> Holders {
        let (addon, cluster) = who.split_once('@').unwrap();
        Holders::new(&cluster.parse().unwrap(), &addon.parse().unwrap())
    }

    fn take(permits: &mut Permits, who: &str, kind: Use) -> Result<(), NoPermit> {
        permits.take(&mk_holders(who), kind)
    }

    fn give_back(permits: &mut Permits, who: &str, kind: Use) {
        permits.give_back(&mk_holders(who), kind);
    }

    #[test]
    fn each_addon_of_a_cluster_has_its_own_permits() {
        let mut permits = mk_permits((2, 1), (8, 8));
        let mut connect = |who| take(&mut permits, who, Use::Connection);
        assert_eq!([(); 3].map(|()| connect("a@c1")), [Ok(()), Ok(()), Err(NoPermit::AddOn(2))]);
        assert_eq!([connect("b@c1"), connect("a@c2")], [Ok(()); 2], "the permits of others are free");
        assert_eq!([(); 2].map(|()| take(&mut permits, "a@c1", Use::Request)), [Ok(()), Err(NoPermit::AddOn(1))]);
        give_back(&mut permits, "a@c1", Use::Connection);
        let mut connect = |who| take(&mut permits, who, Use::Connection);
        assert_eq!([(); 2].map(|()| connect("a@c1")), [Ok(()), Err(NoPermit::AddOn(2))]);
    }

    #[test]
    fn the_addons_of_a_cluster_share_its_permits() {
        let mut permits = mk_permits((2, 2), (3, 2));
        let mut connect = |who| take(&mut permits, who, Use::Connection);
        let all = ["a@c1", "a@c1", "b@c1", "b@c1", "c@c1"].map(&mut connect);
        assert_eq!(all, [Ok(()), Ok(()), Ok(()), Err(NoPermit::Cluster(3)), Err(NoPermit::Cluster(3))]);
        assert_eq!(connect("a@c2"), Ok(()), "another cluster has its own");
        let requests = ["a@c1", "b@c1", "c@c1"].map(|who| take(&mut permits, who, Use::Request));
        assert_eq!(requests, [Ok(()), Ok(()), Err(NoPermit::Cluster(2))]);
        give_back(&mut permits, "a@c1", Use::Connection);
        let mut connect = |who| take(&mut permits, who, Use::Connection);
        assert_eq!(["c@c1", "b@c1"].map(&mut connect), [Ok(()), Err(NoPermit::Cluster(3))]);
    }

    #[test]
    fn whoever_has_no_permits_costs_nothing() {
        let mut permits = mk_permits((1, 1), (1, 1));
        assert_eq!(take(&mut permits, "a@c1", Use::Connection), Ok(()));
        assert_eq!(take(&mut permits, "a@c1", Use::Request), Ok(()));
        give_back(&mut permits, "a@c1", Use::Connection);
        assert_eq!(permits.taken.len(), 2, "a request is under way");
        give_back(&mut permits, "a@c1", Use::Request);
        assert!(permits.taken.is_empty());
        assert_eq!(take(&mut mk_permits((0, 0), (1, 1)), "a@c1", Use::Connection), Err(NoPermit::AddOn(0)));
    }

    const RATE: MinRate = MinRate { bytes_per_second: 100, grace: Duration::from_secs(10) };
    const SECOND: Duration = Duration::from_secs(1);

    /// At which piece a client is too slow if it takes `waited` for each piece of `bytes`.
    fn too_slow_at(waited: Duration, bytes: usize) -> Option<u32> {
        let mut tempo = Tempo::new(RATE);
        (1..=10_000).find(|_| {
            let is_slow = tempo.left(waited).is_zero();
            tempo.add(waited, bytes);
            is_slow
        })
    }

    #[test]
    fn a_byte_a_second_is_too_slow() {
        assert_eq!(too_slow_at(SECOND, 1), Some(11));
        assert_eq!(too_slow_at(SECOND, 90), Some(91), "it falls behind by a second in ten");
    }

    #[test]
    fn whoever_keeps_the_rate_is_never_too_slow() {
        for (waited, bytes) in [(SECOND, 100), (SECOND / 100, 1), (SECOND * 9, 900), (Duration::ZERO, 0)] {
            assert_eq!(too_slow_at(waited, bytes), None, "{bytes} bytes in {waited:?}");
        }
    }

    #[test]
    fn earlier_speed_earns_an_idle_peer_no_extra_patience() {
        let mut tempo = Tempo::new(RATE);
        assert_eq!((tempo.left(SECOND * 9), tempo.left(SECOND * 10)), (SECOND, Duration::ZERO));
        tempo.add(SECOND, 1_000_000);
        tempo.add(Duration::ZERO, usize::MAX);
        assert_eq!(tempo, Tempo::new(RATE));
        assert_eq!(tempo.left(SECOND * 11), Duration::ZERO);
    }
}
