//! Streams the body of a response to the client. Time is bounded, and the body is never held in memory as a whole. A
//! call has its seat until the last piece of its answer has left for the client's socket: HTTP/2 takes a piece from the
//! body as soon as the client has room for one byte, and keeps the rest. Answers of our own are smaller than the 4 KiB
//! that docs/operations.md counts for each stream of a connection, so they keep no seat.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::task::AtomicWaker;
use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::HeaderValue;
use tokio::time::{Instant, Sleep};

use super::body::{BodyError, Pace};
use super::session::{GatewayShared, InFlight};
use addon_signer_core::gateway::authz::Peer;

/// How many pieces of an answer may wait for the client. h2 bounds their bytes, but needs some 370 bytes besides for
/// each, and a backend may send a byte at a time: without this bound 32,768 pieces would take 12 MB.
const MOST_PIECES: usize = 64;

/// A call that is being answered. Each piece of the answer has it.
struct Answering<C> {
    pace: Arc<Pace>,
    /// Woken when the client has taken a piece.
    taken: AtomicWaker,
    _call: C,
}

impl<C> Answering<C> {
    /// Waits until there is room for a piece.
    fn poll_room(self: &Arc<Self>, cx: &Context<'_>) -> Poll<()> {
        let has_room = || Arc::strong_count(self) <= MOST_PIECES; // one of them is the body's
        if !has_room() {
            self.taken.register(cx.waker());
            // A piece may have gone meanwhile. One that goes from now on wakes; the others that wait do so too.
            if !has_room() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

/// A piece of the answer that the client does not have yet.
struct Untaken<T, C> {
    piece: T,
    call: Arc<Answering<C>>,
}

impl<T: AsRef<[u8]>, C> AsRef<[u8]> for Untaken<T, C> {
    fn as_ref(&self) -> &[u8] {
        self.piece.as_ref()
    }
}

impl<T, C> Drop for Untaken<T, C> {
    fn drop(&mut self) {
        self.call.taken.wake();
    }
}

/// A response's body on its way to the client.
pub(super) struct Download {
    inner: Incoming,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    call: Arc<Answering<InFlight>>,
    shared: Arc<GatewayShared>,
    peer: Arc<Peer>,
}

impl Download {
    pub(super) fn new(
        inner: Incoming,
        timeout: Duration,
        shared: Arc<GatewayShared>,
        peer: Arc<Peer>,
        in_flight: InFlight,
    ) -> Self {
        let pace = Pace::new(shared.limits.min_rate);
        let call = Arc::new(Answering { pace, taken: AtomicWaker::new(), _call: in_flight });
        Self { inner, timeout, timer: Box::pin(tokio::time::sleep(timeout)), call, shared, peer }
    }

    pub(super) fn pace(&self) -> &Arc<Pace> {
        &self.call.pace
    }

    fn hold(&self, piece: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Untaken { piece, call: Arc::clone(&self.call) })
    }

    /// Lets the call last until these fields are sent. HTTP/2 also keeps fields in a table for later answers, unless
    /// they are sensitive, and each would keep the whole buffer in which it came from the backend.
    pub(super) fn hold_fields(&self, fields: &mut HeaderMap) {
        for value in fields.values_mut() {
            // What was a value is one.
            if let Ok(held) = HeaderValue::from_maybe_shared(self.hold(value.clone())) {
                *value = held;
                value.set_sensitive(true);
            }
        }
    }

    fn fail(&self, error: BodyError) -> BodyError {
        self.shared.broken_answers.say(&self.peer, &error);
        error
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        // The client's pace goes on: it has not taken what waits.
        ready!(this.call.poll_room(cx));
        // The client has taken the last piece, so the upstream's time starts.
        if this.call.pace.taken() {
            this.timer.as_mut().reset(Instant::now() + this.timeout);
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                this.call.pace.given(frame.data_ref().map_or(0, Bytes::len));
                if let Some(trailers) = frame.trailers_mut() {
                    this.hold_fields(trailers);
                }
                Poll::Ready(Some(Ok(frame.map_data(|data| this.hold(data)))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(this.fail(BodyError::Upstream(error.to_string()))))),
            Poll::Ready(None) => {
                this.call.pace.given(0); // earlier pieces may wait
                Poll::Ready(None)
            }
            Poll::Pending => {
                ready!(this.timer.as_mut().poll(cx));
                Poll::Ready(Some(Err(this.fail(BodyError::Stalled(this.timeout)))))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use addon_signer_core::gateway::pace::MinRate;
    use futures::task::{ArcWake, waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn so_many_pieces_wait_for_a_client_whatever_their_size() {
        let min_rate = MinRate { bytes_per_second: 256, patience: Duration::from_secs(30) };
        let call = Arc::new(Answering { pace: Pace::new(min_rate), taken: AtomicWaker::new(), _call: () });
        let woken = Arc::<Woken>::default();
        let waker = waker(Arc::clone(&woken));
        let cx = Context::from_waker(&waker);
        let mut pieces = Vec::new();
        while call.poll_room(&cx).is_ready() {
            pieces.push(Untaken { piece: [0_u8], call: Arc::clone(&call) });
        }
        assert_eq!((pieces.len(), woken.0.load(Ordering::Relaxed)), (MOST_PIECES, 0));
        pieces.pop();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(call.poll_room(&cx).is_ready());
    }
}
