//! The body of every answer, which is counted while it passes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::Response;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::CONTENT_LENGTH;

use super::body::{BodyError, OutBody};
use super::record::{BACKEND_GONE, CLIENT_GONE, CallRecord, SESSION_ENDED};

/// The body of an answer.
pub(super) struct Answered {
    body: OutBody,
    record: Arc<CallRecord>,
    /// The answer to a HEAD. hyper sends its body to a client of HTTP/2, which takes that for an error.
    is_head: bool,
    /// How many bytes are to come, if the head says so: HTTP/1.1 asks for nothing after them.
    left: Option<u64>,
}

impl Answered {
    /// The answer of a call. An answer to HEAD has no body, whatever it says.
    pub(super) fn of(answer: Response<OutBody>, is_head: bool, record: Arc<CallRecord>) -> Response<Self> {
        let (mut parts, body) = answer.into_parts();
        if is_head && let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
            parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        let length = || parts.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok(); // a bad length counts as none
        let left = if record.is_told() { length() } else { None };
        if is_head || body.is_end_stream() {
            record.complete();
        }
        Response::from_parts(parts, Self { body, record, is_head, left })
    }
}

impl Body for Answered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.record.sent(data.len());
                    let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
                    this.left = this.left.map(|left| left.saturating_sub(bytes));
                }
                if this.left == Some(0) || this.body.is_end_stream() {
                    this.record.complete();
                }
            }
            Some(Err(error)) => this.record.ended(match error {
                BodyError::Upload(_) => CLIENT_GONE,
                BodyError::Backend(_) | BodyError::Reset(_) | BodyError::Stalled(_) => BACKEND_GONE,
                BodyError::Ended(_) => SESSION_ENDED,
            }),
            None => this.record.complete(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.is_head || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
