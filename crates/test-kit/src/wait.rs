//! Waits until something is true, for a limited time.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::quick::{self, pass_during};

/// How long a test waits for an event; long enough for a machine that has three times as much to do as it can.
pub const TIMEOUT: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);
/// How long it waits before time passes quickly.
const AS_USUAL: Duration = Duration::from_millis(500);

/// A shorter timeout states a bound, which is of the machine's time; the others only end a test that hangs.
const GENEROUS: Duration = Duration::from_secs(10);
/// How much longer a loaded machine may take.
const LOADED: u32 = 4;

/// Calls `probe` until it returns a value. After `timeout` it panics and names `what`. What does not come at once is
/// what a task pauses for, so with a generous timeout time passes quickly after a moment for the test's runtime
/// ([`crate::quick`]); on a loaded machine it passes less quickly, and the wait takes longer instead.
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
    let wait = Wait::begin(timeout);
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        if wait.is_over() {
            panic!("waited {timeout:?} in vain for {what}\n{}", explain());
        }
        wait.pause().await;
    }
}

/// The output of a future that ends in time; otherwise as [`wait_until`].
pub async fn wait_for<T>(timeout: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let wait = Wait::begin(timeout);
    let expiry = async {
        while !wait.is_over() {
            wait.pause().await;
        }
    };
    tokio::select! {
        biased;
        output = future => output,
        () = expiry => panic!("waited {timeout:?} in vain for {what}"),
    }
}

/// A wait that began then and may take so long.
struct Wait {
    machine: Instant,
    runtime: tokio::time::Instant,
    timeout: Duration,
}

impl Wait {
    fn begin(timeout: Duration) -> Self {
        Self { machine: Instant::now(), runtime: tokio::time::Instant::now(), timeout }
    }

    /// Whether it has taken so long on the machine's clock, and, if the timeout is generous, as much as an idle machine
    /// lets pass in that time on the runtime's.
    fn is_over(&self) -> bool {
        let machine = self.machine.elapsed();
        let has_passed =
            || self.runtime.elapsed() >= quick::passes_in(self.timeout) || machine >= LOADED * self.timeout;
        machine >= self.timeout && (self.timeout < GENEROUS || has_passed())
    }

    async fn pause(&self) {
        if self.timeout < GENEROUS || self.machine.elapsed() < AS_USUAL {
            sleep(POLL).await
        } else {
            pass_during(POLL).await
        }
    }
}
