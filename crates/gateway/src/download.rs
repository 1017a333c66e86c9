//! Streams the body of a response to the client. Time is bounded, and the body is never held in memory as a whole. A
//! request keeps its permit until the last piece of its response has left for the client's socket: with HTTP/2, hyper
//! takes pieces from the body and keeps them even when the client takes none.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::task::AtomicWaker;
use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::HeaderValue;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use super::upload::{BodyError, UploadProgress};
use addon_signer_core::gateway::permits::{MinRate, Tempo};

/// How many pieces of a response may wait for the client. h2 bounds their bytes, but needs another 370 bytes or so for
/// each, and a backend may send a byte at a time: without this bound 32,768 pieces would take 12 MB.
const MOST_PIECES: usize = 64;
/// Smaller pieces are copied: each keeps the buffer of 8 KiB or more that it was read into.
const COPIED: usize = 8 * 1024;

/// A request whose response is being sent. Each piece of the response holds it.
struct Answering<C> {
    pace: Arc<RateMeter>,
    /// Woken when the client has taken a piece.
    taken: AtomicWaker,
    in_flight: C,
}

impl<C> Answering<C> {
    /// Ready when at most `few` pieces wait for the client.
    fn poll_waiting(&self, few: usize, cx: &Context<'_>) -> Poll<()> {
        if self.pace.waiting() > few {
            self.taken.register(cx.waker());
            // A piece may have left before the waker was registered. Any that leaves from now on wakes this task.
            if self.pace.waiting() > few {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

/// A piece of the response that has not left for the client's socket.
struct Untaken<C> {
    piece: Bytes,
    in_flight: Arc<Answering<C>>,
}

impl<C> AsRef<[u8]> for Untaken<C> {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl<C> Drop for Untaken<C> {
    fn drop(&mut self) {
        self.in_flight.pace.taken(self.piece.len());
        self.in_flight.taken.wake();
    }
}

/// A response's body on its way to the client.
pub(super) struct Download<B, C> {
    inner: B,
    timeout: Duration,
    /// Fires when the backend has been silent for too long. A body that never waits for the backend needs none.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the timer runs, because the backend must act.
    is_timed: bool,
    /// Present for a stream, which lasts while anything passes in either direction.
    stream: Option<Arc<UploadProgress>>,
    in_flight: Arc<Answering<C>>,
}

impl<B, C: Send + Sync + 'static> Download<B, C> {
    /// `timeout` bounds the pauses of the backend, `rate` those of the client. `in_flight` lasts until the last piece
    /// is sent.
    pub(super) fn new(inner: B, timeout: Duration, rate: MinRate, in_flight: C) -> Self {
        let in_flight = Arc::new(Answering { pace: RateMeter::new(rate), taken: AtomicWaker::new(), in_flight });
        Self { inner, timeout, timer: None, is_timed: false, stream: None, in_flight }
    }

    /// Makes it a part of a stream in both directions.
    pub(super) fn of_stream(self, stream: Option<Arc<UploadProgress>>) -> Self {
        Self { stream, ..self }
    }

    pub(super) fn in_flight(&self) -> &C {
        &self.in_flight.in_flight
    }

    pub(super) fn pace(&self) -> &Arc<RateMeter> {
        &self.in_flight.pace
    }

    /// Wraps a piece, which waits for the client until it is dropped.
    fn hold(&self, piece: Bytes) -> Bytes {
        self.in_flight.pace.given();
        let piece = if piece.len() < COPIED { Bytes::copy_from_slice(&piece) } else { piece };
        Bytes::from_owner(Untaken { piece, in_flight: Arc::clone(&self.in_flight) })
    }

    /// Keeps the request alive until these fields are sent, all as one piece. They are marked as sensitive, because h2
    /// keeps other fields in a table for later responses, and each of these would keep the request alive.
    pub(super) fn hold_fields(&self, fields: &mut HeaderMap) {
        let values: Vec<&[u8]> = fields.values().map(HeaderValue::as_bytes).collect();
        let mut values = self.hold(values.concat().into());
        for value in fields.values_mut() {
            // These bytes were a valid value, so this does not fail.
            if let Ok(held) = HeaderValue::from_maybe_shared(values.split_to(value.len())) {
                *value = held;
                value.set_sensitive(true);
            }
        }
    }
}

impl<B, C> Body for Download<B, C>
where
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    C: Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        ready!(this.in_flight.poll_waiting(MOST_PIECES - 1, cx));
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                this.is_timed = false;
                if let Some(stream) = &this.stream {
                    stream.passed();
                }
                if let Some(trailers) = frame.trailers_mut() {
                    this.hold_fields(trailers);
                }
                Poll::Ready(Some(Ok(frame.map_data(|data| this.hold(data)))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                // The backend's time begins once the client has taken everything; before, the minimum rate bounds the
                // client's.
                ready!(this.in_flight.poll_waiting(0, cx));
                let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.timeout)));
                if !this.is_timed {
                    timer.as_mut().reset(Instant::now() + this.timeout);
                    this.is_timed = true;
                }
                loop {
                    ready!(timer.as_mut().poll(cx));
                    let end = this.stream.as_ref().map(|stream| stream.last() + this.timeout);
                    match end.filter(|end| *end > Instant::now()) {
                        Some(end) => timer.as_mut().reset(end),
                        None => return Poll::Ready(Some(Err(BodyError::Stalled(this.timeout)))),
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Measures how fast a client reads a response.
#[derive(Debug)]
pub(super) struct RateMeter(Mutex<RateState>);

#[derive(Debug)]
struct RateState {
    tempo: Tempo,
    /// How many pieces wait for the client.
    waiting: usize,
    /// When the client could first have taken the next piece.
    since: Instant,
}

impl RateMeter {
    /// Initially no pieces wait for the client.
    pub(super) fn new(rate: MinRate) -> Arc<Self> {
        Arc::new(Self(Mutex::new(RateState { tempo: Tempo::new(rate), waiting: 0, since: Instant::now() })))
    }

    /// Notes that a piece is on its way to the client.
    pub(super) fn given(&self) {
        let mut state = self.0.lock();
        if state.waiting == 0 {
            state.since = Instant::now();
        }
        state.waiting += 1;
    }

    /// Notes that a piece has left for the client's socket.
    pub(super) fn taken(&self, bytes: usize) {
        let mut state = self.0.lock();
        let now = Instant::now();
        let waited = now - state.since;
        state.tempo.add(waited, bytes);
        state.since = now;
        state.waiting = state.waiting.saturating_sub(1);
    }

    /// How many pieces wait for the client. While there are none, the backend must act.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().waiting
    }

    /// Whether the client reads below the minimum rate.
    pub(super) fn is_slow(&self) -> bool {
        let state = self.0.lock();
        state.waiting > 0 && state.tempo.left(state.since.elapsed()).is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::{ArcWake, waker};
    use futures::{StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::header::CONTENT_TYPE;
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    const RATE: MinRate = MinRate { bytes_per_second: 256, grace: Duration::from_secs(30) };
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn mk_piece() -> Frame<Bytes> {
        Frame::data(Bytes::from_static(b"x"))
    }

    #[tokio::test]
    async fn so_many_pieces_wait_for_a_client_whatever_their_size() {
        let endless = StreamBody::new(stream::repeat_with(|| Ok::<_, Infallible>(mk_piece())));
        let mut body = Download::new(endless, TIMEOUT, RATE, ());
        let woken = Arc::<Woken>::default();
        let waker = waker(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut pieces = Vec::new();
        while let Poll::Ready(piece) = Pin::new(&mut body).poll_frame(&mut cx) {
            pieces.push(piece.unwrap().unwrap());
            assert!(pieces.len() <= MOST_PIECES);
        }
        assert_eq!((pieces.len(), woken.0.load(Ordering::Relaxed)), (MOST_PIECES, 0));
        pieces.pop();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(Pin::new(&mut body).poll_frame(&mut cx).is_ready());
    }

    #[tokio::test]
    async fn small_pieces_do_not_keep_their_buffers() {
        let buffer = Bytes::from(vec![b'x'; COPIED]);
        for (size, is_copied) in [(1, true), (COPIED - 1, true), (COPIED, false)] {
            let one = stream::iter([Ok::<_, Infallible>(Frame::data(buffer.slice(..size)))]);
            let mut body = Download::new(StreamBody::new(one), TIMEOUT, RATE, ());
            let piece = next(&mut body).await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((piece.len(), piece.as_ptr() != buffer.as_ptr()), (size, is_copied));
        }
    }

    /// Polls once, like a server that wants the next piece.
    async fn next<B, C>(body: &mut Download<B, C>) -> Option<Result<Frame<Bytes>, BodyError>>
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
        C: Send + Sync + 'static,
    {
        poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_backends_time_begins_when_the_client_has_taken_all() {
        let one = stream::iter([Ok::<_, Infallible>(mk_piece())]).chain(stream::pending());
        let mut body = Download::new(StreamBody::new(one), TIMEOUT, RATE, ());
        let piece = next(&mut body).await.unwrap().unwrap();
        assert!(tokio::time::timeout(2 * TIMEOUT, next(&mut body)).await.is_err(), "the client must act");
        assert!(body.pace().is_slow());
        drop(piece);
        assert!(!body.pace().is_slow());
        let began = Instant::now();
        assert!(matches!(next(&mut body).await, Some(Err(BodyError::Stalled(TIMEOUT)))));
        assert!(began.elapsed() >= TIMEOUT);
        assert!(began.elapsed() < 2 * TIMEOUT);
    }

    /// One party of a stream may be silent for as long as the other talks.
    #[tokio::test(start_paused = true)]
    async fn a_stream_lasts_while_its_client_talks() {
        let progress = UploadProgress::new();
        let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let mut body = Download::new(silent, TIMEOUT, RATE, ()).of_stream(Some(Arc::clone(&progress)));
        for _ in 0..4 {
            assert!(tokio::time::timeout(TIMEOUT / 2, next(&mut body)).await.is_err());
            progress.passed();
        }
        let quiet = Instant::now();
        assert!(matches!(next(&mut body).await, Some(Err(BodyError::Stalled(TIMEOUT)))));
        assert_eq!(quiet.elapsed(), TIMEOUT);
    }

    #[tokio::test]
    async fn trailers_count_until_they_are_sent() {
        let trailers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("x"))]);
        let last = StreamBody::new(stream::iter([Ok::<_, Infallible>(Frame::trailers(trailers))]));
        let mut body = Download::new(last, TIMEOUT, RATE, ());
        let frame = next(&mut body).await.unwrap().unwrap();
        assert_eq!(body.pace().waiting(), 1);
        drop(frame);
        assert_eq!(body.pace().waiting(), 0);
    }

    const CLIENT_RATE: MinRate = MinRate { bytes_per_second: 100, grace: Duration::from_secs(10) };

    /// After how many pieces of 10 bytes a client is too slow if it takes this long for each, while the backend takes a
    /// minute for each.
    async fn too_slow_after(each: Duration) -> Option<u32> {
        let pace = RateMeter::new(CLIENT_RATE);
        for number in 0..200 {
            tokio::time::advance(Duration::from_secs(60)).await;
            assert!(!pace.is_slow(), "the backend is slow, not the client");
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

    #[tokio::test(start_paused = true)]
    async fn further_pieces_buy_an_idle_client_no_extra_time() {
        let pace = RateMeter::new(CLIENT_RATE);
        for _ in 0..10 {
            assert!(!pace.is_slow());
            pace.given();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(pace.is_slow());
        assert!(pace.waiting() == 10);
        pace.taken(1000);
        assert!(!pace.is_slow());
        assert!(pace.waiting() == 9);
        tokio::time::advance(CLIENT_RATE.grace).await;
        assert!(pace.is_slow());
    }
}
