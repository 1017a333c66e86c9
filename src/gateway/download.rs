//! Streams the body of a response to the client. Time is bounded, and the body is never held in memory as a whole. A
//! call has its seat until the last piece of its answer has left for the client's socket: HTTP/2 takes a piece from the
//! body as soon as the client has room for one byte, and keeps the rest. Answers of our own are smaller than the 4 KiB
//! that docs/operations.md counts for each stream of a connection, so they keep no seat.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::HeaderValue;
use tokio::time::{Instant, Sleep};

use super::body::{BodyError, Pace};
use super::session::{GatewayShared, InFlight};
use addon_signer_core::gateway::authz::Peer;

/// A call that is being answered. Each piece of the answer has it.
struct Answering {
    pace: Arc<Pace>,
    _in_flight: InFlight,
}

/// A piece of the answer that the client does not have yet.
struct Untaken<T> {
    piece: T,
    _call: Arc<Answering>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Untaken<T> {
    fn as_ref(&self) -> &[u8] {
        self.piece.as_ref()
    }
}

/// A response's body on its way to the client.
pub(super) struct Download {
    inner: Incoming,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    call: Arc<Answering>,
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
        let call = Arc::new(Answering { pace: Pace::new(shared.limits.min_rate), _in_flight: in_flight });
        Self { inner, timeout, timer: Box::pin(tokio::time::sleep(timeout)), call, shared, peer }
    }

    pub(super) fn pace(&self) -> &Arc<Pace> {
        &self.call.pace
    }

    fn hold(&self, piece: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Untaken { piece, _call: Arc::clone(&self.call) })
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
