//! Streams the bodies of requests and responses. Size and time are bounded, and no body is held in memory as a whole.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::Instant;

/// The type of every response body.
pub(super) type OutBody = UnsyncBoxBody<Bytes, BodyError>;

/// A response body that the gateway makes itself.
pub(super) fn full(text: impl Into<Bytes>) -> OutBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Why a body ended early.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the request's body is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the client's body ended early: {0}")]
    Client(String),
    #[error("the upstream's body ended early: {0}")]
    Upstream(String),
    #[error("the upstream sent nothing for {0:?}")]
    Stalled(Duration),
}

/// The party that must act next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Client,
    Upstream,
}

#[derive(Debug)]
struct UploadState {
    turn: Turn,
    since: Instant,
    failure: Option<BodyError>,
}

/// Progress of an upload. The body reports it; the task that waits for the response reads it.
#[derive(Debug)]
pub(super) struct UploadProgress(Mutex<UploadState>);

impl UploadProgress {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(UploadState { turn: Turn::Upstream, since: Instant::now(), failure: None })))
    }

    /// The party that must act next, and since when.
    pub(super) fn turn(&self) -> (Turn, Instant) {
        let state = lock(&self.0);
        (state.turn, state.since)
    }

    /// Why the upload failed, unless the upstream caused it.
    pub(super) fn failure(&self) -> Option<BodyError> {
        lock(&self.0).failure.clone()
    }

    /// Sets the party that must act next. The clock restarts when the party changes, which happens with each piece;
    /// setting the same party again changes nothing.
    fn set(&self, turn: Turn) {
        let mut state = lock(&self.0);
        if state.turn != turn {
            *state = UploadState { turn, since: Instant::now(), failure: None };
        }
    }

    fn fail(&self, failure: BodyError) -> BodyError {
        lock(&self.0).failure = Some(failure.clone());
        failure
    }
}

/// A request's body on its way to the upstream. Trailers are dropped, because they could carry fields that the gateway
/// removed from the headers.
pub(super) struct Upload {
    inner: Incoming,
    max: u64,
    passed: u64,
    progress: Arc<UploadProgress>,
}

impl Upload {
    pub(super) fn new(inner: Incoming, max: u64, progress: Arc<UploadProgress>) -> Self {
        Self { inner, max, passed: 0, progress }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        this.progress.set(Turn::Client);
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        let data = match frame {
            None => None,
            Some(Ok(frame)) => frame.into_data().ok(), // a frame without data has trailers, which come last
            Some(Err(error)) => {
                let error = this.progress.fail(BodyError::Client(error.to_string()));
                return Poll::Ready(Some(Err(error)));
            }
        };
        this.progress.set(Turn::Upstream);
        let Some(data) = data else { return Poll::Ready(None) };
        this.passed = this.passed.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        if this.passed > this.max {
            let error = this.progress.fail(BodyError::TooLarge(this.max));
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Since when the client has had a piece of a response to take, if it has one.
#[derive(Debug)]
pub(super) struct Pace(Mutex<Option<Instant>>);

impl Pace {
    /// At the start the client has a piece to take.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Instant::now()))))
    }

    /// Notes that the client gets a piece.
    pub(super) fn given(&self) {
        *lock(&self.0) = Some(Instant::now());
    }

    /// Notes that the client has taken its piece. Returns whether it had one.
    pub(super) fn taken(&self) -> bool {
        lock(&self.0).take().is_some()
    }

    /// How long the client has been taking the last piece; zero when the upstream must act.
    pub(super) fn waits_for_client(&self) -> Duration {
        lock(&self.0).map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Ignores poisoning: each change is one assignment, so a panic elsewhere leaves the value complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
