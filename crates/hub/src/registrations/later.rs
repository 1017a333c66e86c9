//! Addons that wait to be checked again: each once, at its earliest due time.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key as Timer;

use addon_signer_core::identity::AddOnKey;

/// Addons, by the time when each is due.
#[derive(Default)]
pub(super) struct Later {
    queue: DelayQueue<AddOnKey>,
    timers: HashMap<AddOnKey, Timer>,
}

impl Later {
    /// Makes an addon due after `pause`, unless it is already due earlier.
    pub(super) fn put(&mut self, key: &AddOnKey, pause: Duration) {
        let due = Instant::now() + pause;
        match self.timers.get(key) {
            Some(timer) if self.queue.deadline(timer) <= due => {}
            Some(timer) => self.queue.reset_at(timer, due),
            None => {
                let timer = self.queue.insert_at(key.clone(), due);
                self.timers.insert(key.clone(), timer);
            }
        }
    }

    /// Whether the addon waits.
    pub(super) fn has(&self, key: &AddOnKey) -> bool {
        self.timers.contains_key(key)
    }

    /// Removes an addon: it waits no longer.
    pub(super) fn drop(&mut self, key: &AddOnKey) {
        if let Some(timer) = self.timers.remove(key) {
            self.queue.remove(&timer);
        }
    }

    /// Waits for the next addon that is due; `None` if no addon waits.
    pub(super) async fn next(&mut self) -> Option<AddOnKey> {
        let key = self.queue.next().await?.into_inner();
        self.timers.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> AddOnKey {
        AddOnKey { cluster: name.parse().unwrap(), addon: "telemetry".parse().unwrap() }
    }

    #[tokio::test(start_paused = true)]
    async fn each_addon_waits_once_and_for_the_earliest() {
        let mut later = Later::default();
        for (name, seconds) in [("a", 30), ("b", 20), ("a", 10), ("a", 40), ("c", 5)] {
            later.put(&key(name), Duration::from_secs(seconds));
        }
        assert!(later.has(&key("c")));
        later.drop(&key("c"));
        assert!(!later.has(&key("c")));
        let began = Instant::now();
        assert_eq!(later.next().await, Some(key("a")));
        assert_eq!(began.elapsed().as_secs(), 10);
        assert_eq!(later.next().await, Some(key("b")));
        assert_eq!(later.next().await, None);
    }
}
