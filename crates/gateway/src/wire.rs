//! What HTTP reads from and writes to: a connection whose frames are counted, and that may end slowly.
//!
//! A client may still be sending a body when it already has the response. If the gateway closes a socket with unread
//! bytes, the kernel sends a reset, and a reset may take the response from the client (RFC 9112 section 9.6). So the
//! gateway keeps reading for a moment after it has ended a client's connection. nginx lingers too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::frames::Frames;

/// How long the client has to take the response and to end its side.
const LINGER: Duration = Duration::from_secs(2);

/// A connection to a client or a backend.
pub(super) struct Wire<S> {
    inner: S,
    /// Present for HTTP/2.
    frames: Option<Frames>,
    /// Whether it reads and drops what comes after the shutdown, until the other side ends too.
    lingers: bool,
    /// The end of [`LINGER`], when this side is shut down.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Wire<S> {
    pub(super) fn to_client(inner: S, frames: Option<Frames>) -> Self {
        Self { inner, frames, lingers: true, end: None }
    }

    pub(super) fn to_backend(inner: S, frames: Frames) -> Self {
        Self { inner, frames: Some(frames), lingers: false, end: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(frames) = &mut this.frames else { return Pin::new(&mut this.inner).poll_read(cx, buf) };
        let (before, room) = (buf.filled().len(), buf.remaining());
        match frames.wanted() {
            None => ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?,
            Some(wanted) => {
                let mut part = ReadBuf::new(buf.initialize_unfilled_to(wanted.min(room)));
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
                let read = part.filled().len();
                buf.advance(read);
            }
        }
        let read = buf.filled().get(before..).unwrap_or_default();
        Poll::Ready(frames.read(read, read.as_ptr().addr() + room))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.end.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        }
        if !this.lingers {
            return Poll::Ready(Ok(()));
        }
        let end = this.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        let mut unwanted = [0; 4096];
        while end.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut unwanted);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
}
