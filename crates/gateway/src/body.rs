//! Streams the bodies of requests and responses. Size and time are bounded, and no body is held in memory as a whole.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::connect::CaptureConnection;
use tokio::time::{Instant, Sleep};

use super::stream::UpstreamConnection;
use addon_signer_core::gateway::pace::{MinRate, Tempo};

/// The type of every response body.
pub(super) type OutBody = UnsyncBoxBody<Bytes, BodyError>;

/// A response body that the gateway makes itself.
pub(super) fn full(text: impl Into<Bytes>) -> OutBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Whether a request has content, or may have some for all that is known.
pub(super) fn has_content(body: &impl Body) -> bool {
    !body.is_end_stream() && body.size_hint().exact() != Some(0)
}

/// Why a body ended early.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the request's body is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the client sent its body more slowly than {0} bytes a second")]
    Slow(u64),
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
    /// Whether the upstream has taken all that it gets.
    is_over: bool,
}

/// Progress of an upload. The body reports it; the task that waits for the response reads it.
#[derive(Debug)]
pub(super) struct UploadProgress(Mutex<UploadState>);

impl UploadProgress {
    pub(super) fn new() -> Arc<Self> {
        let since = Instant::now();
        Arc::new(Self(Mutex::new(UploadState { turn: Turn::Upstream, since, failure: None, is_over: false })))
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
            (state.turn, state.since) = (turn, Instant::now());
        }
    }

    fn fail(&self, failure: BodyError) -> BodyError {
        lock(&self.0).failure = Some(failure.clone());
        failure
    }
}

/// Ends an upload with its call: when this is dropped, the upstream's connection ends unless the upload is over. An
/// upstream that reads nothing would hold the call's places for as long as it likes, after its answer and after the
/// client has gone. nginx and Envoy do the same.
pub(super) struct EndsUpload {
    pub(super) progress: Arc<UploadProgress>,
    pub(super) connection: CaptureConnection,
}

impl Drop for EndsUpload {
    fn drop(&mut self) {
        // The last piece waits for the lock before it goes, so until then its connection is not another call's.
        let state = lock(&self.progress.0);
        if !state.is_over {
            UpstreamConnection::end(&self.connection);
        }
    }
}

/// A request's body on its way to the upstream. Trailers are dropped, because they could carry fields that the gateway
/// removed from the headers.
pub(super) struct Upload<B = Incoming> {
    inner: B,
    max: u64,
    passed: u64,
    progress: Arc<UploadProgress>,
    rate: MinRate,
    tempo: Tempo,
    /// Since when the client must send the next piece, and when it will have been too slow.
    waiting: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    sending: Arc<Sending>,
}

/// What lasts until the last piece of an upload is written: hyper drops a body when it has taken its last piece, and
/// may hold what the upstream does not take. Without it a call would seem to be over that still has a connection.
struct Sending {
    progress: Arc<UploadProgress>,
    /// A backend may also answer before it has read all.
    _call: Arc<dyn Send + Sync>,
}

impl Drop for Sending {
    fn drop(&mut self) {
        lock(&self.progress.0).is_over = true;
    }
}

