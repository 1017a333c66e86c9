//! Streams the body of a request to the backend. Size and time are bounded, and the body is never held in memory as a
//! whole.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use super::ending::EndCause;
use super::record::RequestRecord;
use super::unread::{OnTheWay, Pieces};
use addon_signer_core::gateway::headers;
use addon_signer_core::gateway::permits::{MinRate, Tempo};

/// Whether a request has content, or might have some.
pub(super) fn has_content(body: &impl Body) -> bool {
    !body.is_end_stream() && body.size_hint().exact() != Some(0)
}

/// Why a request's body ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UploadError {
    #[error("the request's body is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the client sent its body more slowly than {0} bytes a second")]
    Slow(u64),
    #[error("nothing was sent for {0:?}")]
    Silent(Duration),
    #[error("the client's body ended early")]
    Client,
}

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error("the backend's body ended early: {0}")]
    Backend(String),
    /// Its code is passed on to a client of HTTP/2.
    #[error("the backend's stream ended early: {0}")]
    Reset(#[source] h2::Error),
    #[error("the backend sent nothing for {0:?}")]
    Stalled(Duration),
    #[error("the request may not go on: {}", .0.word())]
    Ended(EndCause),
}

impl From<Infallible> for BodyError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The party that must act next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Client,
    Backend,
}

#[derive(Debug)]
struct UploadState {
    turn: Turn,
    since: Instant,
    /// When a piece last passed, in either direction.
    last: Instant,
    failure: Option<UploadError>,
}

/// Progress of an upload. The body reports it; the wait for the response reads it.
#[derive(Debug)]
pub(super) struct UploadProgress(Mutex<UploadState>);

impl UploadProgress {
    pub(super) fn new() -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self(Mutex::new(UploadState { turn: Turn::Backend, since: now, last: now, failure: None })))
    }

    /// Starts the wait for the backend.
    pub(super) fn begin(&self) {
        self.0.lock().since = Instant::now();
    }

    /// The party that must act next, and since when.
    pub(super) fn turn(&self) -> (Turn, Instant) {
        let state = self.0.lock();
        (state.turn, state.since)
    }

    /// Notes that a piece passed.
    pub(super) fn passed(&self) {
        self.0.lock().last = Instant::now();
    }

    /// When a piece last passed, in either direction.
    pub(super) fn last(&self) -> Instant {
        self.0.lock().last
    }

    /// Why the upload failed, unless the backend caused the failure.
    pub(super) fn failure(&self) -> Option<UploadError> {
        self.0.lock().failure
    }

    /// Sets the party that must act next. The clock restarts when the party changes, which happens with each piece;
    /// setting the same party again changes nothing.
    fn set(&self, turn: Turn) {
        let mut state = self.0.lock();
        if state.turn != turn {
            (state.turn, state.since) = (turn, Instant::now());
        }
    }

    fn fail(&self, failure: UploadError) -> BodyError {
        self.0.lock().failure = Some(failure);
        failure.into()
    }
}

/// How slowly a client may send a body.
#[derive(Debug)]
pub(super) enum UploadLimit {
    /// At a minimal rate.
    Rate(MinRate, Tempo),
    /// As slowly as it likes, while something comes from either side within this time: a stream of gRPC may have
    /// nothing to say.
    Idle(Duration),
}

impl UploadLimit {
    pub(super) fn rate(rate: MinRate) -> Self {
        Self::Rate(rate, Tempo::new(rate))
    }

    fn left(&self) -> Duration {
        match self {
            Self::Rate(_, tempo) => tempo.left(Duration::ZERO),
            Self::Idle(idle) => *idle,
        }
    }

    fn error(&self) -> UploadError {
        match self {
            Self::Rate(rate, _) => UploadError::Slow(rate.bytes_per_second),
            Self::Idle(idle) => UploadError::Silent(*idle),
        }
    }
}

/// A request's body on its way to the backend. Trailers may carry no field that is removed from headers.
pub(super) struct Upload<B = Incoming> {
    inner: B,
    /// Present until it has ended.
    pieces: Option<Pieces>,
    /// Where its bytes are counted.
    record: Option<Arc<RequestRecord>>,
    max: u64,
    passed: u64,
    progress: Arc<UploadProgress>,
    limit: UploadLimit,
    /// When the wait for the client's next piece began.
    waiting: Option<Instant>,
    /// Fires when the client has been too slow. A body that never waits for the client needs none.
    timer: Option<Pin<Box<Sleep>>>,
    is_untouched: bool,
}

impl<B> Upload<B> {
    pub(super) fn new(
        (inner, pieces): (B, Option<Pieces>),
        max: u64,
        limit: UploadLimit,
        progress: Arc<UploadProgress>,
    ) -> Self {
        let (waiting, timer) = (None, None);
        Self { inner, pieces, record: None, max, passed: 0, progress, limit, waiting, timer, is_untouched: true }
    }

