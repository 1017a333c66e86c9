//! Upgrades of HTTP/1.1, such as WebSocket (RFC 6455): after the backend has agreed, bytes go both ways. WebSockets of
//! clients that speak HTTP/2 (RFC 8441) become such upgrades.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use data_encoding::BASE64;
use hyper::body::{Bytes, Incoming};
use hyper::ext::Protocol;
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::http::response;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use ring::digest::{self, SHA1_FOR_LEGACY_USE_ONLY};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::{Instant, sleep_until};

use super::backend::{BackendBody, Fault, Io};
use super::ending::EndCause;
use super::problem::Refusal;
use super::record::{BACKEND_GONE, CLIENT_GONE, COMPLETE, RequestRecord, SILENT};
use super::session::{InFlight, Session};
use super::unread::{Pieces, Unread};
use super::upload::has_content;
use addon_signer_core::gateway::headers;
use addon_signer_core::gateway::route::Backend;

/// How much is read at a time, in each direction.
const BUFFER: usize = 8 * 1024;

/// An upgrade that a client asks for.
pub(super) struct Upgrade {
    pub(super) protocol: HeaderValue,
    client: OnUpgrade,
    /// Present if the client speaks HTTP/2.
    key: Option<WebSocketKey>,
    /// What the client sends, also before the backend has agreed.
    pieces: Pieces,
}

impl Upgrade {
    /// The upgrade that a request asks for, if any.
    ///
    /// # Errors
    /// The gateway or the backend cannot do it. h2c and TLS would hide further requests from the gateway.
    pub(super) fn asked(
        request: &mut Request<Incoming>,
        key: Option<WebSocketKey>,
        backend: &Backend,
        unread: &Arc<Unread>,
    ) -> Result<Option<Self>, Refusal> {
        let headers = request.headers();
        let Some(protocol) = headers.get(UPGRADE).cloned() else { return Ok(None) };
        let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let is_listed =
            listed.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("upgrade"));
        let is_one = headers.get_all(UPGRADE).iter().count() == 1 && is_other_protocol(&protocol);
        let is_upgrade = key.is_some() || (request.version() == Version::HTTP_11 && is_listed);
        if !is_one || !is_upgrade || backend.protocol.is_h2() || has_content(request.body()) {
            return Err(Refusal::Upgrade);
        }
        Ok(Some(Self { protocol, client: hyper::upgrade::on(request), key, pieces: unread.body() }))
    }

    /// Whether it is a CONNECT of HTTP/2 (RFC 8441), to which every 2xx means that the stream is open.
    pub(super) fn is_connect(&self) -> bool {
        self.key.is_some()
    }

    /// The response to the client after the backend has agreed. The tunnel that follows lasts as long as the request.
    pub(super) fn agreed(
        self,
        session: &Session,
        (mut parts, body): (response::Parts, BackendBody),
        idle: Duration,
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
        let tunnel = Tunnel { client: self.client, pieces: self.pieces, backend, begun, idle, in_flight };
        if let Some(key) = self.key {
            key.answer(&mut parts)?;
            tokio::spawn(tunnel.run()); // it ends with its request or with its stream
        } else {
            parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            parts.headers.insert(UPGRADE, protocol);
            *session.tunnel.lock() = Some(Box::pin(tunnel.run()));
        }
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
    pieces: Pieces,
    backend: Io,
    /// What the backend has sent with its response.
    begun: Bytes,
    idle: Duration,
    in_flight: Arc<InFlight>,
}

impl Tunnel {
    /// Copies until both sides have ended, nothing comes for too long, or the request must end.
    async fn run(self) {
        let Self { client, pieces, mut backend, begun, idle, in_flight } = self;
        let Ok(client) = client.await else { return };
        let last = Mutex::new(Instant::now());
        let mut client = Noticed { inner: TokioIo::new(client), pieces, last: &last, record: &in_flight.record };
        let copying = async {
            client.write_all(&begun).await?;
            copy_bidirectional_with_sizes(&mut client, &mut backend, BUFFER, BUFFER).await
        };
        let silent = async {
            loop {
                let end = *last.lock() + idle;
                if end <= Instant::now() {
                    break;
                }
                sleep_until(end).await;
            }
        };
        let how = tokio::select! {
            // Whichever side failed, the other one sees its connection end. The client's failure was noted before.
            copied = copying => if copied.is_ok() { COMPLETE } else { BACKEND_GONE },
            () = silent => SILENT,
            how = std::future::poll_fn(|cx| in_flight.ending.poll(cx).map(EndCause::word)) => how,
        };
        in_flight.record.ended(how);
    }
}

/// Notices when something was read or written, and how much.
struct Noticed<'n, S> {
    inner: S,
    pieces: Pieces,
    last: &'n Mutex<Instant>,
    record: &'n RequestRecord,
}

impl<S> Noticed<'_, S> {
    fn failed<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|_| self.record.ended(CLIENT_GONE))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noticed<'_, S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let Self { inner, pieces, .. } = &mut *self;
        let read = ready!(pieces.poll(cx, |cx| Pin::new(inner).poll_read(cx, buf)));
        if read.is_err() || buf.filled().len() == before {
            pieces.end();
        }
        self.failed(read)?;
        *self.last.lock() = Instant::now();
        self.record.received(buf.filled().len().saturating_sub(before));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noticed<'_, S> {
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

/// What a server adds to the key (RFC 6455 section 1.3).
const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The key of a request, which shows that the backend knows what a WebSocket is.
pub(super) struct WebSocketKey(String);

impl WebSocketKey {
    /// Turns an extended CONNECT for a WebSocket into an upgrade of HTTP/1.1. `None` for all other requests.
    ///
    /// # Errors
    /// It is for another protocol.
    pub(super) fn translate(request: &mut Request<Incoming>) -> Result<Option<Self>, Refusal> {
        let Some(protocol) = request.extensions().get::<Protocol>() else { return Ok(None) };
        if protocol.as_str() != "websocket" {
            return Err(Refusal::Upgrade);
        }
        let mut random = [0; 16];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| Refusal::Backend(Fault::Other.because("no random numbers")))?;
        let key = BASE64.encode(&random);
        let value = HeaderValue::from_str(&key).map_err(|error| Refusal::Backend(error.into()))?;
        *request.method_mut() = Method::GET;
        request.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        request.headers_mut().insert(SEC_WEBSOCKET_KEY, value);
        Ok(Some(Self(key)))
    }

    /// What the backend must answer.
    fn accept(&self) -> String {
        let mut digest = digest::Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        digest.update(self.0.as_bytes());
        digest.update(SUFFIX);
        BASE64.encode(digest.finish().as_ref())
    }

    /// Turns a head that switches protocols into a response of HTTP/2.
    pub(super) fn answer(&self, parts: &mut response::Parts) -> Result<(), Refusal> {
        let accepted = parts.headers.remove(SEC_WEBSOCKET_ACCEPT);
        if accepted.is_none_or(|accepted| accepted.as_bytes() != self.accept().as_bytes()) {
            return Err(Refusal::Backend(Fault::Protocol.because("it has not accepted the key of the WebSocket")));
        }
        parts.status = StatusCode::OK;
        Ok(())
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

    #[test]
    fn a_backend_answers_the_key_as_in_rfc_6455() {
        let key = WebSocketKey("dGhlIHNhbXBsZSBub25jZQ==".to_owned());
        assert_eq!(key.accept(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
