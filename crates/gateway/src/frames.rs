//! Reads the headers of HTTP/2's frames: counts large heads, those that come in several frames, and the pieces of
//! bodies that a client sends ([`Unread`]).
//!
//! h2's HPACK table keeps the buffers of a whole head for as long as it keeps a path or a host name from it: some 110
//! heads of a connection. A frame has at most 16 KiB, which Huffman's code expands to 52 KiB at most; a head that
//! continues in CONTINUATION frames may have six frames, even if it is refused then. Honest peers send few such heads,
//! because the table has what heads repeat. So a connection ends after some of them.

use std::io;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::CancellationToken;

use super::GatewayStats;
use super::unread::{FRAME_HEAD, Unread};

/// How many heads of several frames end a connection gracefully; after twice as many it is cut.
const MOST_SPLIT: usize = 2;
/// The same for heads of more than [`LARGE`].
const MOST_LARGE: usize = 8;
/// In bytes, as HPACK encodes them.
const LARGE: usize = 4 * 1024;
/// A client's trailers count as large from this size. h2 keeps them until their body is read, or until the response has
/// ended, and a byte of them may become 200.
const LARGE_TRAILERS: usize = 128;
/// How many buffers with pieces of bodies end a client's connection gracefully. Its 64 streams may have two each.
const MANY_BUFFERS: usize = 128;
/// With more than these it is cut. Each takes 10.5 KB, as measured, because the allocator leaves gaps.
const MOST_BUFFERS: usize = 192;

/// The client's preface, before the first frame (RFC 9113 section 3.4).
const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;
/// The bit before a stream's number, which a receiver ignores (RFC 9113 section 4.1).
const RESERVED: u32 = 1 << 31;

/// How far a connection's frames have been read.
#[derive(Debug)]
pub(super) struct Frames {
    /// How many bytes follow before the next frame's header.
    skipped: usize,
    /// How many bytes of the frame have been read.
    begun: usize,
    head: [u8; FRAME_HEAD],
    known: usize,
    /// How many heads have continued in another frame.
    split: usize,
    large: usize,
    ended: Counter,
    too_many: CancellationToken,
    bodies: Option<Bodies>,
}

/// The pieces of the bodies that a client sends.
#[derive(Debug)]
struct Bodies {
    unread: Arc<Unread>,
    /// The last stream that the client has begun.
    last: u32,
    /// Whether the frame that is being read is a piece.
    is_piece: bool,
    /// How much the connection keeps, in buffers.
    kept: usize,
    ended: Counter,
}

impl Frames {
    /// For a client's connection. The token is cancelled when the connection must end.
    pub(super) fn of_client(stats: &GatewayStats, too_many: &CancellationToken, unread: &Arc<Unread>) -> Self {
        let ended = stats.unread_bodies_ended.clone();
        let unread = Arc::clone(unread);
        let bodies = Bodies { unread, last: 0, is_piece: false, kept: 0, ended };
        let frames = Self::new(PREFACE, stats.large_heads_ended.clone(), too_many.clone());
        Self { bodies: Some(bodies), ..frames }
    }

    /// For a backend's connection. The token is cancelled when no further request may begin.
    pub(super) fn of_backend(too_many: CancellationToken) -> Self {
        Self::new(0, Counter::default(), too_many)
    }

    fn new(skipped: usize, ended: Counter, too_many: CancellationToken) -> Self {
        Self { skipped, begun: 0, head: [0; FRAME_HEAD], known: 0, split: 0, large: 0, ended, too_many, bodies: None }
    }

    /// How many bytes to read of a client at most: its frame or that one's header. With the begin of the next frame
    /// behind it, h2 would let the buffer grow to six times its size.
    pub(super) fn wanted(&self) -> Option<usize> {
        self.bodies.as_ref()?;
        Some(if self.skipped == 0 { FRAME_HEAD - self.known } else { self.skipped })
    }

    /// Reads the frames in these bytes, whose buffer ends at this address.
    ///
    /// # Errors
    /// The peer keeps sending such heads, or such pieces, so the connection is cut.
    pub(super) fn read(&mut self, mut bytes: &[u8], limit: usize) -> io::Result<()> {
        if let Some(bodies) = &mut self.bodies {
            bodies.unread.read(bytes, limit, self.begun);
        }
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            self.begun += skipped;
            self.end_frame();
            let missing = (FRAME_HEAD - self.known).min(bytes.len() - skipped);
            let (head, rest) = bytes.split_at(skipped).1.split_at(missing);
            for (place, byte) in self.head.iter_mut().skip(self.known).zip(head) {
                *place = *byte;
            }
            self.known += missing;
            self.begun += missing;
            bytes = rest;
            if self.known == FRAME_HEAD {
                self.known = 0;
                let [a, b, c, kind, flags, stream @ ..] = self.head;
                self.skipped = u32::from_be_bytes([0, a, b, c]) as usize;
                if [HEADERS, PUSH_PROMISE].contains(&kind) {
                    self.split += usize::from(flags & END_HEADERS == 0);
                    let stream = u32::from_be_bytes(stream) & !RESERVED;
                    let is_first = self.bodies.as_mut().is_none_or(|bodies| bodies.begins(stream));
                    self.large += usize::from(self.skipped > if is_first { LARGE } else { LARGE_TRAILERS });
                }
                if let Some(bodies) = &mut self.bodies {
                    // h2 keeps no others.
                    bodies.is_piece = kind == DATA && (self.skipped > 0 || flags & END_STREAM != 0);
                }
                self.end_frame();
            }
        }
        let full = self.bodies.as_ref().filter(|bodies| bodies.kept > MANY_BUFFERS);
        if !self.too_many.is_cancelled()
            && let Some(ended) = self.is_over(1).then_some(&self.ended).or(full.map(|bodies| &bodies.ended))
        {
            ended.inc();
            self.too_many.cancel();
        }
        match full.is_some_and(|bodies| bodies.kept > MOST_BUFFERS) || self.is_over(2) {
            true => Err(io::Error::other("too many large heads, or pieces of bodies that no backend takes")),
            false => Ok(()),
        }
    }

    /// Notes the end of a frame, if there is one.
    fn end_frame(&mut self) {
        if self.skipped == 0 && self.known == 0 {
            self.begun = 0;
            if let Some(bodies) = &mut self.bodies {
                bodies.end_frame();
            }
        }
    }

    /// Whether there are this many times more heads than end a connection.
    fn is_over(&self, times: usize) -> bool {
        self.split >= times * MOST_SPLIT || self.large >= times * MOST_LARGE
    }
}

