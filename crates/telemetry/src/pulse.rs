//! Signs of life of the tasks of this process. A task that hangs cannot report that; it only stops giving signs of
//! life.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A task without a sign of life for this long hangs. The time is long, because a task may make many requests to an API
/// server that does not answer, each of which times out after half a minute.
pub const HANGS_AFTER: Duration = Duration::from_secs(600);

/// The tasks that give signs of life.
#[derive(Debug, Clone, Default)]
pub struct Pulses(Arc<Mutex<BTreeMap<u64, Heard>>>);

#[derive(Debug)]
struct Heard {
    task: String,
    at: Instant,
}

impl Pulses {
    /// The pulse of a task, which owns it. A task that has ended does not count as silent: its starter observes its
    /// end.
    pub fn start(&self, task: impl Into<String>) -> Pulse {
        let mut tasks = self.0.lock();
        let number = tasks.last_key_value().map_or(0, |(number, _)| number + 1);
        tasks.insert(number, Heard { task: task.into(), at: Instant::now() });
        Pulse { pulses: self.clone(), number }
    }

    /// The tasks that have given no sign of life for longer than `bound`.
    pub fn silent(&self, bound: Duration) -> Vec<String> {
        let tasks = self.0.lock();
        tasks.values().filter(|heard| heard.at.elapsed() > bound).map(|heard| heard.task.clone()).collect()
    }
}

/// The pulse of one task, which must beat at least every ten minutes.
#[derive(Debug)]
pub struct Pulse {
    pulses: Pulses,
    number: u64,
}

impl Pulse {
    /// Gives a sign of life.
    pub fn beat(&self) {
        if let Some(heard) = self.pulses.0.lock().get_mut(&self.number) {
            heard.at = Instant::now();
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.pulses.0.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silent_task_is_named_and_ended_one_is_not() {
        let pulses = Pulses::default();
        let hangs = pulses.start("hangs");
        let lives = pulses.start("lives");
        let ends = pulses.start("ends");
        tokio::time::advance(HANGS_AFTER).await;
        lives.beat();
        drop(ends);
        assert!(pulses.silent(HANGS_AFTER).is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pulses.silent(HANGS_AFTER), ["hangs"]);
        hangs.beat();
        assert!(pulses.silent(HANGS_AFTER).is_empty());
    }
}
