//! Tasks that run until they are told to stop.

use tokio_util::sync::CancellationToken;

/// Runs a task until it is told to stop; says its name and whether it was told. One that is told and ends by itself at
/// that very moment, because what it listens to goes away with the AddOnSigner, was told.
pub(super) async fn until_stopped(
    stop: CancellationToken,
    name: String,
    task: impl Future<Output = ()>,
) -> (String, bool) {
    // Which of the two came first does not matter: what was asked for does.
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
