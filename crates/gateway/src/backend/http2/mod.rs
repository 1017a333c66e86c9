//! Requests over HTTP/2. They share a connection, which has a task; each request sends its own body, so that a request
//! that is dropped resets its stream at once. The rest of a body, after the response has begun, has a task too.

use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HOST};
use hyper::http::uri::Parts;
use hyper::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::backend_tls::Shown;
use super::connect::Io;
use super::{BackendFailure, Pool, Silence};
use crate::Limits;
use crate::frames::Frames;
use crate::unread::OnTheWay;
use crate::upload::{BodyError, Upload, UploadProgress};
use crate::wire::Wire;

/// How many requests of a cluster share a connection. Its window is the sum of theirs, so that responses that clients
/// do not read seldom hold up the others. They still can: h2 ends a connection on which too many small pieces wait, and
/// the backend's window for uploads is the connection's.
const STREAMS: u32 = 128;

/// A connection that several requests share.
#[derive(Clone)]
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
    /// Each request holds it. It is set once one of them has timed out.
    requests: Arc<AtomicBool>,
    /// Whether the backend has sent too many large heads.
    too_many_heads: CancellationToken,
    pub(super) address: SocketAddr,
    pub(super) shown: Shown,
    /// When a request last took it.
    pub(super) used: Instant,
}

impl Http2 {
    pub(super) async fn new(io: Io, address: SocketAddr, shown: Shown, limits: &Limits) -> Result<Self, h2::Error> {
        // As much of a response as HTTP/1.1 has on its way: what is read, and a piece.
        let window = u32::try_from(limits.call_buffer).unwrap_or(u32::MAX).saturating_mul(2);
        let too_many_heads = CancellationToken::new();
        let io = Wire::to_backend(io, Frames::of_backend(too_many_heads.clone()));
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(window)
            .initial_connection_window_size(window.saturating_mul(STREAMS))
            .max_send_buffer_size(limits.call_buffer)
            .max_header_list_size(limits.max_header_bytes)
            .handshake(io)
            .await?;
        // It ends when neither the pool nor a request has the sender. Its error is also the one of each stream.
        tokio::spawn(connection);
        Ok(Self { sender, requests: Arc::default(), too_many_heads, address, shown, used: Instant::now() })
    }

    pub(super) fn silence(&self) -> Silence {
        Silence(Arc::downgrade(&self.requests))
    }

    /// Whether the backend accepts further requests on it.
    fn is_open(&self) -> bool {
        if self.requests.load(Ordering::Relaxed) || self.too_many_heads.is_cancelled() {
            return false;
        }
        let mut unwoken = Context::from_waker(Waker::noop());
        !matches!(self.sender.clone().poll_ready(&mut unwoken), Poll::Ready(Err(_)))
    }

    /// Whether it has requests or may get some: a backend may accept no more of them without announcing that it leaves.
    pub(super) fn is_useful(&self) -> bool {
        self.is_open() && (self.requests() > 0 || self.is_free())
    }

    /// Whether one more stream may begin now.
    pub(super) fn is_free(&self) -> bool {
        self.requests() < self.sender.current_max_send_streams().min(STREAMS as usize)
    }

    pub(super) fn requests(&self) -> usize {
        Arc::strong_count(&self.requests).saturating_sub(1)
    }

    /// Counts as a request from now on, until it is dropped.
    pub(super) fn take(&mut self) -> Self {
        self.used = Instant::now();
        self.clone()
    }

