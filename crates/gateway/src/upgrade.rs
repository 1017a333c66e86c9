//! Upgrades of HTTP/1.1, such as WebSocket (RFC 6455): after the backend has agreed, bytes go both ways.
//!
//! The gateway does not offer WebSockets over HTTP/2 (RFC 8441), so clients use HTTP/1.1. hyper copies what passes
//! through them, and does not tell when it drops what it copied, so the memory that they take could not be counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::http::response;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, Version};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::{Instant, sleep_until};

use super::backend::{BackendBody, Fault, Io};
use super::ending::EndCause;
use super::problem::Refusal;
use super::record::{BACKEND_GONE, CLIENT_GONE, COMPLETE, RequestRecord, SILENT};
use super::session::{InFlight, Session};
use super::upload::has_content;
use addon_signer_core::gateway::headers;
use addon_signer_core::gateway::route::{Backend, RouteLimits};

/// How much is read at a time, in each direction.
const BUFFER: usize = 8 * 1024;

/// An upgrade that a client asks for.
pub(super) struct Upgrade {
    pub(super) protocol: HeaderValue,
    client: OnUpgrade,
}

impl Upgrade {
    /// The upgrade that a request asks for, if any.
    ///
    /// # Errors
    /// The gateway or the backend cannot do it. h2c and TLS would hide further requests from the gateway.
    pub(super) fn asked(request: &mut Request<Incoming>, backend: &Backend) -> Result<Option<Self>, Refusal> {
        let headers = request.headers();
        let Some(protocol) = headers.get(UPGRADE).cloned() else { return Ok(None) };
        let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let is_listed =
            listed.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("upgrade"));
        let is_one = headers.get_all(UPGRADE).iter().count() == 1 && is_other_protocol(&protocol);
        let is_upgrade = request.version() == Version::HTTP_11 && is_listed;
        if !is_one || !is_upgrade || backend.protocol.is_h2() || has_content(request.body()) {
            return Err(Refusal::Upgrade);
        }
        Ok(Some(Self { protocol, client: hyper::upgrade::on(request) }))
    }

    /// The response to the client after the backend has agreed. The tunnel that follows lasts as long as the request.
    pub(super) fn agreed(
        self,
        session: &Session,
        (mut parts, body): (response::Parts, BackendBody),
        limits: &RouteLimits,
        in_flight: Arc<InFlight>,
    ) -> Result<Response<Bytes>, Refusal> {
        let protocol = parts.headers.get(UPGRADE).cloned();
        let protocol =
            protocol.ok_or_else(|| Refusal::Backend(Fault::Protocol.because("it switched to no protocol")))?;
        let switched = body.into_io();
        let (backend, begun) =
            switched.ok_or_else(|| Refusal::Backend(Fault::Closed.because("its connection has ended")))?;
        headers::strip_hop_by_hop(&mut parts.headers);
        parts.version = Version::default();
        parts.extensions.clear();
        in_flight.record.upgraded();
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, protocol);
        let stalled = session.shared.limits.min_rate.grace.max(limits.first_byte);
        let patience = Patience { idle: limits.idle, stalled };
        let tunnel = Tunnel { client: self.client, backend, begun, patience, in_flight };
        *session.tunnel.lock() = Some(Box::pin(tunnel.run()));
        Ok(Response::from_parts(parts, Bytes::new()))
    }
}

fn is_other_protocol(protocol: &HeaderValue) -> bool {
    let Ok(listed) = protocol.to_str() else { return false };
    listed.split(',').map(str::trim).all(|protocol| {
        let name = protocol.split('/').next().unwrap_or_default();
        let name = name.to_ascii_lowercase();
        // Drafts of HTTP/2 were called h2-14 and h2c-14.
        !["", "tls", "http"].contains(&&*name) && !name.starts_with("h2")
    })
}

/// A client and a backend that have agreed on another protocol.
struct Tunnel {
    client: OnUpgrade,
    backend: Io,
    /// What the backend has sent with its response.
    begun: Bytes,
    patience: Patience,
    in_flight: Arc<InFlight>,
}

impl Tunnel {
    /// Copies until both sides have ended, nothing passes for too long, or the request must end.
    async fn run(self) {
        let Self { client, backend, begun, patience, in_flight } = self;
        let Ok(client) = client.await else { return };
        let (last, full) = (Mutex::new(Instant::now()), Mutex::default());
        let mut client = ClientSide { inner: TokioIo::new(client), last: &last, record: &in_flight.record };
        let mut backend = BackendSide { inner: backend, full: &full };
        let copying = async {
            client.write_all(&begun).await?;
            copy_bidirectional_with_sizes(&mut client, &mut backend, BUFFER, BUFFER).await
        };
        let how = tokio::select! {
            // Whichever side failed, the other one sees its connection end. The client's failure was noted before.
            copied = copying => if copied.is_ok() { COMPLETE } else { BACKEND_GONE },
            how = patience.end(&last, &full) => how,
            how = std::future::poll_fn(|cx| in_flight.ending.poll(cx).map(EndCause::word)) => how,
        };
        in_flight.record.ended(how);
    }
}

/// How long a tunnel lasts although nothing passes.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// The client neither sends nor takes anything.
    idle: Duration,
    /// The backend does not take what there is for it. Nobody reads from the client then, so it may be gone.
    stalled: Duration,
}

impl Patience {
    /// Waits until nothing has passed for too long: since the client's `last` byte, or since the backend is `full`.
    async fn end(self, last: &Mutex<Instant>, full: &Mutex<Option<Instant>>) -> &'static str {
        loop {
            let (now, silent) = (Instant::now(), *last.lock() + self.idle);
            let stalled = full.lock().unwrap_or(now) + self.stalled;
            if silent <= now {
                return SILENT;
            }
            if stalled <= now {
                return BACKEND_GONE;
            }
            sleep_until(silent.min(stalled)).await;
        }
    }
}

/// Notices when something was read or written, and how much.
struct ClientSide<'n, S> {
    inner: S,
    last: &'n Mutex<Instant>,
    record: &'n RequestRecord,
}

impl<S> ClientSide<'_, S> {
    fn failed<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|_| self.record.ended(CLIENT_GONE))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientSide<'_, S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(cx, buf));
        self.failed(read)?;
        *self.last.lock() = Instant::now();
        self.record.received(buf.filled().len().saturating_sub(before));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientSide<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, buf));
        let written = self.failed(written)?;
        *self.last.lock() = Instant::now();
        self.record.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.inner).poll_flush(cx));
        Poll::Ready(self.failed(flushed))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Notices since when it takes nothing.
struct BackendSide<'n, S> {
    inner: S,
    full: &'n Mutex<Option<Instant>>,
}

impl<S> BackendSide<'_, S> {
    fn noted<T>(&self, done: Poll<T>) -> Poll<T> {
        let mut full = self.full.lock();
        *full = if done.is_pending() { full.or_else(|| Some(Instant::now())) } else { None };
        drop(full);
        done
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BackendSide<'_, S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BackendSide<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.noted(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.noted(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.noted(shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrades_to_http_and_tls_are_refused() {
        let is_other = |text| is_other_protocol(&HeaderValue::from_static(text));
        assert!(["websocket", "spdy/3.1", "WebSocket , x/1"].into_iter().all(is_other));
        assert!(!["h2c", "H2C", "TLS/1.2", "tls", "HTTP/2.0", "websocket, h2c", ""].into_iter().any(is_other));
    }
}