/// A piece of the upload that the upstream has not taken.
struct Unsent {
    piece: Bytes,
    _sending: Arc<Sending>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl<B> Upload<B> {
    pub(super) fn new(
        inner: B,
        max: u64,
        rate: MinRate,
        progress: Arc<UploadProgress>,
        call: Arc<dyn Send + Sync>,
    ) -> Self {
        let timer = Box::pin(tokio::time::sleep(rate.patience));
        let sending = Arc::new(Sending { progress: Arc::clone(&progress), _call: call });
        Self { inner, max, passed: 0, progress, rate, tempo: Tempo::new(rate), waiting: None, timer, sending }
    }

    /// Waits until the client is too slow.
    fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        if self.waiting.is_none() {
            let now = Instant::now();
            self.waiting = Some(now);
            self.timer.as_mut().reset(now + self.tempo.left(Duration::ZERO));
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(self.progress.fail(BodyError::Slow(self.rate.bytes_per_second)))
    }
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Body for Upload<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        this.progress.set(Turn::Client);
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            return this.poll_slow(cx).map(|error| Some(Err(error)));
        };
        let waited = this.waiting.take().map_or(Duration::ZERO, |since| since.elapsed());
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
        this.tempo.add(waited, data.len());
        this.passed = this.passed.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        if this.passed > this.max {
            let error = this.progress.fail(BodyError::TooLarge(this.max));
            return Poll::Ready(Some(Err(error)));
        }
        let piece = Unsent { piece: data, _sending: Arc::clone(&this.sending) };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// How a client takes a response.
#[derive(Debug)]
pub(super) struct Pace(Mutex<PaceState>);

#[derive(Debug)]
struct PaceState {
    tempo: Tempo,
    /// How many pieces the client has to take.
    waiting: usize,
    /// Since when it has had to take the next one.
    since: Instant,
}

impl Pace {
    /// At the start the client has nothing to take.
    pub(super) fn new(rate: MinRate) -> Arc<Self> {
        Arc::new(Self(Mutex::new(PaceState { tempo: Tempo::new(rate), waiting: 0, since: Instant::now() })))
    }

    /// Notes that the client gets a piece.
    pub(super) fn given(&self) {
        let mut state = lock(&self.0);
        if state.waiting == 0 {
            state.since = Instant::now();
        }
        state.waiting += 1;
    }

    /// Notes that a piece has left for the client's socket.
    pub(super) fn taken(&self, bytes: usize) {
        let mut state = lock(&self.0);
        let waited = state.since.elapsed();
        state.tempo.add(waited, bytes);
        state.since = Instant::now();
        state.waiting = state.waiting.saturating_sub(1);
    }

    /// How many pieces the client has to take. While there are none, the upstream must act.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.0).waiting
    }

    /// Whether the client takes too slowly.
    pub(super) fn is_slow(&self) -> bool {
        let state = lock(&self.0);
        state.waiting > 0 && state.tempo.left(state.since.elapsed()).is_zero()
    }
}

/// Ignores poisoning: no change of these values panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinRate = MinRate { bytes_per_second: 100, patience: Duration::from_secs(10) };

    /// After how many pieces of 10 bytes a client is too slow that takes this long for each, while the upstream takes
    /// a minute.
    async fn too_slow_after(each: Duration) -> Option<u32> {
        let pace = Pace::new(RATE);
        for number in 0..200 {
            tokio::time::advance(Duration::from_secs(60)).await;
            assert!(!pace.is_slow(), "the upstream is slow, not the client");
            pace.given();
            tokio::time::advance(each).await;
            if pace.is_slow() {
                return Some(number);
            }
            pace.taken(10);
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn only_client_taking_few_bytes_a_second_is_too_slow() {
        assert_eq!(too_slow_after(Duration::from_secs(10)).await, Some(0));
        assert_eq!(too_slow_after(Duration::from_secs(1)).await, Some(10));
        assert_eq!(too_slow_after(Duration::from_millis(100)).await, None);
    }

    #[tokio::test]
    async fn an_upload_is_over_when_its_last_piece_is_written() {
        let progress = UploadProgress::new();
        let call = Arc::new(());
        let body = Full::new(Bytes::from_static(b"all of it"));
        let mut upload = Upload::new(body, 100, RATE, Arc::clone(&progress), Arc::<()>::clone(&call));
        let piece = upload.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(upload.frame().await.is_none());
        drop(upload);
        assert!(!lock(&progress.0).is_over && Arc::strong_count(&call) == 2, "hyper may still hold a piece");
        drop(piece);
        assert!(lock(&progress.0).is_over && Arc::strong_count(&call) == 1);
    }

    #[tokio::test(start_paused = true)]
    async fn further_pieces_buy_an_idle_client_no_extra_time() {
        let pace = Pace::new(RATE);
        for _ in 0..10 {
            assert!(!pace.is_slow());
            pace.given();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(pace.is_slow() && pace.waiting() == 10);
        pace.taken(1000);
        assert!(!pace.is_slow() && pace.waiting() == 9);
        tokio::time::advance(RATE.patience).await;
        assert!(pace.is_slow());
    }
}
