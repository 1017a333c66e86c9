//! Counts the heads of an HTTP/2 client that come in several frames.
//!
//! h2's HPACK table keeps the buffer of a whole head for as long as it keeps a path or a host name from it, some 110
//! heads of a connection. One frame has at most 16 KiB; a head that goes on in CONTINUATION frames may have six times
//! as much, also if it is refused then. Few clients ever send one, so a connection ends after some of them.

use std::io;

use tokio_util::sync::CancellationToken;

/// How many heads of several frames a connection may have before it ends gracefully; after twice as many it is cut.
const MOST: usize = 8;

/// The client's preface, before the first frame (RFC 9113 section 3.4).
const PREFACE: usize = 24;
const FRAME_HEAD: usize = 9;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// What was read of the frames of a connection.
#[derive(Debug)]
pub(super) struct SplitHeads {
    /// How many bytes follow that are not the head of a frame.
    skipped: usize,
    head: [u8; FRAME_HEAD],
    known: usize,
    count: usize,
    too_many: CancellationToken,
}

impl SplitHeads {
    /// Cancels the token when the connection must end.
    pub(super) fn new(too_many: CancellationToken) -> Self {
        Self { skipped: PREFACE, head: [0; FRAME_HEAD], known: 0, count: 0, too_many }
    }

    /// Takes what was read from the client.
    ///
    /// # Errors
    /// The client goes on sending such heads, so the connection is cut.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            let missing = (FRAME_HEAD - self.known).min(bytes.len() - skipped);
            let (head, rest) = bytes.split_at(skipped).1.split_at(missing);
            for (place, byte) in self.head.iter_mut().skip(self.known).zip(head) {
                *place = *byte;
            }
            self.known += missing;
            bytes = rest;
            if self.known == FRAME_HEAD {
                self.known = 0;
                let [a, b, c, kind, flags, ..] = self.head;
                self.skipped = u32::from_be_bytes([0, a, b, c]) as usize;
                self.count += usize::from(kind == CONTINUATION && flags & END_HEADERS != 0);
            }
        }
        if self.count >= MOST {
            self.too_many.cancel();
        }
        match self.count > 2 * MOST {
            true => Err(io::Error::other("too many heads in several frames")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], &vec![CONTINUATION; payload]].concat()
    }

    #[test]
    fn heads_of_several_frames_are_counted_however_they_are_read() {
        let mut bytes = vec![CONTINUATION; PREFACE];
        for _ in 0..5 {
            bytes.extend(frame(4, 0, 0)); // SETTINGS
            bytes.extend(frame(1, 0, 16_384)); // HEADERS
            bytes.extend(frame(CONTINUATION, 0, 100));
            bytes.extend(frame(CONTINUATION, END_HEADERS, 1));
            bytes.extend(frame(1, END_HEADERS, 9));
            bytes.extend(frame(0, END_HEADERS, 300)); // DATA
        }
        for piece in [1, 2, 9, 24, 25, 4_096, bytes.len()] {
            let mut heads = SplitHeads::new(CancellationToken::new());
            for read in bytes.chunks(piece) {
                heads.read(read).unwrap();
            }
            assert_eq!(heads.count, 5, "in pieces of {piece}");
        }
    }

    #[test]
    fn after_some_the_connection_ends_and_after_more_it_is_cut() {
        let too_many = CancellationToken::new();
        let mut heads = SplitHeads::new(too_many.clone());
        heads.read(&[0; PREFACE]).unwrap();
        let head = [frame(1, 0, 10), frame(CONTINUATION, END_HEADERS, 10)].concat();
        for n in 1..=2 * MOST {
            heads.read(&head).unwrap();
            assert_eq!(too_many.is_cancelled(), n >= MOST, "{n}");
        }
        assert!(heads.read(&head).is_err());
    }
}
