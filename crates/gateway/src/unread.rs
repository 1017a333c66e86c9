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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use hyper::body::Bytes;
use parking_lot::Mutex;

/// What h2 reads into, unless a frame is larger.
const BUFFER: usize = 8 * 1024;
/// So many pieces, which h2 keeps in a list, need as much memory as a buffer.
const IN_A_BUFFER: usize = 32;
/// How many pieces of one body may be on the way to its backend. h2 bounds their bytes, but needs another 370 bytes or
/// so for each.
const MOST_PIECES: usize = 64;

/// A buffer, or as much of a larger one.
#[derive(Debug)]
struct Buffer {
    /// The address behind the last byte that was read into it.
    end: usize,
    pieces: usize,
    /// After how many sweeps its last piece came.
    sweep: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By their addresses.
    buffers: BTreeMap<usize, Buffer>,
    /// The one that is being read into.
    current: usize,
    /// Bodies that do not wait for their next piece, so some may be unread.
    unread: usize,
    sweeps: u64,
}

/// The pieces that a connection keeps.
#[derive(Debug, Default)]
pub(super) struct Unread(Mutex<State>);

impl Unread {
    /// Notes into which addresses the connection was read. A buffer is not read into again while it has a piece.
    pub(super) fn read(&self, bytes: &[u8]) {
        let range = bytes.as_ptr_range();
        let (start, end) = (range.start.addr(), range.end.addr());
        let mut state = self.0.lock();
        let State { buffers, current, .. } = &mut *state;
        match buffers.get_mut(current) {
            Some(buffer) if buffer.end == start && start - *current < BUFFER => buffer.end = end,
            _ => {
                buffers.retain(|other, buffer| buffer.pieces > 0 && (buffer.end <= start || end <= *other));
                *current = start;
                buffers.insert(start, Buffer { end, pieces: 0, sweep: 0 });
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
        buffers.len() + buffers.values().map(|buffer| buffer.pieces).sum::<usize>() / IN_A_BUFFER
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
        Pieces { all: Arc::clone(self), on_the_way: Arc::default(), is_waiting: false }
    }

    fn taken(&self, piece: &Bytes) {
        let last = piece.as_ptr().addr() + piece.len() - 1;
        let mut state = self.0.lock();
        let State { buffers, current, .. } = &mut *state;
        if let Some((start, buffer)) = buffers.range_mut(..=last).next_back()
            && last < buffer.end
        {
            buffer.pieces = buffer.pieces.saturating_sub(1);
            let (start, is_empty) = (*start, buffer.pieces == 0);
            if is_empty && start != *current {
                buffers.remove(&start);
            }
        }
    }
}

/// Copies a piece, unless it has a buffer for itself.
pub(super) fn without_buffer(piece: Bytes) -> Bytes {
    if piece.len() < BUFFER { Bytes::copy_from_slice(&piece) } else { piece }
}

/// The pieces of one body, which lasts until this is dropped.
#[derive(Debug)]
pub(super) struct Pieces {
    all: Arc<Unread>,
    on_the_way: Arc<OnTheWay>,
    /// Whether it waits for its next piece.
    is_waiting: bool,
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

    /// Takes a piece, which is on the way until it is dropped.
    pub(super) fn take(&mut self, piece: Bytes) -> Bytes {
        self.waits(false);
        if piece.is_empty() {
            return piece;
        }
        self.all.taken(&piece);
        self.on_the_way.number.fetch_add(1, Ordering::AcqRel);
        Bytes::from_owner(Piece { bytes: without_buffer(piece), on_the_way: Arc::clone(&self.on_the_way) })
    }

    /// Notes whether the body waits for its next piece.
    pub(super) fn waits(&mut self, is_waiting: bool) {
        match (self.is_waiting, is_waiting) {
            (false, true) => self.all.0.lock().unread -= 1,
            (true, false) => self.all.0.lock().unread += 1,
            _ => {}
        }
        self.is_waiting = is_waiting;
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.waits(true);
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

    /// Reads buffers of one piece each. Returns these, and how much is kept then.
    fn receive(all: &Unread, pieces: usize) -> (Vec<Bytes>, usize) {
        let mut kept = 0;
        let buffer = |_| {
            let bytes = Bytes::from(vec![b'x'; 100]);
            all.read(&bytes);
            kept = all.received();
            bytes.slice(10..11)
        };
        ((0..pieces).map(buffer).collect(), kept)
    }

    fn kept(all: &Unread) -> usize {
        all.0.lock().buffers.values().filter(|buffer| buffer.pieces > 0).count()
    }

    #[test]
    fn a_buffer_counts_while_it_has_a_piece() {
        let all = Arc::new(Unread::default());
        let mut body = all.body();
        let buffer = Bytes::from(vec![b'x'; 100]);
        all.read(&buffer[..50]);
        assert_eq!([all.received(), all.received()], [1, 1]);
        all.read(&buffer[50..]);
        assert_eq!(all.received(), 1, "it is the same one");
        let (others, number) = receive(&all, 3);
        assert_eq!(number, 4);
        for (piece, left) in [(buffer.slice(..10), 4), (buffer.slice(10..50), 4), (buffer.slice(60..), 3)] {
            body.take(piece);
            assert_eq!(kept(&all), left);
        }
        body.take(Bytes::new());
        body.take(Bytes::from_static(b"from elsewhere"));
        assert_eq!(kept(&all), 3);
        others.into_iter().for_each(|piece| drop(body.take(piece)));
        assert_eq!(kept(&all), 0);
    }

    #[test]
    fn a_larger_buffer_and_many_pieces_count_for_more() {
        let all = Unread::default();
        let large = vec![b'x'; 2 * BUFFER];
        let number = large.chunks(BUFFER).map(|read| {
            all.read(read);
            all.received()
        });
        assert_eq!(number.last(), Some(2));
        assert_eq!((0..IN_A_BUFFER).map(|_| all.received()).last(), Some(3));
    }

    #[test]
    fn a_buffer_that_is_read_into_again_had_no_pieces_left() {
        let all = Unread::default();
        let [first, second] = [(); 2].map(|()| Bytes::from(vec![b'x'; 100]));
        for buffer in [&first, &second] {
            all.read(buffer);
            all.received();
        }
        all.read(&first[20..30]);
        assert_eq!(kept(&all), 1);
    }

    #[test]
    fn only_small_pieces_are_copied() {
        let mut body = Arc::<Unread>::default().body();
        for (size, is_copied) in [(1, true), (BUFFER - 1, true), (BUFFER, false)] {
            let piece = Bytes::from(vec![b'x'; size]);
            let taken = body.take(piece.clone());
            assert_eq!((taken == piece, taken.as_ptr() != piece.as_ptr()), (true, is_copied), "{size}");
        }
    }

    #[test]
    fn so_many_pieces_of_a_body_are_on_the_way() {
        let mut body = Arc::<Unread>::default().body();
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
        let [mut one, other] = [all.body(), all.body()];
        let _first = receive(&all, 10);
        one.waits(true);
        all.sweep();
        all.sweep();
        assert_eq!(kept(&all), 10, "they may be the other's");
        drop(other);
        let _second = receive(&all, 2);
        all.sweep();
        assert_eq!(kept(&all), 2, "only these two may have come since the last sweep");
        one.take(Bytes::new());
        all.sweep();
        assert_eq!(kept(&all), 2, "they may be in the queue behind the one that was taken");
        one.waits(true);
        all.sweep();
        assert_eq!(kept(&all), 1, "the last one is in the current buffer");
    }
}
