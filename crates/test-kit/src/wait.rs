//! Waits until something is true, for a limited time.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::quick::pass_during;

/// How long a test waits for an event; long enough for a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// How long it waits before time passes quickly.
const AS_USUAL: Duration = Duration::from_millis(500);

/// A shorter timeout states a bound, which is of the machine's time.
const PATIENT: Duration = Duration::from_secs(10);

/// Calls `probe` until it returns a value. After `timeout` on the machine's clock it panics and names `what`. What does
/// not come at once is what somebody pauses for, so in a patient wait time passes quickly after a moment for the test's
/// runtime ([`crate::quick`]).
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
    let began = Instant::now();
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        if began.elapsed() >= timeout {
            panic!("waited {timeout:?} in vain for {what}\n{}", explain());
        }
        pause(began, timeout).await;
    }
}

/// The output of a future that ends in time; otherwise as [`wait_until`].
pub async fn wait_for<T>(timeout: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let patience = async {
        while began.elapsed() < timeout {
            pause(began, timeout).await;
        }
    };
    tokio::select! {
        biased;
        output = future => output,
        () = patience => panic!("waited {timeout:?} in vain for {what}"),
    }
}

/// A pause in a wait that began then and may take so long.
async fn pause(began: Instant, timeout: Duration) {
    if timeout < PATIENT || began.elapsed() < AS_USUAL { sleep(POLL).await } else { pass_during(POLL).await }
}
