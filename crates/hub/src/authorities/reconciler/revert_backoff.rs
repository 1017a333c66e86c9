//! A program that keeps changing the ConfigMap with a line's anchors, such as a GitOps tool.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::ROUND;
use addon_signer_core::doubling::doubled;

/// The pause after the second time in turn; the pauses double up to [`ROUND`].
const SHORTEST: Duration = Duration::from_secs(1);

/// Until when the hub does not look at changes of a line's objects, because somebody undoes what it writes: both would
/// write without end. A look by time comes all the same.
#[derive(Debug)]
pub(crate) struct RevertBackoff {
    times: u32,
    last: Instant,
    until: Instant,
}

impl Default for RevertBackoff {
    fn default() -> Self {
        let now = Instant::now();
        Self { times: 0, last: now, until: now }
    }
}

impl RevertBackoff {
    /// The hub has written the same again.
    pub(super) fn note(&mut self, config_map: &str) {
        let now = Instant::now();
        self.times = if now.duration_since(self.last) > 2 * ROUND { 1 } else { self.times.saturating_add(1) };
        self.last = now;
        let Some(paused) = self.times.checked_sub(2) else { return };
        let pause = doubled(SHORTEST, paused, ROUND);
        self.until = now + pause;
        if pause == ROUND {
            warn!(config_map, "Somebody keeps changing the anchors; metadata.managedFields of the ConfigMap says who");
        } else {
            debug!(config_map, "Somebody changed the anchors again; the hub has put them back");
        }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_to_repeated_undoing_slow_down_until_calm_returns() {
        let mut undone = RevertBackoff::default();
        let mut again = async || {
            undone.note("anchors");
            let pause = undone.until().saturating_duration_since(Instant::now());
            tokio::time::advance(pause).await;
            pause.as_secs()
        };
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.push(again().await);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 15, 15]);
        tokio::time::advance(2 * ROUND + Duration::from_secs(1)).await;
        assert_eq!(again().await, 0);
    }
}
