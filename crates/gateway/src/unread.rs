//! The pieces of bodies that a client's HTTP/2 connection keeps in memory before they are on the way to a backend.
//!
//! A piece keeps the whole buffer of 8 KiB that it was read into. Whoever sends a byte to an upload that its backend
//! does not read, then 8 KiB to another upload, and so on, keeps 8,192 times what the window of HTTP/2 allows. h2
//! bounds how many small pieces wait, but forgets one of them for each 255 bytes that come in large ones.
//!
//! So a connection counts the buffers that have pieces, and ends when there are many. A piece that is taken tells by
//! its address in which buffer it was. hyper does not tell when it drops the pieces of a body that nobody wants any
//! more, and those of a WebSocket have no address: the buffers of these count until the connection reads into them
//! again, or until a [sweep](Unread::sweep). A piece that is on the way to its backend keeps nothing but itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    /// Bodies that do not wait for their next piece, so some may be unread.
    unread: usize,
    sweeps: u64,
}

impl State {
    /// How much memory the connection keeps, in buffers of the usual size.
    fn kept(&self) -> usize {
        let size = |(start, buffer): (&usize, &Buffer)| (buffer.limit - start).saturating_sub(FRAME_HEAD);
        let buffers: usize = self.buffers.iter().map(|buffer| size(buffer).div_ceil(BUFFER)).sum();
        buffers + self.buffers.values().map(|buffer| buffer.pieces).sum::<usize>() / IN_A_BUFFER
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
        state.kept()
    }

    /// Forgets pieces that came before the last sweep, if every body waits for its next one: then these were taken or
    /// dropped. Called once a second.
    pub(super) fn sweep(&self) {
        let mut state = self.0.lock();
        let State { buffers, current, unread, sweeps } = &mut *state;
        if *unread == 0 {
            buffers.retain(|start, buffer| start == current || buffer.sweep == *sweeps);
        }
        *sweeps += 1;
    }

    /// The pieces of a body that may have some. Called as soon as its request is seen.
    pub(super) fn body(self: &Arc<Self>) -> Pieces {
        self.0.lock().unread += 1;
        let (is_waiting, reader) = (AtomicBool::new(false), AtomicWaker::new());
        Pieces { body: Arc::new(Body { all: Arc::clone(self), is_waiting, reader }), on_the_way: Arc::default() }
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
    /// Whether nothing is unread. Changed only while `all` is locked.
    is_waiting: AtomicBool,
    reader: AtomicWaker,
}

impl Body {
    fn waits(&self, is_waiting: bool) {
        let mut state = self.all.0.lock();
        match (self.is_waiting.swap(is_waiting, Ordering::Relaxed), is_waiting) {
            (false, true) => state.unread -= 1,
            (true, false) => state.unread += 1,
            _ => {}
        }
    }
}

impl Wake for Body {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.waits(false);
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
        let is_full = || self.on_the_way.number.load(Ordering::Acquire) >= MOST_PIECES;
        if is_full() {
            self.on_the_way.room.register(cx.waker());
            // One may have left before the waker was registered. Any that leaves from now on wakes this task.
            if is_full() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Polls the body. While that returns `Pending` and hyper has no piece, nothing is unread.
    pub(super) fn poll<T>(&self, cx: &Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        self.body.reader.register(cx.waker());
        self.body.waits(true); // before hyper has the waker, which may be called at once
        let polled = poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.body))));
        if polled.is_ready() {
            self.body.waits(false);
        }
        polled
    }

    /// Takes a piece, which is on the way until it is dropped. It is copied unless it fills most of its buffer.
    pub(super) fn take(&self, piece: Bytes) -> Bytes {
        let buffer = self.body.all.taken(&piece).unwrap_or(BUFFER);
        if piece.is_empty() {
            return Bytes::new(); // an empty one keeps its buffer too
        }
        let bytes = if piece.len() < buffer / 4 * 3 { Bytes::copy_from_slice(&piece) } else { piece };
        self.on_the_way.number.fetch_add(1, Ordering::AcqRel);
        Bytes::from_owner(Piece { bytes, on_the_way: Arc::clone(&self.on_the_way) })
    }

    /// Notes that the body has ended.
    pub(super) fn end(&self) {
        self.body.waits(true);
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug, Default)]
struct OnTheWay {
    number: AtomicUsize,
    /// Woken when one has left.
    room: AtomicWaker,
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
mod tests {
    use futures::task::noop_waker_ref;

    use super::*;

    /// A buffer of this size.
    fn mk_buffer(size: usize) -> Bytes {
        Bytes::from(vec![b'x'; size])
    }

    /// Reads these bytes, which are a part of the buffer.
    fn read(all: &Unread, buffer: &Bytes, from: usize, until: usize) {
        let part = &buffer[from..until];
        all.read(part, buffer.as_ptr().addr() + buffer.len(), 0);
    }

