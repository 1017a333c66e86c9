//! A connection to a backend that can be ended while a call is under way. hyper's client cannot do that: before it
//! closes a connection, it waits until the backend has taken what was written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use hyper::http::Extensions;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Handle that ends a call's connection.
#[derive(Clone, Default)]
pub(super) struct BackendConnection(Arc<Ending>);

#[derive(Default)]
struct Ending {
    is_due: AtomicBool,
    /// The connection's task.
    task: AtomicWaker,
}

impl BackendConnection {
    /// Ends the connection that a call got, whatever is in flight on it. Without one there is nothing to end.
    pub(super) fn end(captured: &CaptureConnection) {
        let mut found = Extensions::new();
        if let Some(connected) = &*captured.connection_metadata() {
            connected.get_extras(&mut found);
        }
        if let Some(Self(ending)) = found.get() {
            ending.is_due.store(true, Ordering::Release);
            ending.task.wake();
        }
    }

    /// Whether the connection may continue. Wakes the task of `cx` once that changes.
    fn goes_on(&self, cx: &Context<'_>) -> bool {
        self.0.task.register(cx.waker());
        !self.0.is_due.load(Ordering::Acquire)
    }
}

/// A connection to a backend, which [`BackendConnection`] ends. It ends on the next write or flush: hyper's client
/// does one of them whenever its task runs.
pub(super) struct BackendStream {
    inner: TokioIo<TcpStream>,
    connection: BackendConnection,
}

impl BackendStream {
    pub(super) fn new(inner: TokioIo<TcpStream>) -> Self {
        Self { inner, connection: BackendConnection::default() }
    }

    /// An error if the connection must end. What the backend has not taken is dropped, and a reset signals it.
    fn goes_on(&self, cx: &Context<'_>) -> io::Result<()> {
        if self.connection.goes_on(cx) {
            return Ok(());
        }
        self.inner.inner().set_zero_linger()?;
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

impl Connection for BackendStream {
    fn connected(&self) -> Connected {
        self.inner.connected().extra(self.connection.clone())
    }
}

impl Read for BackendStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl Write for BackendStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.goes_on(cx)?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.goes_on(cx)?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.goes_on(cx)?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
}