    /// Sends a request whose URI has only a path.
    pub(super) async fn send(
        self,
        request: Request<Upload>,
        pool: &Pool,
    ) -> Result<Response<Http2Body>, BackendFailure> {
        let Self { mut sender, requests, .. } = self;
        let unsent = |error: h2::Error, request| BackendFailure::new(error, Some(Box::new(request)));
        if let Err(error) = std::future::poll_fn(|cx| sender.poll_ready(cx)).await {
            return Err(unsent(error, request));
        }
        let (head, is_end) = match head_of(&request, pool) {
            Ok(head) => (head, request.body().is_end_stream()),
            Err(error) => return Err(BackendFailure::new(error, None)),
        };
        let (response, stream) = match sender.send_request(head, is_end) {
            Ok(sent) => sent,
            Err(error) => return Err(unsent(error, request)),
        };
        let (parts, body) = request.into_parts();
        let on_the_way = body.on_the_way();
        let upload = Pump { body, stream, piece: Bytes::new(), on_the_way, is_over: is_end };
        let exchange = Exchange { response, upload };
        exchange.answer(requests).await.map_err(|(error, body)| {
            // The backend has processed nothing of the request (RFC 9113 section 8.7).
            let unsent = error.is_unprocessed().then(|| body.map(|body| Box::new(Request::from_parts(parts, body))));
            let reset = error.reset();
            let failure = match error {
                StreamError::Backend(error) => BackendFailure::new(error, unsent.flatten()),
                StreamError::Upload(error) => BackendFailure::new(error, None),
            };
            BackendFailure { reset, ..failure }
        })
    }
}

/// The head as HTTP/2 has it: with a whole URI, and without `Host`.
fn head_of(request: &Request<Upload>, pool: &Pool) -> Result<Request<()>, hyper::http::Error> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.version_mut() = Version::HTTP_2;
    let mut uri = Parts::default();
    uri.scheme = Some(pool.scheme.clone());
    uri.authority = Some(pool.authority.clone());
    uri.path_and_query = request.uri().path_and_query().cloned();
    *head.uri_mut() = Uri::from_parts(uri)?;
    let headers = head.headers_mut();
    headers.clone_from(request.headers());
    headers.remove(HOST);
    if let Some(length) = request.body().size_hint().exact().filter(|length| *length > 0) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    Ok(head)
}

/// Why a stream ended before its response began.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    Backend(#[from] h2::Error),
    #[error(transparent)]
    Upload(BodyError),
}

impl StreamError {
    fn is_unprocessed(&self) -> bool {
        let Self::Backend(error) = self else { return false };
        error.is_remote() && (error.reason() == Some(Reason::REFUSED_STREAM) || error.is_go_away())
    }

    /// The code with which the backend reset the stream.
    fn reset(&self) -> Option<Reason> {
        let Self::Backend(error) = self else { return None };
        error.reason().filter(|_| error.is_remote() && error.is_reset())
    }
}

/// A stream whose response has not begun.
struct Exchange {
    response: ResponseFuture,
    upload: Pump,
}

impl Exchange {
    /// Waits for the response, and sends the body meanwhile. On an error, returns the body if nothing of it was taken.
    async fn answer(mut self, requests: Arc<AtomicBool>) -> Result<Response<Http2Body>, (StreamError, Option<Upload>)> {
        let answered = std::future::poll_fn(|cx| {
            // A failed upload ends the exchange. If the backend has stopped reading it, the response tells more.
            if let Poll::Ready(Err(error @ StreamError::Upload(_))) = self.upload.poll(cx) {
                return Poll::Ready(Err(error));
            }
            Pin::new(&mut self.response).poll(cx).map_err(StreamError::from)
        });
        match answered.await {
            Ok(response) => {
                // h2 itself checks only for a response to a HEAD that it has no content (RFC 9110 section 6.4.1).
                let is_empty = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
                Ok(response.map(|received| {
                    let upload = (!self.upload.is_over).then(|| Rest::spawn(self.upload));
                    Http2Body { received, is_empty, upload, _request: requests }
                }))
            }
            Err(error) => {
                let Pump { body, .. } = self.upload;
                let is_whole = body.is_untouched();
                Err((error, is_whole.then_some(body)))
            }
        }
    }
}

