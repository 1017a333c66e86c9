//! The body of every response: it is counted while it passes, and breaks off when its request must end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body_util::Full;
use hyper::Response;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::CONTENT_LENGTH;

use super::backend::{BackendBody, Silence};
use super::download::Download;
use super::record::{BACKEND_GONE, CLIENT_GONE, RequestRecord};
use super::session::InFlight;
use super::upload::BodyError;

/// What a response contains.
pub(super) enum Content {
    /// By the gateway itself.
    Own(Full<Bytes>),
    /// By a backend.
    Forwarded(Box<Forwarded>),
}

impl From<Bytes> for Content {
    fn from(text: Bytes) -> Self {
        Self::Own(Full::new(text))
    }
}

/// A backend's response on its way to the client.
pub(super) struct Forwarded {
    body: Download<BackendBody, Arc<InFlight>>,
    silence: Silence,
    /// Why it breaks off, once that is known.
    failed: Option<BodyError>,
}

impl Forwarded {
    pub(super) fn new(body: Download<BackendBody, Arc<InFlight>>, silence: Silence) -> Self {
        Self { body, silence, failed: None }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(error) = self.failed.take() {
            self.report(&error);
            return Poll::Ready(Some(Err(error)));
        }
        let frame = match self.body.in_flight().ending.poll(cx) {
            Poll::Ready(cause) => Some(Err(BodyError::Ended(cause.clone()))),
            Poll::Pending => ready!(Pin::new(&mut self.body).poll_frame(cx)),
        };
        let Some(Err(error)) = frame else { return Poll::Ready(frame) };
        // On an error, hyper drops what it has not written yet. So the error waits for one more turn, in which hyper
        // writes.
        self.failed = Some(error);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn report(&self, error: &BodyError) {
        if matches!(error, BodyError::Stalled(_)) {
            self.silence.note();
        }
        if !matches!(error, BodyError::Ended(_)) {
            self.body.in_flight().broke(error);
        }
    }
}

/// The body of a response.
pub(super) struct Answered {
    content: Content,
    record: Arc<RequestRecord>,
    /// Set for the response to a HEAD. hyper would send its body to a client of HTTP/2, which takes that for an error.
    is_head: bool,
    /// How many bytes are still to come, if the head announces it: with HTTP/1.1, hyper does not poll again after them.
    left: Option<u64>,
}

impl Answered {
    /// Makes the response to a request. The response to a HEAD has no body, whatever its head announces.
    pub(super) fn of(answer: Response<Content>, is_head: bool, record: Arc<RequestRecord>) -> Response<Self> {
        let (mut parts, content) = answer.into_parts();
        let mut body = Self { content, record, is_head, left: None };
        if is_head && let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
            parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        if body.record.is_logged()
            && let Some(length) = parts.headers.get(CONTENT_LENGTH)
        {
            body.left = length.to_str().ok().and_then(|length| length.parse().ok()); // a bad length counts as none
        }
        if body.is_end_stream() {
            body.record.complete();
        }
        Response::from_parts(parts, body)
    }
}

impl Body for Answered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = ready!(match &mut this.content {
            Content::Own(own) => Pin::new(own).poll_frame(cx).map_err(BodyError::from),
            Content::Forwarded(answer) => answer.poll_frame(cx),
        });
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.record.sent(data.len());
                    let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
                    this.left = this.left.map(|left| left.saturating_sub(bytes));
                }
                if this.left == Some(0) || this.is_end_stream() {
                    this.record.complete();
                }
            }
            Some(Err(error)) => this.record.ended(match error {
                BodyError::Upload(_) => CLIENT_GONE,
                BodyError::Backend(_) | BodyError::Reset(_) | BodyError::Stalled(_) => BACKEND_GONE,
                BodyError::Ended(cause) => cause.word(),
            }),
            None => this.record.complete(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.is_head
            || match &self.content {
                Content::Own(own) => own.is_end_stream(),
                Content::Forwarded(answer) => answer.body.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(own) => own.size_hint(),
            Content::Forwarded(answer) => answer.body.size_hint(),
        }
    }
}