    /// Counts its bytes.
    pub(super) fn counted(self, record: &Arc<RequestRecord>) -> Self {
        Self { record: Some(Arc::clone(record)), ..self }
    }

    /// Its pieces that have not left for the backend's socket.
    pub(super) fn on_the_way(&self) -> Arc<OnTheWay> {
        self.pieces.as_ref().map(Pieces::on_the_way).unwrap_or_default()
    }

    pub(super) fn progress(&self) -> &Arc<UploadProgress> {
        &self.progress
    }

    /// Whether nothing of it has been taken.
    pub(super) fn is_untouched(&self) -> bool {
        self.is_untouched
    }

    /// Completes when the client is too slow.
    fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        if self.waiting.is_none() {
            let now = Instant::now();
            self.waiting = Some(now);
            let end = now + self.limit.left();
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(end),
                None => self.timer = Some(Box::pin(tokio::time::sleep_until(end))),
            }
        }
        while let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(cx));
            match self.limit {
                UploadLimit::Idle(idle) if self.progress.last() + idle > Instant::now() => {
                    timer.as_mut().reset(self.progress.last() + idle);
                }
                _ => break,
            }
        }
        Poll::Ready(self.progress.fail(self.limit.error()))
    }

    /// Counts a piece.
    fn passed(&mut self, bytes: usize) -> Result<(), BodyError> {
        if let Some(record) = &self.record {
            record.received(bytes);
        }
        let waited = self.waiting.take().map_or(Duration::ZERO, |since| since.elapsed());
        match &mut self.limit {
            UploadLimit::Rate(_, tempo) => tempo.add(waited, bytes),
            UploadLimit::Idle(_) => self.progress.passed(),
        }
        self.passed = self.passed.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if self.passed > self.max { Err(self.progress.fail(UploadError::TooLarge(self.max))) } else { Ok(()) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Upload<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(pieces) = &this.pieces {
            ready!(pieces.poll_room(cx));
        }
        this.progress.set(Turn::Client);
        let inner = Pin::new(&mut this.inner);
        let polled = match &this.pieces {
            Some(pieces) => pieces.poll(cx, |cx| inner.poll_frame(cx)),
            None => inner.poll_frame(cx),
        };
        let Poll::Ready(frame) = polled else {
            return this.poll_slow(cx).map(|error| Some(Err(error)));
        };
        this.is_untouched = false;
        let Some(frame) = frame.transpose().map_err(|_| this.progress.fail(UploadError::Client))? else {
            this.progress.set(Turn::Backend);
            this.pieces = None;
            return Poll::Ready(None);
        };
        this.progress.set(Turn::Backend);
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        this.passed(bytes)?;
        let mut frame = frame;
        if let Some(trailers) = frame.trailers_mut() {
            headers::strip_request(trailers);
        }
        if let Some(pieces) = &this.pieces {
            frame = frame.map_data(|piece| pieces.take(piece));
        }
        if this.inner.is_end_stream() {
            this.pieces = None;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::{BodyExt, StreamBody};
    use hyper::HeaderMap;
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    const RATE: MinRate = MinRate { bytes_per_second: 100, grace: Duration::from_secs(10) };

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_may_last_and_a_slow_body_may_not() {
        let idle = Duration::from_secs(3600);
        for (limit, lasts, expected) in [
            (UploadLimit::rate(RATE), RATE.grace, UploadError::Slow(100)),
            (UploadLimit::Idle(idle), idle, UploadError::Silent(idle)),
        ] {
            let progress = UploadProgress::new();
            let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
            let began = Instant::now();
            let ended = Upload::new((silent, None), 100, limit, Arc::clone(&progress)).frame().await;
            assert!(matches!(ended, Some(Err(BodyError::Upload(error))) if error == expected));
            assert_eq!(progress.failure(), Some(expected));
            assert!(began.elapsed() >= lasts);
        }
    }

    #[tokio::test]
    async fn trailers_of_a_request_carry_no_identity() {
        let fields = ["x-remote-user", "x_addon_signer_cluster", "connection", "host", "x-checksum"];
        let trailers = fields.map(|name| (name.parse().unwrap(), HeaderValue::from_static("x")));
        let last = stream::iter([Ok::<_, Infallible>(Frame::trailers(HeaderMap::from_iter(trailers)))]);
        let body = (StreamBody::new(last), None);
        let mut upload = Upload::new(body, 0, UploadLimit::rate(RATE), UploadProgress::new());
        assert!(upload.is_untouched());
        let passed = upload.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(passed.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-checksum"]);
        assert!(!upload.is_untouched());
    }
}