    /// Reads buffers of one piece each. Returns these, and how much is kept then.
    fn receive(all: &Unread, pieces: usize) -> (Vec<Bytes>, usize) {
        let mut kept = 0;
        let buffer = |_| {
            let bytes = mk_buffer(100);
            read(all, &bytes, 0, 100);
            kept = all.received();
            bytes.slice(10..11)
        };
        ((0..pieces).map(buffer).collect(), kept)
    }

    fn kept(all: &Unread) -> usize {
        all.0.lock().buffers.values().filter(|buffer| buffer.pieces > 0).count()
    }

    /// Polls the body in vain. Returns the waker that hyper has then.
    fn wait(body: &Pieces) -> Waker {
        let mut waker = None;
        let polled = body.poll(&Context::from_waker(noop_waker_ref()), |cx| {
            waker = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        waker.unwrap()
    }

    #[test]
    fn a_buffer_counts_while_it_has_a_piece() {
        let all = Arc::new(Unread::default());
        let body = all.body();
        let buffer = mk_buffer(100);
        read(&all, &buffer, 0, 50);
        assert_eq!([all.received(), all.received()], [1, 1]);
        read(&all, &buffer, 50, 100);
        assert_eq!([all.received(), all.received()], [1, 1], "it is the same one");
        let (others, number) = receive(&all, 3);
        assert_eq!(number, 4);
        let empty = buffer.slice(100..100);
        for (piece, left) in [(buffer.slice(..10), 4), (buffer.slice(10..50), 4), (empty, 4), (buffer.slice(60..), 3)] {
            body.take(piece);
            assert_eq!(kept(&all), left);
        }
        body.take(Bytes::from_static(b"from elsewhere"));
        assert_eq!(kept(&all), 3);
        others.into_iter().for_each(|piece| drop(body.take(piece)));
        assert_eq!(kept(&all), 0);
    }

    #[test]
    fn larger_buffers_and_many_pieces_count_for_more() {
        let all = Unread::default();
        for (size, sum) in [(BUFFER, 1), (2 * BUFFER + FRAME_HEAD, 3), (3 * BUFFER, 6)] {
            let buffer = mk_buffer(size);
            read(&all, &buffer, 0, 20);
            assert_eq!(all.received(), sum, "{size}");
            std::mem::forget(buffer); // as if h2 kept it
        }
        assert_eq!((0..IN_A_BUFFER).map(|_| all.received()).last(), Some(7));
    }

    #[test]
    fn memory_that_is_read_into_again_had_no_pieces_left() {
        let all = Unread::default();
        let [first, second] = [(); 2].map(|()| mk_buffer(100));
        for buffer in [&first, &second] {
            read(&all, buffer, 0, 50);
            all.received();
        }
        // The begin of the frame was moved there.
        all.read(&first[90..95], first.as_ptr().addr() + 100, 80);
        assert_eq!(kept(&all), 1);
    }

    #[test]
    fn pieces_are_copied_unless_they_fill_their_buffers() {
        let all = Arc::<Unread>::default();
        let body = all.body();
        for (size, piece, is_copied) in [(100, 100, false), (100, 74, true), (100, 75, false), (BUFFER, 1, true)] {
            let buffer = mk_buffer(size);
            read(&all, &buffer, 0, size);
            all.received();
            let piece = buffer.slice(..piece);
            let taken = body.take(piece.clone());
            assert_eq!((taken == piece, taken.as_ptr() != piece.as_ptr()), (true, is_copied), "{size} {piece:?}");
        }
        assert_ne!(body.take(Bytes::from_static(b"x")).as_ptr(), b"x".as_ptr(), "HTTP/1.1 has buffers as well");
    }

    #[test]
    fn so_many_pieces_of_a_body_are_on_the_way() {
        let body = Arc::<Unread>::default().body();
        let cx = Context::from_waker(noop_waker_ref());
        let mut on_the_way: Vec<_> = (0..MOST_PIECES)
            .map(|_| {
                assert!(body.poll_room(&cx).is_ready());
                body.take(Bytes::from_static(b"x"))
            })
            .collect();
        assert!(body.poll_room(&cx).is_pending());
        on_the_way.pop();
        assert!(body.poll_room(&cx).is_ready());
    }

    #[test]
    fn dropped_pieces_are_forgotten_once_every_body_waits() {
        let all = Arc::new(Unread::default());
        let [one, other] = [all.body(), all.body()];
        let _first = receive(&all, 10);
        let waker = wait(&one);
        all.sweep();
        all.sweep();
        assert_eq!(kept(&all), 10, "they may be the other's");
        drop(other);
        let _second = receive(&all, 2);
        all.sweep();
        assert_eq!(kept(&all), 2, "only these two may have come since the last sweep");
        waker.wake_by_ref();
        all.sweep();
        all.sweep();
        assert_eq!(kept(&all), 2, "they are the first one's, whose backend does not ask for them");
        assert!(one.poll(&Context::from_waker(noop_waker_ref()), |_| Poll::Ready(())).is_ready());
        all.sweep();
        assert_eq!(kept(&all), 2, "there may be another one behind the one that was taken");
        wait(&one);
        all.sweep();
        assert_eq!(kept(&all), 1, "the last one is in the current buffer");
    }
}
