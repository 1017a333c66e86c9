//! Bounds of a response that is no watch: how long it may take, and how large a page of a list may be.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tower::BoxError;

/// The most bytes of a response: two objects of any size. While kube reads the text, it holds it up to three times.
const LARGEST: usize = 20 << 20;

/// The body of a response.
pub(crate) type PageBody = UnsyncBoxBody<Bytes, BoxError>;

/// A response began but did not end.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not end its answer within {} s", .0.as_secs())]
struct Endless(Duration);

/// A response is larger than this process reads.
#[derive(Debug, thiserror::Error)]
#[error("the API server's answer has more than {} MiB", LARGEST >> 20)]
struct TooLarge;

/// Whether the error is that a response is too large, so that the client should ask for less.
pub(crate) fn is_too_large(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| cause.is::<TooLarge>())
}

/// Bounds responses.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// The longest time from the head of a response to its end.
    pub(crate) whole: Duration,
    /// Held while a page of a list is received.
    turns: Arc<Semaphore>,
}

impl Bounds {
    pub(crate) fn new(whole: Duration) -> Self {
        Self { whole, turns: Arc::new(Semaphore::new(1)) }
    }

    /// The body of a response, with an error if it takes too long or is too large. Pages come one after the other.
    pub(crate) fn apply(&self, body: PageBody, is_page: bool) -> PageBody {
        let whole = self.whole;
        let turns = is_page.then(|| Arc::clone(&self.turns));
        let reading = Reading { body, turns, turn: None, latest: None, left: LARGEST };
        let frames = stream::unfold(reading, move |mut reading| async move {
            let frame = reading.next(whole).await?;
            Some((frame, reading))
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

struct Reading {
    body: PageBody,
    turns: Option<Arc<Semaphore>>,
    turn: Option<OwnedSemaphorePermit>,
    latest: Option<Instant>,
    left: usize,
}

impl Reading {
    async fn next(&mut self, whole: Duration) -> Option<Result<Frame<Bytes>, BoxError>> {
        if let Some(turns) = self.turns.take() {
            self.turn = turns.acquire_owned().await.ok(); // nobody closes it
        }
        let latest = *self.latest.get_or_insert_with(|| Instant::now() + whole);
        let frame = tokio::select! {
            biased;
            () = sleep_until(latest) => return Some(Err(Endless(whole).into())),
            frame = self.body.frame() => frame?,
        };
        let received = frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
        match self.left.checked_sub(received) {
            None => Some(Err(TooLarge.into())),
            Some(left) => {
                self.left = left;
                Some(frame)
            }
        }
    }
}
