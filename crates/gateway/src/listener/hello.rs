//! Waits for a client's first bytes. Before these, a connection costs a socket and no TLS state, so many may wait.

use std::io::ErrorKind;

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The header of a TLS record (RFC 8446, section 5.1).
const HEADER: usize = 5;
/// The content type of a handshake's record.
const HANDSHAKE: u8 = 22;
/// This many bytes are a beginning, whatever length the record claims. A typical client's first message has some 1,800.
const ENOUGH: usize = 2048;

/// Waits until the first record is there, and leaves it in the socket.
///
/// # Errors
/// The client has left, or the error of the socket.
pub(super) async fn arrives(tcp: &TcpStream) -> std::io::Result<()> {
    loop {
        let ready = tcp.ready(Interest::READABLE).await?;
        match tcp.try_io(Interest::READABLE, || look(tcp)) {
            // A socket whose client has ended its side stays readable: waiting for more would be a busy loop.
            Err(error) if error.kind() == ErrorKind::WouldBlock && ready.is_read_closed() => {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

/// `WouldBlock` if there is less than the first record.
fn look(tcp: &TcpStream) -> std::io::Result<()> {
    let mut first = [0; ENOUGH];
    let (found, _) = recv(tcp, &mut first[..], RecvFlags::PEEK)?;
    match first.get(..found).unwrap_or_default() {
        [] => Err(ErrorKind::UnexpectedEof.into()),
        some if is_there(some) => Ok(()),
        _ => Err(ErrorKind::WouldBlock.into()),
    }
}

/// Whether these bytes contain the first record, or can never contain one.
fn is_there(first: &[u8]) -> bool {
    match first {
        [HANDSHAKE, _, _, high, low, ..] => {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            first.len() >= (HEADER + length).min(ENOUGH)
        }
        [HANDSHAKE, ..] => false,
        _ => true, // TLS reports what it is
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_record_is_there_when_it_is_whole() {
        for (first, expected) in [
            (&[22][..], false),
            (&[22, 3, 1, 0], false),
            (&[22, 3, 1, 0, 2], false),
            (&[22, 3, 1, 0, 2, 1], false),
            (&[22, 3, 1, 0, 2, 1, 0], true),
            (&[22, 3, 1, 0, 2, 1, 0, 9], true),
            (&[22, 3, 1, 0, 0], true),
            (b"G", true),
        ] {
            assert_eq!(is_there(first), expected, "{first:?}");
        }
        let mut long = vec![22, 3, 1, 255, 255];
        long.resize(ENOUGH - 1, 0);
        assert!(!is_there(&long));
        long.push(0);
        assert!(is_there(&long));
    }

    #[tokio::test]
    async fn piecemeal_hello_is_awaited_but_departed_client_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let mut arriving = std::pin::pin!(arrives(&server));
        for piece in [&[22, 3][..], &[1, 0, 2], &[1]] {
            client.write_all(piece).await.unwrap();
            assert!(timeout(Duration::from_millis(20), &mut arriving).await.is_err());
        }
        client.write_all(&[0]).await.unwrap();
        arriving.await.unwrap();
        for said in [&[][..], &[22, 3]] {
            let mut leaving = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            leaving.write_all(said).await.unwrap();
            leaving.shutdown().await.unwrap();
            let (other, _) = listener.accept().await.unwrap();
            assert_eq!(arrives(&other).await.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{said:?}");
        }
    }
}
