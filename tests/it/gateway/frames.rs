//! HTTP/2 frame by frame, for what no library sends.

use std::io::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use test_kit::gateway::ANY;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame that was read.
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// What a backend does after a frame.
pub(super) enum Act {
    Send(Vec<u8>),
    /// Sends, and closes the connection.
    Close(Vec<u8>),
}

/// What a backend does with a stream.
pub(super) type Treat = fn(u32) -> Act;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field that enters no table (RFC 7541 section 6.2.2).
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    [&[0], &string(name)[..], &string(value)].concat()
}

/// Its length in seven bits, and in as many more as it needs (RFC 7541 section 5.1).
fn string(text: &str) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(text.len().min(127)).unwrap()];
    if let Some(mut rest) = text.len().checked_sub(127) {
        while rest > 127 {
            bytes.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        bytes.push(u8::try_from(rest).unwrap());
    }
    [&bytes, text.as_bytes()].concat()
}

/// A head in as many frames as it needs.
pub(super) fn head_of(stream: u32, fields: &[u8]) -> Vec<u8> {
    let pieces = fields.chunks(16_384);
    let last = pieces.len() - 1;
    let frame = |(index, piece): (usize, &[u8])| {
        let kind = if index == 0 { HEADERS } else { CONTINUATION };
        frame(kind, if index == last { END_HEADERS } else { 0 }, stream, piece)
    };
    pieces.enumerate().flat_map(frame).collect()
}

pub(super) fn head(stream: u32, status: &str) -> Vec<u8> {
    head_of(stream, &field(":status", status))
}

pub(super) fn answer(stream: u32, text: &str) -> Vec<u8> {
    [head(stream, "200"), frame(DATA, END_STREAM, stream, text.as_bytes())].concat()
}

pub(super) fn reset(stream: u32, reason: h2::Reason) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &u32::from(reason).to_be_bytes())
}

/// Says that later streams than this one are not processed.
pub(super) fn go_away(last: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), u32::from(h2::Reason::NO_ERROR).to_be_bytes()].concat())
}

/// Starts a backend, which looks at each HEADERS and DATA, and at how many requests there were. Gives that number too.
pub(super) async fn start(
    act: impl Fn(&Frame, usize) -> Act + Clone + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let serving = serve(tcp, Arc::clone(&count), act.clone());
            // It fails if the gateway leaves, which is part of the tests.
            tokio::spawn(async move { serving.await.ok() });
        }
    });
    (address, requests)
}

async fn serve(mut tcp: TcpStream, count: Arc<AtomicUsize>, act: impl Fn(&Frame, usize) -> Act) -> Result<()> {
    tcp.set_nodelay(true)?;
    tcp.read_exact(&mut [0; PREFACE.len()]).await?;
    tcp.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let frame = read(&mut tcp).await?;
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => tcp.write_all(&self::frame(SETTINGS, ACK, 0, &[])).await?,
            HEADERS | DATA => {
                let is_request = usize::from(frame.kind == HEADERS);
                let requests = count.fetch_add(is_request, Ordering::Relaxed) + is_request;
                match act(&frame, requests) {
                    Act::Send(frames) => tcp.write_all(&frames).await?,
                    Act::Close(frames) => {
                        tcp.write_all(&frames).await?;
                        return tcp.shutdown().await;
                    }
                }
            }
            _ => {}
        }
    }
}

async fn read(tcp: &mut TcpStream) -> Result<Frame> {
    let mut head = [0; 9];
    tcp.read_exact(&mut head).await?;
    let [high, middle, low, kind, flags, stream @ ..] = head;
    tcp.read_exact(&mut vec![0; usize::from_be_bytes([0, 0, 0, 0, 0, high, middle, low])]).await?;
    Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream) })
}