impl Bodies {
    /// Whether this head begins a stream: each has a higher number than those before (RFC 9113 section 5.1.1).
    fn begins(&mut self, stream: u32) -> bool {
        let is_new = stream > self.last;
        self.last = self.last.max(stream);
        is_new
    }

    /// A piece counts when it is whole: h2 moves the begin of a frame that does not fit to the next buffer.
    fn end_frame(&mut self) {
        if std::mem::take(&mut self.is_piece) {
            self.kept = self.unread.received();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTINUATION: u8 = 9;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], &vec![HEADERS; payload]].concat()
    }

    fn mk_frames() -> Frames {
        Frames::new(PREFACE, Counter::default(), CancellationToken::new())
    }

    #[test]
    fn heads_of_several_frames_are_counted_however_they_are_read() {
        let mut bytes = vec![HEADERS; PREFACE];
        for end in [END_HEADERS, 0, END_HEADERS] {
            bytes.extend(frame(4, 0, 0)); // SETTINGS
            bytes.extend(frame(HEADERS, 0, 16_384));
            bytes.extend(frame(CONTINUATION, 0, 100));
            // h2 forgets a malformed head although its end has not come.
            bytes.extend(frame(CONTINUATION, end, 1));
            bytes.extend(frame(HEADERS, END_HEADERS, 9));
            bytes.extend(frame(0, 0, 300)); // DATA
        }
        for piece in [1, 2, 9, 24, 25, 4_096, bytes.len()] {
            let mut frames = mk_frames();
            for read in bytes.chunks(piece) {
                frames.read(read, 0).unwrap();
            }
            assert_eq!((frames.split, frames.large), (3, 3), "in pieces of {piece}");
        }
    }

    #[test]
    fn after_some_the_connection_ends_and_after_more_it_is_cut() {
        let split = frame(PUSH_PROMISE, 0, 10);
        let large = frame(HEADERS, END_HEADERS, LARGE + 1);
        for (head, most) in [(split, 2), (large, 8)] {
            let mut frames = mk_frames();
            frames.read(&[0; PREFACE], 0).unwrap();
            for n in 1..2 * most {
                frames.read(&head, 0).unwrap();
                assert_eq!(frames.too_many.is_cancelled(), n >= most, "{n}");
            }
            assert!(frames.read(&head, 0).is_err());
            assert_eq!(frames.ended.get(), 1);
        }
        let mut frames = mk_frames();
        frames.read(&[0; PREFACE], 0).unwrap();
        (0..1_000).for_each(|_| frames.read(&frame(HEADERS, END_HEADERS, LARGE), 0).unwrap());
        assert!(!frames.too_many.is_cancelled());
    }

    #[test]
    fn reads_from_a_client_end_with_a_frame() {
        let (stats, too_many) = (GatewayStats::default(), CancellationToken::new());
        let mut frames = Frames::of_client(&stats, &too_many, &Arc::default());
        let frame_of_5 = frame(DATA, 0, 5);
        for bytes in [&[0; PREFACE][..], &frame_of_5, &frame(4, 0, 0), &frame_of_5] {
            let mut left = bytes;
            while !left.is_empty() {
                let wanted = frames.wanted().unwrap();
                assert!((1..=left.len()).contains(&wanted), "{wanted} of {}", left.len());
                // A read may bring less.
                let (read, rest) = left.split_at(wanted.div_ceil(2));
                frames.read(read, read.as_ptr_range().end.addr()).unwrap();
                left = rest;
            }
        }
        assert_eq!(mk_frames().wanted(), None, "a backend's are as long as they come");
    }

    #[test]
    fn trailers_of_a_client_are_large_sooner() {
        let (stats, too_many) = (GatewayStats::default(), CancellationToken::new());
        let mut frames = Frames::of_client(&stats, &too_many, &Arc::default());
        frames.read(&[0; PREFACE], 0).unwrap();
        let head = |stream: u8, payload| {
            let mut head = frame(HEADERS, END_HEADERS, payload);
            head[FRAME_HEAD - 1] = stream;
            head
        };
        for stream in 1..=20 {
            frames.read(&head(stream, LARGE), 0).unwrap();
            frames.read(&head(stream, LARGE_TRAILERS), 0).unwrap();
        }
        assert_eq!(frames.large, 0);
        for n in 1..2 * MOST_LARGE {
            let mut trailers = head(20, LARGE_TRAILERS + 1);
            trailers[FRAME_HEAD - 4] |= 0x80; // ignored by who receives it
            frames.read(&trailers, 0).unwrap();
            assert_eq!(too_many.is_cancelled(), n >= MOST_LARGE, "{n}");
        }
        assert!(frames.read(&head(20, LARGE_TRAILERS + 1), 0).is_err());
        assert_eq!(stats.large_heads_ended.get(), 1);
    }
}
