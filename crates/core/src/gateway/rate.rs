//! How slowly a client may send or read a body. Only the time in which the client must act counts, so a slow backend
//! does not make a client slow.

use std::time::Duration;

/// The least that a client must send or read on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinRate {
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// How far a client may fall behind, and how long it may do nothing.
    pub patience: Duration,
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
        Self { rate, left: rate.patience }
    }

    /// Adds a piece for which the client took this long. It earns the time that it may take at the lowest rate; even a
    /// fast client may be idle no longer than the patience.
    pub fn add(&mut self, waited: Duration, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let earned = Duration::from_micros(bytes.saturating_mul(1_000_000) / self.rate.bytes_per_second.max(1));
        self.left = self.left(waited).saturating_add(earned).min(self.rate.patience);
    }

    /// How much longer the client may take after it has been awaited for this long; zero if it is too slow.
    #[must_use]
    pub fn left(&self, waited: Duration) -> Duration {
        self.left.saturating_sub(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinRate = MinRate { bytes_per_second: 100, patience: Duration::from_secs(10) };
    const SECOND: Duration = Duration::from_secs(1);

    /// At which piece a client is too slow that takes `waited` for each piece of `bytes`.
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
