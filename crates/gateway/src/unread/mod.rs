//! The pieces of bodies that a client's HTTP/2 connection keeps in memory before they are on the way to a backend.
//!
//! A piece keeps the whole buffer of 8 KiB that it was read into. Whoever sends a byte to an upload that its backend
//! does not read, then 8 KiB to another upload, and so on, keeps 8,192 times what the window of HTTP/2 allows. h2
//! bounds how many small pieces wait, but forgets one of them for each 255 bytes that come in large ones.
//!
//! So a connection counts the buffers that have pieces, and ends when there are many. A piece that is taken tells by
//! its address in which buffer it was. hyper does not tell when it drops the pieces of a body that nobody wants any
//! more: their buffers count until the connection reads into them again, or until a [sweep](Unread::sweep). A piece
//! that is on the way to its backend keeps nothing but itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;
use hyper::body::Bytes;
use parking_lot::Mutex;

/// The header of a frame, behind which h2 has the piece in the same buffer (RFC 9113 section 4.1).
pub(super) const FRAME_HEAD: usize = 9;
/// What h2 reads into, unless a frame is larger.
const BUFFER: usize = 8 * 1024;
/// So many pieces, which h2 keeps in a list, need as much memory as a buffer.
const IN_A_BUFFER: usize = 32;
/// How many pieces of one body may be on the way to its backend. h2 bounds their bytes, but needs another 370 bytes or
/// so for each.
const MOST_PIECES: usize = 64;

/// What h2 reads into. Addresses are as large as the memory that they are of.
#[derive(Debug)]
struct Buffer {
    /// The address behind the last byte that was read into it.
    end: usize,
    /// The address behind its last byte.
    limit: usize,
    pieces: usize,
    /// After how many sweeps its last piece came.
    sweep: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By the address of its first byte.
    buffers: BTreeMap<usize, Buffer>,
    /// The one that is being read into.
    current: usize,
    /// How many pieces there were at most. h2's list does not shrink.
    most_pieces: usize,
    /// Bodies that do not wait for their next piece, so some may be unread.
    unread: usize,
    sweeps: u64,
}

impl State {
    /// How much memory the connection keeps, in buffers of the usual size.
    fn kept(&self) -> usize {
        let size = |(start, buffer): (&usize, &Buffer)| (buffer.limit - start).saturating_sub(FRAME_HEAD);
        let buffers: usize = self.buffers.iter().map(|buffer| size(buffer).div_ceil(BUFFER)).sum();
        buffers + self.most_pieces / IN_A_BUFFER
    }
}

/// The pieces that a connection keeps.
#[derive(Debug, Default)]
pub(super) struct Unread(Mutex<State>);

impl Unread {
    /// Notes into which memory the connection was read, whose buffer ends at `limit`. Before it are `begun` bytes of
    /// the same frame. While a buffer has a piece, nothing is read into its memory again.
    pub(super) fn read(&self, bytes: &[u8], limit: usize, begun: usize) {
        let range = bytes.as_ptr_range();
        let (start, end) = (range.start.addr(), range.end.addr());
        let mut state = self.0.lock();
        let State { buffers, current, .. } = &mut *state;
        match buffers.get_mut(current) {
            Some(buffer) if (buffer.end, buffer.limit) == (start, limit) => buffer.end = end,
            _ => {
                let start = start.saturating_sub(begun);
                buffers.retain(|other, buffer| buffer.pieces > 0 && (buffer.limit <= start || limit <= *other));
                *current = start;
                buffers.insert(start, Buffer { end, limit, pieces: 0, sweep: 0 });
            }
        }
    }

    /// Notes that a piece ends in what was read last. Returns how much the connection keeps, in buffers.
    pub(super) fn received(&self) -> usize {
        let mut state = self.0.lock();
        let State { buffers, current, sweeps, .. } = &mut *state;
        if let Some(buffer) = buffers.get_mut(current) {
            buffer.pieces += 1;
            buffer.sweep = *sweeps;
        }
        let pieces = buffers.values().map(|buffer| buffer.pieces).sum();
        state.most_pieces = state.most_pieces.max(pieces);
        state.kept()
    }

    /// Forgets pieces that came before the last sweep, if every body waits for its next one: then these were taken or
    /// dropped. Called once a second.
    pub(super) fn sweep(&self) {
        let mut state = self.0.lock();
        let State { buffers, current, unread, sweeps, .. } = &mut *state;
        if *unread == 0 {
            buffers.retain(|start, buffer| start == current || buffer.sweep == *sweeps);
        }
        *sweeps += 1;
    }

