//! What the listeners of the process share: the accept loop and the basis of every TLS configuration, and the listener
//! of metrics, which has no TLS.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

mod accept;
mod no_handshake;
mod plain;
mod unverified;

use rustix::net::{RecvFlags, recv};
use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::Interest;
use tokio::net::TcpStream;

use addon_signer_platform::clock::Clock;
use addon_signer_platform::crypto;

pub(crate) use accept::prepare;
pub use accept::{ConnectionHandler, DRAIN_MARGIN, Entered, Permits, SessionPermit, WAITING, accept};
pub use no_handshake::{HandshakeFailure, NoHandshake};
pub use plain::serve_plain;
use unverified::NotingUnverified;

/// How much longer a handshake may take that is not done when the listener stops. Go's transport sends a request again
/// only on a connection that had one before (`shouldRetryRequest`).
pub const FIRST: Duration = Duration::from_secs(1);

/// A TLS configuration with TLS 1.3 only, without resumption or early data; `verifier` checks every client.
///
/// # Errors
/// An error of rustls, which does not happen with ring and TLS 1.3.
pub fn server_config(
    verifier: Arc<dyn ClientCertVerifier>,
    serving: Arc<CertifiedKey>,
    clock: &Clock,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_details(crypto::provider(), Arc::new(clock.clone()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(NotingUnverified(verifier)))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(serving)));
    // A resumed session skips the verifier: rustls copies the client's chain from the ticket, even if its CA is not
    // trusted any more. So there are no tickets. A new configuration would forget them anyway.
    config.send_tls13_tickets = 0;
    config.max_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(config)
}

/// The header of a TLS record (RFC 8446, section 5.1).
const HEADER: usize = 5;
/// The content type of a handshake's record.
const HANDSHAKE: u8 = 22;
/// After this many bytes the wait ends, whatever length the record announces. A typical client's first message has some
/// 1,800.
const ENOUGH: usize = 2048;

/// Waits for a client's first record, and leaves it in the socket. Before it, a connection costs a socket and no TLS
/// state, so many may wait.
///
/// # Errors
/// The client has left, or the error of the socket.
pub(super) async fn arrives(tcp: &TcpStream) -> std::io::Result<()> {
    loop {
        let ready = tcp.ready(Interest::READABLE).await?;
        match tcp.try_io(Interest::READABLE, || peek(tcp)) {
            // A socket whose client has ended its side stays readable: waiting for more would be a busy loop.
            Err(error) if error.kind() == ErrorKind::WouldBlock && ready.is_read_closed() => {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

/// `WouldBlock` while there is less than the first record.
fn peek(tcp: &TcpStream) -> std::io::Result<()> {
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
        for sent in [&[][..], &[22, 3]] {
            let mut leaving = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            leaving.write_all(sent).await.unwrap();
            leaving.shutdown().await.unwrap();
            let (other, _) = listener.accept().await.unwrap();
            assert_eq!(arrives(&other).await.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{sent:?}");
        }
    }
}
