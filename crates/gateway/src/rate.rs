//! How a client reads a response: as slowly as it may, or more slowly.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use addon_signer_core::gateway::rate::{MinRate, Tempo};

/// How a client reads a response.
#[derive(Debug)]
pub(super) struct RateMeter(Mutex<RateState>);

#[derive(Debug)]
struct RateState {
    tempo: Tempo,
    /// How many pieces the client has to take.
    waiting: usize,
    /// When it could first have taken the next one.
    since: Instant,
}

impl RateMeter {
    /// Initially the client has nothing to take.
    pub(super) fn new(rate: MinRate) -> Arc<Self> {
        Arc::new(Self(Mutex::new(RateState { tempo: Tempo::new(rate), waiting: 0, since: Instant::now() })))
    }

    /// Notes that a piece is on its way to the client.
    pub(super) fn given(&self) {
        let mut state = self.0.lock();
        if state.waiting == 0 {
            state.since = Instant::now();
        }
        state.waiting += 1;
    }

    /// Notes that a piece has left for the client's socket.
    pub(super) fn taken(&self, bytes: usize) {
        let mut state = self.0.lock();
        let now = Instant::now();
        let waited = now - state.since;
        state.tempo.add(waited, bytes);
        state.since = now;
        state.waiting = state.waiting.saturating_sub(1);
    }

    /// How many pieces the client has to take. While there are none, the backend must act.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().waiting
    }

    /// Whether the client takes too slowly.
    pub(super) fn is_slow(&self) -> bool {
        let state = self.0.lock();
        state.waiting > 0 && state.tempo.left(state.since.elapsed()).is_zero()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RATE: MinRate = MinRate { bytes_per_second: 100, patience: Duration::from_secs(10) };

    /// After how many pieces of 10 bytes a client is too slow that takes this long for each, while the backend takes
    /// a minute.
    async fn too_slow_after(each: Duration) -> Option<u32> {
        let pace = RateMeter::new(RATE);
        for number in 0..200 {
            tokio::time::advance(Duration::from_secs(60)).await;
            assert!(!pace.is_slow(), "the backend is slow, not the client");
            pace.given();
            tokio::time::advance(each).await;
            if pace.is_slow() {
                return Some(number);
            }
            pace.taken(10);
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn only_client_taking_few_bytes_a_second_is_too_slow() {
        assert_eq!(too_slow_after(Duration::from_secs(10)).await, Some(0));
        assert_eq!(too_slow_after(Duration::from_secs(1)).await, Some(10));
        assert_eq!(too_slow_after(Duration::from_millis(100)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn further_pieces_buy_an_idle_client_no_extra_time() {
        let pace = RateMeter::new(RATE);
        for _ in 0..10 {
            assert!(!pace.is_slow());
            pace.given();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(pace.is_slow());
        assert!(pace.waiting() == 10);
        pace.taken(1000);
        assert!(!pace.is_slow());
        assert!(pace.waiting() == 9);
        tokio::time::advance(RATE.patience).await;
        assert!(pace.is_slow());
    }
}