    /// The pieces of a body that may have some. Called as soon as its request is seen.
    pub(super) fn body(self: &Arc<Self>) -> Pieces {
        self.0.lock().unread += 1;
        let (all, progress, reader) = (Arc::clone(self), AtomicU8::new(UNREAD), AtomicWaker::new());
        Pieces { body: Arc::new(Body { all, progress, reader }), on_the_way: Arc::default() }
    }

    /// Notes that a piece was taken. Returns the size of its buffer, if that is known.
    fn taken(&self, piece: &Bytes) -> Option<usize> {
        let last = (piece.as_ptr().addr() + piece.len()).saturating_sub(1);
        let mut state = self.0.lock();
        let State { buffers, current, .. } = &mut *state;
        let (start, buffer) = buffers.range_mut(..=last).next_back().filter(|(_, buffer)| last < buffer.limit)?;
        buffer.pieces = buffer.pieces.saturating_sub(1);
        let (start, size, is_empty) = (*start, buffer.limit - start, buffer.pieces == 0);
        if is_empty && start != *current {
            buffers.remove(&start);
        }
        Some(size)
    }
}

/// A body, whose waker notices when hyper has a piece.
#[derive(Debug)]
struct Body {
    all: Arc<Unread>,
    /// One of the constants. Changed only while `all` is locked.
    progress: AtomicU8,
    reader: AtomicWaker,
}

/// Pieces may be unread.
const UNREAD: u8 = 0;
/// The same, but hyper has called the waker since the last poll began, or the body is not being polled.
const WOKEN: u8 = 1;
/// Nothing is unread until hyper calls the waker.
const WAITING: u8 = 2;
/// hyper may still have the waker.
const OVER: u8 = 3;

impl Body {
    fn set(&self, change: impl FnOnce(u8) -> u8) {
        let mut state = self.all.0.lock();
        let before = self.progress.load(Ordering::Relaxed);
        let after = if before == OVER { OVER } else { change(before) };
        self.progress.store(after, Ordering::Relaxed);
        match (before < WAITING, after < WAITING) {
            (true, false) => state.unread -= 1,
            (false, true) => state.unread += 1,
            _ => {}
        }
    }
}

impl Wake for Body {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set(|_| WOKEN);
        self.reader.wake();
    }
}

/// The pieces of one body, which lasts until this is dropped.
#[derive(Debug)]
pub(super) struct Pieces {
    body: Arc<Body>,
    on_the_way: Arc<OnTheWay>,
}

impl Pieces {
    /// Ready when another piece may be on the way.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        self.on_the_way.poll_room(cx)
    }

    /// Polls the body. While that returns `Pending` and hyper has no piece, nothing is unread.
    pub(super) fn poll<T>(&self, cx: &Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        self.body.reader.register(cx.waker());
        self.body.set(|before| if before == WOKEN { UNREAD } else { before });
        let polled = poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.body))));
        let is_pending = polled.is_pending();
        // The waker may have been called before the poll ended.
        self.body.set(|before| if is_pending && before != WOKEN { WAITING } else { WOKEN });
        polled
    }

    /// Takes a piece, which is on the way until it is dropped. It is copied unless it fills most of its buffer.
    pub(super) fn take(&self, piece: Bytes) -> Bytes {
        let buffer = self.body.all.taken(&piece).unwrap_or(BUFFER);
        if piece.is_empty() {
            return Bytes::new(); // an empty one keeps its buffer too
        }
        let bytes = if piece.len() < buffer / 4 * 3 { Bytes::copy_from_slice(&piece) } else { piece };
        self.on_the_way.add(bytes)
    }

    pub(super) fn on_the_way(&self) -> Arc<OnTheWay> {
        Arc::clone(&self.on_the_way)
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.body.set(|_| OVER);
    }
}

/// Pieces of one body on the way to its backend.
#[derive(Debug, Default)]
pub(super) struct OnTheWay {
    number: AtomicUsize,
    /// Woken when one has left.
    room: AtomicWaker,
}

impl OnTheWay {
    /// Ready when another piece may be on the way.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let is_full = || self.number.load(Ordering::Acquire) >= MOST_PIECES;
        if is_full() {
            self.room.register(cx.waker());
            // One may have left before the waker was registered. Any that leaves from now on wakes this task.
            if is_full() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// A piece that is one of them until it is dropped.
    pub(super) fn add(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.number.fetch_add(1, Ordering::AcqRel);
        Bytes::from_owner(Piece { bytes, on_the_way: Arc::clone(self) })
    }
}

/// A piece that has not left for the backend's socket.
struct Piece {
    bytes: Bytes,
    on_the_way: Arc<OnTheWay>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.on_the_way.number.fetch_sub(1, Ordering::AcqRel);
        self.on_the_way.room.wake();
    }
}

#[cfg(test)]
mod tests;
