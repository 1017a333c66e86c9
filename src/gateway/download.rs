//! Streams the body of a response to the client. Time is bounded, and the body is never held in memory as a whole.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::body::{BodyError, Pace};
use super::session::{GatewayShared, InFlight};
use addon_signer_core::gateway::authz::Peer;

/// A response's body on its way to the client.
pub(super) struct Download {
    inner: Incoming,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    pace: Arc<Pace>,
    shared: Arc<GatewayShared>,
    peer: Arc<Peer>,
    _in_flight: InFlight,
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
        Self { inner, timeout, timer: Box::pin(tokio::time::sleep(timeout)), pace, shared, peer, _in_flight: in_flight }
    }

    pub(super) fn pace(&self) -> &Arc<Pace> {
        &self.pace
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
        if this.pace.taken() {
            this.timer.as_mut().reset(Instant::now() + this.timeout);
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.pace.given(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(this.fail(BodyError::Upstream(error.to_string()))))),
            Poll::Ready(None) => Poll::Ready(None),
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
