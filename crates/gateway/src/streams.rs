//! Runs hyper's tasks for the streams of an HTTP/2 connection inside of the connection's own task.
//!
//! As tasks of their own they would cost more than the requests: a stream's task wakes its connection, the connection
//! wakes the task, and each time tokio may wake another thread to search for work.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::task::AtomicWaker;
use futures::{FutureExt, StreamExt};
use hyper::rt::Executor;
use parking_lot::Mutex;

/// How often connection and streams may wake each other before other tasks have their turn. A task that has used up
/// tokio's budget wakes itself each time, so without this bound the loop would not end.
const ROUNDS: usize = 8;

/// Takes hyper's tasks.
#[derive(Clone, Default)]
pub(super) struct NewStreams(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

impl<F> Executor<F> for NewStreams
where
    F: Future + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.lock().push(task.map(drop).boxed());
    }
}

/// The streams of a connection. Dropping it ends them.
pub(super) struct Streams {
    new: NewStreams,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    woken: Arc<Woken>,
}

impl Streams {
    pub(super) fn new(new: NewStreams) -> Self {
        Self { new, running: FuturesUnordered::new(), woken: Arc::default() }
    }

    /// Runs the connection to its end, and its streams meanwhile.
    pub(super) async fn run<C: Future>(&mut self, mut connection: Pin<&mut C>) -> C::Output {
        poll_fn(|cx| self.poll(connection.as_mut(), cx)).await
    }

    /// Connection and streams get a waker of their own: a wake-up that comes while this runs costs a turn of the loop,
    /// not one of tokio's scheduler.
    fn poll<C: Future>(&mut self, mut connection: Pin<&mut C>, cx: &Context<'_>) -> Poll<C::Output> {
        let woken = Arc::clone(&self.woken);
        let waker = Waker::from(Arc::clone(&woken));
        let mut inner = Context::from_waker(&waker);
        woken.task.register(cx.waker());
        woken.is_running.store(true, Ordering::SeqCst);
        for _ in 0..ROUNDS {
            woken.again.store(false, Ordering::SeqCst);
            let done = connection.as_mut().poll(&mut inner);
            if done.is_ready() {
                return done;
            }
            self.running.extend(self.new.0.lock().drain(..));
            while let Poll::Ready(Some(())) = self.running.poll_next_unpin(&mut inner) {}
            if !woken.again.load(Ordering::SeqCst) {
                break;
            }
        }
        woken.is_running.store(false, Ordering::SeqCst);
        // A wake-up from now on wakes the task. An earlier one relied on another turn of the loop, which may have been
        // the last.
        if woken.again.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Wakes the task, unless that is running: then it polls once more by itself.
#[derive(Default)]
struct Woken {
    task: AtomicWaker,
    is_running: AtomicBool,
    again: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.again.store(true, Ordering::SeqCst);
        if !self.is_running.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use futures::future::join;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    /// Lets a connection and a stream answer each other this often.
    async fn play(games: usize) {
        let new = NewStreams::default();
        let mut streams = Streams::new(new.clone());
        let (to_stream, mut at_stream) = mpsc::channel(1);
        let (to_connection, mut at_connection) = mpsc::channel(1);
        new.execute(async move {
            while let Some(game) = at_stream.recv().await {
                to_connection.send(game).await.unwrap();
            }
        });
        let connection = async move {
            for game in 0..games {
                to_stream.send(game).await.unwrap();
                assert_eq!(at_connection.recv().await, Some(game));
            }
        };
        tokio::pin!(connection);
        streams.run(connection).await;
    }

    #[tokio::test]
    async fn connection_and_stream_may_wake_each_other_forever() {
        timeout(Duration::from_secs(10), join(play(1000), play(1000))).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_from_another_thread_is_lost() {
        let new = NewStreams::default();
        let mut streams = Streams::new(new.clone());
        let (to_stream, mut at_stream) = mpsc::channel(1);
        let (done, is_done) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            for game in 0..100_000 {
                to_stream.send(game).await.unwrap();
            }
        });
        new.execute(async move {
            while at_stream.recv().await.is_some() {}
            done.send(()).unwrap();
        });
        let running = tokio::spawn(async move {
            tokio::pin!(let connection = pending::<()>(););
            streams.run(connection).await;
        });
        timeout(Duration::from_secs(20), is_done).await.unwrap().unwrap();
        running.abort();
    }

    #[tokio::test]
    async fn streams_end_with_their_connection() {
        let new = NewStreams::default();
        let mut streams = Streams::new(new.clone());
        let held = Arc::new(());
        let call = Arc::clone(&held);
        new.execute(async move {
            pending::<()>().await;
            drop(call);
        });
        let connection = tokio::task::yield_now();
        tokio::pin!(connection);
        streams.run(connection).await;
        drop((streams, new));
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
