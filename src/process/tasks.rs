//! The tasks of the process. When the first one ends, the process ends (invariant I12).

use anyhow::Context;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use addon_signer_gateway::Limits;
use addon_signer_gateway::listener::DRAIN_MARGIN;

pub(crate) type Tasks = JoinSet<anyhow::Result<()>>;

/// Runs a task that ends after `stop`; its end before `stop` is an error.
pub(crate) async fn until_stopped(
    name: &str,
    task: impl Future<Output = anyhow::Result<()>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let ended = async {
        task.await?;
        anyhow::ensure!(stop.is_cancelled(), "the task {name:?} ended, although it must run as long as the process");
        Ok(())
    };
    match ended.await {
        Err(error) if !stop.is_cancelled() => Err(error.context("the process stops, because one of its tasks ended")),
        ended => ended,
    }
}

/// Waits for `stop` and the tasks that heed it, or for the first task that ends by itself. After `stop` the hub may end
/// before the gateway, because the next hub is already leading.
pub(crate) async fn first_end(mut hub: Tasks, mut tasks: Tasks, stop: CancellationToken) -> anyhow::Result<()> {
    let ended = tokio::select! {
        biased; // `stop` first: tasks that heed it end at once, and the others must still be waited for
        () = stop.cancelled() => {
            // The gateway drains requests in flight. Meanwhile the hub's watches continue, because an addon that loses
            // its eligibility must be out within 2 s even now (invariant I15).
            let drain = Limits::default().drain_timeout + 2 * DRAIN_MARGIN;
            let drained = tokio::time::timeout(drain, async { while tasks.join_next().await.is_some() {} });
            if drained.await.is_err() {
                info!("Requests were still in flight when the process ended");
            }
            if let Some(Ok(Err(error))) = hub.try_join_next() {
                info!(error = format!("{error:#}"), "The hub ended while the gateway drained");
            }
            return Ok(());
        }
        ended = hub.join_next() => ended,
        ended = tasks.join_next() => ended,
    };
    match ended {
        Some(result) => result.context("a task of the process failed")?,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::BoxFuture;
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn the_end_of_each_task_ends_the_process_and_is_said() {
        const ENDED: &str = "the process stops, because one of its tasks ended: the task \"a\" ended, although it must \
                             run as long as the process";
        for is_hub in [false, true] {
            let end = async |task: BoxFuture<'static, anyhow::Result<()>>| {
                let stop = CancellationToken::new();
                let mut ending = Tasks::new();
                ending.spawn(until_stopped("a", task, stop.clone()));
                let mut lasting = Tasks::new();
                lasting.spawn(std::future::pending());
                let ended = if is_hub {
                    first_end(ending, lasting, stop).await
                } else {
                    first_end(lasting, ending, stop).await
                };
                format!("{:#}", ended.unwrap_err())
            };
            assert_eq!(end(Box::pin(async { Ok(()) })).await, ENDED);
            let failed = end(Box::pin(async { anyhow::bail!("no more files") })).await;
            assert_eq!(failed, "the process stops, because one of its tasks ended: no more files");
            let panicked = end(Box::pin(async { std::panic::resume_unwind(Box::new(())) })).await;
            assert!(panicked.starts_with("a task of the process failed: task "), "{panicked}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_gateway_drains_also_when_the_hub_ends_first() {
        let mut hub = Tasks::new();
        hub.spawn(async { anyhow::bail!("another hub writes the ledger") });
        let mut tasks = Tasks::new();
        let (drained, is_drained) = watch::channel(false);
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drained.send_replace(true);
            Ok(())
        });
        let stop = CancellationToken::new();
        stop.cancel();
        first_end(hub, tasks, stop).await.unwrap();
        assert!(*is_drained.borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn process_ends_despite_starting_hub_and_endless_task() {
        let mut tasks = [Tasks::new(), Tasks::new()];
        for tasks in &mut tasks {
            tasks.spawn(std::future::pending());
        }
        let [hub, tasks] = tasks;
        let stop = CancellationToken::new();
        stop.cancel();
        // Kubernetes gives 30 s.
        tokio::time::timeout(Duration::from_secs(30), first_end(hub, tasks, stop)).await.unwrap().unwrap();
    }
}
