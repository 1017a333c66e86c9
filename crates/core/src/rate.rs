//! Limits certificates with token buckets: for each addon on a cluster, and for each cluster in total. A requester
//! chooses the names of its agents, so no bucket depends on them.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::identity::{AddOnKey, ClusterName, PeerIdentity};
use crate::timestamp::Timestamp;

/// Above this number of buckets, those that are full again are dropped. A full bucket is equivalent to none.
const MANY: usize = 16_384;
/// A cluster may get as many certificates as this number of its addons, at once and over time.
const ADDONS_OF_A_CLUSTER: u32 = 5;

/// `burst` at once, then one per `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many at once.
    pub burst: u32,
    /// The time after which there may be one more.
    pub interval: Duration,
}

/// Buckets of one rate, by what they limit. They are only in memory, so a restart fills them.
#[derive(Debug)]
pub struct Buckets<K> {
    rate: Rate,
    /// When each bucket is full again.
    full_at: HashMap<K, Timestamp>,
}

impl<K: Eq + Hash + Clone> Buckets<K> {
    /// Full buckets.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { rate, full_at: HashMap::new() }
    }

    /// Takes one.
    ///
    /// # Errors
    /// How long to wait until there is one.
    pub fn take(&mut self, key: &K, now: Timestamp) -> Result<(), Duration> {
        self.wait(key, now)?;
        let earliest = self.full_at.get(key).copied().unwrap_or(now).max(now);
        if self.full_at.len() >= MANY {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        self.full_at.insert(key.clone(), earliest.plus(self.rate.interval));
        Ok(())
    }

    /// Gives one back that was taken and not used.
    pub fn give_back(&mut self, key: &K) {
        if let Some(full_at) = self.full_at.get_mut(key) {
            *full_at = full_at.minus(self.rate.interval);
        }
    }

    /// Whether there is one; takes nothing.
    ///
    /// # Errors
    /// How long to wait until there is one.
    pub fn wait(&mut self, key: &K, now: Timestamp) -> Result<(), Duration> {
        let depth = self.rate.interval * self.rate.burst.saturating_sub(1);
        let Some(full_at) = self.full_at.get_mut(key) else { return Ok(()) };
        // An empty bucket needs no longer than this, even if the clock was ahead for a while.
        *full_at = (*full_at).min(now.plus(self.rate.interval * self.rate.burst));
        let debt = now.until(*full_at);
        if debt > depth { Err(debt - depth) } else { Ok(()) }
    }
}

/// Limits certificates.
#[derive(Debug)]
pub struct RateLimiter {
    addons: Buckets<AddOnKey>,
    clusters: Buckets<ClusterName>,
}

impl RateLimiter {
    /// Limits each addon of a cluster to `rate`, and each cluster to five times as much.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        let burst = rate.burst.saturating_mul(ADDONS_OF_A_CLUSTER);
        let cluster = Rate { burst, interval: rate.interval / ADDONS_OF_A_CLUSTER };
        Self { addons: Buckets::new(rate), clusters: Buckets::new(cluster) }
    }

    /// Takes one certificate for `identity`.
    ///
    /// # Errors
    /// How long to wait until the identity may get one.
    pub fn take(&mut self, identity: &PeerIdentity, now: Timestamp) -> Result<(), Duration> {
        self.clusters.wait(&identity.cluster, now)?;
        self.addons.take(&identity.addon_key(), now)?;
        self.clusters.take(&identity.cluster, now)
    }

    /// Gives back a certificate that was taken but not issued.
    pub fn give_back(&mut self, identity: &PeerIdentity) {
        self.addons.give_back(&identity.addon_key());
        self.clusters.give_back(&identity.cluster);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::AgentName;

    const START: Timestamp = Timestamp::from_unix(1_000_000);
    const MINUTE: Duration = Duration::from_secs(60);

    fn identity(cluster: &str, addon: &str, agent: &str) -> PeerIdentity {
        let agent: AgentName = agent.parse().unwrap();
        PeerIdentity { cluster: cluster.parse().unwrap(), addon: addon.parse().unwrap(), agent }
    }

    #[test]
    fn a_burst_then_one_per_interval() {
        let mut limiter = RateLimiter::new(Rate { burst: 3, interval: MINUTE });
        let ours = identity("c1", "a", "a");
        for _ in 0..3 {
            assert_eq!(limiter.take(&ours, START), Ok(()));
        }
        assert_eq!(limiter.take(&ours, START), Err(MINUTE));
        assert_eq!(limiter.take(&identity("c2", "a", "a"), START), Ok(()), "one cluster does not slow another");
        assert_eq!(limiter.take(&ours, START.plus(MINUTE)), Ok(()));
        assert!(limiter.take(&ours, START.plus(MINUTE)).is_err());
        assert_eq!(limiter.take(&ours, START.plus(MINUTE * 100)), Ok(()));
    }

    #[test]
    fn a_clock_that_was_ahead_costs_one_interval() {
        let mut buckets = Buckets::new(Rate { burst: 3, interval: MINUTE });
        assert_eq!(buckets.take(&"a", START.plus(MINUTE * 1_440)), Ok(()));
        assert_eq!(buckets.take(&"a", START), Err(MINUTE));
        assert_eq!(buckets.take(&"a", START.plus(MINUTE)), Ok(()));
    }

    #[test]
    fn names_that_the_requester_chooses_give_it_no_more() {
        let mut limiter = RateLimiter::new(Rate { burst: 10, interval: MINUTE });
        let agents = (0..60).map(|n| identity("c1", "a", &format!("agent-{n}")));
        assert_eq!(agents.filter(|agent| limiter.take(agent, START).is_ok()).count(), 10);
        let addons = (0..60).flat_map(|addon| (0..60).map(move |agent| (addon, agent)));
        let many = addons.map(|(addon, agent)| identity("c1", &format!("a{addon}"), &format!("agent-{agent}")));
        assert_eq!(many.filter(|agent| limiter.take(agent, START).is_ok()).count(), 40, "50 of a cluster in all");
        assert_eq!(limiter.take(&identity("c2", "a", "a"), START), Ok(()));
    }

    #[test]
    fn what_was_not_issued_does_not_count() {
        let mut limiter = RateLimiter::new(Rate { burst: 1, interval: MINUTE });
        let ours = identity("c1", "a", "a");
        for _ in 0..20 {
            assert_eq!(limiter.take(&ours, START), Ok(()));
            limiter.give_back(&ours);
        }
    }
}
