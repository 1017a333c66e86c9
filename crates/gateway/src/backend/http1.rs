//! One exchange over HTTP/1.1. The request itself polls the connection: this needs no other task, and dropping the
//! request ends the connection at once. hyper alone would wait until the backend has taken what was written.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::client::conn::{TrySendError, http1};
use hyper::header::{CONNECTION, HOST, HeaderValue, TE, UPGRADE};
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;

use super::backend_tls::Shown;
use super::connect::{Io, tcp};
use super::{BackendFailure, Pool};
use crate::upload::{BodyError, Upload};

/// A connection that has at most one request.
pub(crate) struct Http1 {
    sender: SendRequest<Upload>,
    /// Taken only at its end. Polled until `is_over`.
    connection: Option<Box<Connection<TokioIo<Io>, Upload>>>,
    is_over: bool,
    pub(super) address: SocketAddr,
    pub(super) shown: Shown,
}

impl Http1 {
    pub(super) async fn new(io: Io, address: SocketAddr, shown: Shown, max_buffer: usize) -> hyper::Result<Self> {
        let builder: &mut Builder = &mut http1::Builder::new();
        let (sender, connection) = builder.max_buf_size(max_buffer).handshake(TokioIo::new(io)).await?;
        Ok(Self { sender, connection: Some(Box::new(connection)), is_over: false, address, shown })
    }

    /// Whether a further request can use it. Notices if the backend has closed it or has sent something unexpected.
    pub(super) fn is_usable(&mut self) -> bool {
        // The last request is over, so there is no task to wake; the next request polls the connection again.
        self.run(&mut Context::from_waker(Waker::noop()));
        !self.is_over && self.sender.is_ready()
    }

    fn run(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = self.connection.as_mut().filter(|_| !self.is_over) {
            // Its error is also the one of the response or of its body.
            self.is_over = Pin::new(connection).poll(cx).is_ready();
        }
    }

    /// Sends a request whose URI has only a path. The connection goes back to the pool, if there is one.
    pub(super) async fn send(
        mut self,
        mut request: Request<Upload>,
        pool: &Arc<Pool>,
        is_kept: bool,
    ) -> Result<Response<Http1Body>, BackendFailure> {
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        headers.insert(HOST, pool.host.clone());
        let connection = if headers.contains_key(UPGRADE) {
            Some("upgrade")
        } else if !is_kept {
            // A backend that ignores the content must not read it as a request (RFC 9112 section 9.6).
            Some("close")
        } else {
            headers.contains_key(TE).then_some("te") // RFC 9110 section 10.1.4
        };
        if let Some(connection) = connection {
            headers.insert(CONNECTION, HeaderValue::from_static(connection));
        }
        let sending = self.sender.try_send_request(request);
        let mut sending = pin!(sending);
        let answered = std::future::poll_fn(|cx| {
            self.run(cx);
            // Only this request polls the connection, which alone completes `sending`. So `sending` needs no waker.
            sending.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        let response = answered.await.map_err(failure)?;
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        Ok(response.map(|body| {
            let pool = is_kept.then(|| Arc::clone(pool));
            let mut body = Http1Body { body, connection: Some(self), pool };
            if !is_upgrade && body.is_end_stream() {
                body.finish();
            }
            body
        }))
    }

    /// The connection after an upgrade, and what was read of the new protocol.
    fn into_io(mut self) -> Option<(Io, Bytes)> {
        self.run(&mut Context::from_waker(Waker::noop())); // after its answer it has nothing more to do
        let parts = self.connection.take().filter(|_| self.is_over)?.into_parts();
        Some((parts.io.into_inner(), parts.read_buf))
    }
}

impl Drop for Http1 {
    /// Drops what the backend has not taken, by a reset. Otherwise the kernel would keep it for as long as the backend
    /// reads nothing.
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !self.is_over
            && !self.sender.is_ready()
        {
            tcp(connection.into_parts().io.inner()).set_zero_linger().ok(); // it fails only if the connection is gone
        }
    }
}

fn failure(mut error: TrySendError<Request<Upload>>) -> BackendFailure {
    let unsent = error.take_message().map(Box::new);
    BackendFailure::new(error.into_error(), unsent)
}

/// The body of a response. Reading it polls the connection, so the rest of an upload pauses while the client takes
/// nothing. With HTTP/1.1 few backends respond before they have read the request, and a task for the upload would have
/// to own the connection.
pub(crate) struct Http1Body {
    body: Incoming,
    /// `None` after the end.
    connection: Option<Http1>,
    pool: Option<Arc<Pool>>,
}

impl Http1Body {
    /// At the end of the response, the connection goes back to the pool if the upload is over. Otherwise it ends,
    /// because a backend that reads nothing could hold the request for as long as it likes. nginx and Envoy do the
    /// same.
    fn finish(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && let Some(pool) = self.pool.take()
            && connection.is_usable()
        {
            pool.put(connection);
        }
    }

    pub(super) fn into_io(self) -> Option<(Io, Bytes)> {
        self.connection?.into_io()
    }
}

impl Body for Http1Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let mut unwoken = Context::from_waker(Waker::noop());
        // hyper's connection reads only after the body was polled, so the body is polled before it, and again after it.
        let mut frame = Pin::new(&mut this.body).poll_frame(&mut unwoken);
        if frame.is_pending()
            && let Some(connection) = &mut this.connection
        {
            connection.run(cx);
            frame = Pin::new(&mut this.body).poll_frame(&mut unwoken);
        }
        // hyper's server does not poll again after the last announced piece, or after trailers.
        if let Poll::Ready(frame) = &frame
            && frame.as_ref().is_none_or(|frame| {
                frame.as_ref().map_or(true, |frame| frame.is_trailers() || this.body.is_end_stream())
            })
        {
            this.finish();
        }
        frame.map_err(|error| BodyError::Backend(error.to_string()))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
