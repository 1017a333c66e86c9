//! Waits until something is true, for a limited time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long a test waits for an event; long enough for a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Calls `probe` until it returns a value. After `timeout` it panics and names `what`.
pub async fn wait_until<T, F>(timeout: Duration, what: &str, probe: F) -> T
where
    F: AsyncFnMut() -> Option<T>,
{
    wait_or_explain(timeout, what, probe, String::new).await
}

/// Like [`wait_until`], with an explanation for the panic, for instance the end of a log.
pub async fn wait_or_explain<T, F>(timeout: Duration, what: &str, mut probe: F, explain: impl Fn() -> String) -> T
where
    F: AsyncFnMut() -> Option<T>,
{
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        if Instant::now() >= deadline {
            panic!("waited {timeout:?} in vain for {what}\n{}", explain());
        }
        sleep(POLL).await;
    }
}
