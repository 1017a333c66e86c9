//! Waiting for something to become true, bounded in time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(50);

/// Calls `probe` until it returns a value; panics, naming `what`, when `timeout` has passed.
pub(crate) async fn wait_until<T, F>(timeout: Duration, what: &str, probe: F) -> T
where
    F: AsyncFnMut() -> Option<T>,
{
    wait_or_explain(timeout, what, probe, String::new).await
}

/// The same, with more to say at the end, for instance the tail of a log.
pub(crate) async fn wait_or_explain<T, F>(
    timeout: Duration,
    what: &str,
    mut probe: F,
    explain: impl Fn() -> String,
) -> T
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