/// Moves a request's body to the backend.
struct Pump<B = Incoming> {
    body: Upload<B>,
    stream: SendStream<Bytes>,
    /// What waits for capacity.
    piece: Bytes,
    /// Parts of pieces count too: a backend may have room for a byte at a time.
    on_the_way: Arc<OnTheWay>,
    is_over: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Pump<B> {
    /// Ready when there is nothing more to send.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        while !self.is_over {
            if !self.piece.is_empty() {
                ready!(self.poll_send(cx))?;
                continue;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => self.piece = piece,
                    Err(frame) => self.end(frame.into_trailers().ok())?,
                },
                None => self.end(None)?,
                Some(Err(error)) => return Poll::Ready(Err(StreamError::Upload(error))),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends as much of the piece as there is capacity for. h2 would buffer all that it gets.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        self.stream.reserve_capacity(self.piece.len());
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.is_over = true;
                    return Poll::Ready(Err(error));
                }
                None => {
                    self.is_over = true; // the backend reads no more
                    return Poll::Ready(Ok(()));
                }
            }
        }
        let part = match self.stream.capacity() {
            room if room < self.piece.len() => {
                ready!(self.on_the_way.poll_room(cx));
                self.on_the_way.add(self.piece.split_to(room))
            }
            _ => mem::take(&mut self.piece),
        };
        let sent = self.stream.send_data(part, false);
        self.is_over = sent.is_err();
        Poll::Ready(sent)
    }

    fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), h2::Error> {
        self.is_over = true;
        match trailers {
            Some(trailers) => self.stream.send_trailers(trailers),
            None => self.stream.send_data(Bytes::new(), true),
        }
    }
}

/// The rest of an upload after the response has begun. It continues while the response is not polled because its client
/// takes no more.
struct Rest {
    task: AbortOnDropHandle<()>,
    progress: Arc<UploadProgress>,
}

impl Rest {
    fn spawn(upload: Pump) -> Self {
        let progress = Arc::clone(upload.body.progress());
        let mut upload = ResetUnlessOver(upload);
        let task = tokio::spawn(async move {
            std::future::poll_fn(|cx| upload.0.poll(cx)).await.ok(); // its error is the answer's, or in `progress`
        });
        Self { task: AbortOnDropHandle::new(task), progress }
    }
}

/// Resets its stream when it is dropped before its end, which ends the response too.
struct ResetUnlessOver(Pump);

impl Drop for ResetUnlessOver {
    fn drop(&mut self) {
        if !self.0.is_over {
            self.0.stream.send_reset(Reason::CANCEL);
        }
    }
}

/// The body of a response.
pub(crate) struct Http2Body {
    received: RecvStream,
    /// Whether its status allows no content.
    is_empty: bool,
    upload: Option<Rest>,
    /// The connection counts it as a request.
    _request: Arc<AtomicBool>,
}

impl Http2Body {
    /// Aborts the upload if that is not over, and with it the response.
    pub(super) fn upload(&self) -> Option<AbortHandle> {
        self.upload.as_ref().map(|rest| rest.task.abort_handle())
    }

    /// An upload that fails resets the stream, so it is the cause. A client of HTTP/2 gets the code of the backend's
    /// reset, unless that would mean that the response is complete (RFC 9113 section 8.1).
    fn cause(&self, error: h2::Error) -> BodyError {
        match self.upload.as_ref().and_then(|rest| rest.progress.failure()) {
            Some(failure) => failure.into(),
            None if error.reason() == Some(Reason::NO_ERROR) => BodyError::Backend(error.to_string()),
            None => BodyError::Reset(error),
        }
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let mut received = ready!(this.received.poll_data(cx));
        while let Some(Ok(piece)) = &received
            && piece.is_empty()
        {
            received = ready!(this.received.poll_data(cx)); // it carries the end at most
        }
        match received {
            Some(Ok(_)) if this.is_empty => Poll::Ready(Some(Err(BodyError::Reset(Reason::PROTOCOL_ERROR.into())))),
            Some(Ok(piece)) => {
                this.received.flow_control().release_capacity(piece.len()).ok(); // or the stream has ended
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(this.cause(error)))),
            None => match ready!(this.received.poll_trailers(cx)) {
                Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
                Err(error) => Poll::Ready(Some(Err(this.cause(error)))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.received.is_end_stream()
    }
}

#[cfg(test)]
mod tests;
