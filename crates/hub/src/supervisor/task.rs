//! Tasks that run until they are told to stop.

use tokio_util::sync::CancellationToken;

/// Runs a task until `stop` is cancelled; returns its name and whether `stop` was cancelled. A task may also end by
/// itself at that moment, because its channels close together with the AddOnSigner; that counts as stopped.
pub(super) async fn until_stopped(
    stop: CancellationToken,
    name: String,
    task: impl Future<Output = ()>,
) -> (String, bool) {
    // Whether the task or the cancellation ended first does not matter: only `stop` counts.
    let _ = stop.run_until_cancelled(task).await;
    (name, stop.is_cancelled())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_while_it_is_told_to_stop_was_stopped() {
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(until_stopped(stop, "told".to_owned(), std::future::ready(())).await.1);
        assert!(!until_stopped(CancellationToken::new(), "untold".to_owned(), std::future::ready(())).await.1);
    }
}
