//! Limits the certificates of each identity with a token bucket.

use std::collections::HashMap;
use std::time::Duration;

use crate::identity::PeerIdentity;
use crate::timestamp::Timestamp;

/// Above this number of identities, buckets that are full again are dropped. A full bucket means the same as none.
const MANY: usize = 16_384;

/// `burst` certificates at once, then one per `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many certificates an identity may get at once.
    pub burst: u32,
    /// The time after which it may get one more.
    pub interval: Duration,
}

/// The buckets. They are only in memory, so a restart fills them.
#[derive(Debug)]
pub struct RateLimiter {
    rate: Rate,
    /// When the bucket of each identity is full again.
    full_at: HashMap<PeerIdentity, Timestamp>,
}

impl RateLimiter {
    /// A limiter with full buckets.
    pub fn new(rate: Rate) -> Self {
        Self { rate, full_at: HashMap::new() }
    }

    /// Takes one certificate for `identity`.
    ///
    /// # Errors
    /// How long to wait until the identity may get one.
    pub fn take(&mut self, identity: &PeerIdentity, now: Timestamp) -> Result<(), Duration> {
        let earliest = self.full_at.get(identity).copied().unwrap_or(now).max(now);
        let depth = self.rate.interval * self.rate.burst.saturating_sub(1);
        let debt = now.until(earliest);
        if debt > depth {
            return Err(debt - depth);
        }
        if self.full_at.len() >= MANY {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        self.full_at.insert(identity.clone(), earliest.plus(self.rate.interval));
        Ok(())
    }

    /// Gives back a certificate that was taken but not issued.
    pub fn give_back(&mut self, identity: &PeerIdentity) {
        if let Some(full_at) = self.full_at.get_mut(identity) {
            *full_at = full_at.minus(self.rate.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(cluster: &str) -> PeerIdentity {
        let addon: crate::identity::AddOnName = "a".parse().unwrap();
        let agent = crate::identity::AgentName::of_addon(&addon);
        PeerIdentity { cluster: cluster.parse().unwrap(), addon, agent }
    }

    #[test]
    fn a_burst_then_one_per_interval() {
        let minute = Duration::from_secs(60);
        let mut limiter = RateLimiter::new(Rate { burst: 3, interval: minute });
        let start = Timestamp::from_unix(1_000_000);
        for _ in 0..3 {
            assert_eq!(limiter.take(&identity("c1"), start), Ok(()));
        }
        assert_eq!(limiter.take(&identity("c1"), start), Err(minute));
        assert_eq!(limiter.take(&identity("c2"), start), Ok(()), "one cluster does not slow another");
        assert_eq!(limiter.take(&identity("c1"), start.plus(minute)), Ok(()));
        assert!(limiter.take(&identity("c1"), start.plus(minute)).is_err());
        assert_eq!(limiter.take(&identity("c1"), start.plus(minute * 100)), Ok(()));
    }
}
