//! Connects to backends. A connection that has reached the hub itself or its namespace is closed before anything is
//! sent on it.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::backend_tls::BackendConnector;
use super::fault::{Failure, Fault};
use crate::listener;
use crate::tls::H2;
use addon_signer_core::gateway::backend;
use addon_signer_core::gateway::protected::{self, ProtectedAddresses};
use addon_signer_core::gateway::route::{Backend, Protocol};

/// Addresses that no machine has: one from a class that was never used, one from a documentation prefix.
const NOWHERE: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(240, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// A connection to a backend, with or without TLS.
pub(crate) type Io = Either<TcpStream, TlsStream<TcpStream>>;

/// The TCP connection below.
pub(super) fn tcp(io: &Io) -> &TcpStream {
    match io {
        Either::Left(tcp) => tcp,
        Either::Right(tls) => tls.get_ref().0,
    }
}

/// A connection on which nothing was sent yet.
pub(super) struct Connected {
    pub(super) io: Io,
    pub(super) address: SocketAddr,
    /// Whether it speaks HTTP/2; otherwise HTTP/1.1.
    pub(super) is_h2: bool,
}

/// Opens connections, and checks the addresses that they have reached.
pub(super) struct Connector {
    pub(super) protected: watch::Receiver<ProtectedAddresses>,
    /// The socket buffers, in each direction.
    pub(super) socket_buffer: u32,
}

impl Connector {
    /// Tries one address after the other until the time is over. Each gets its share of the remaining time.
    pub(super) async fn connect(
        &self,
        backend: &Backend,
        tls: Option<&BackendConnector>,
        addresses: impl ExactSizeIterator<Item = SocketAddr>,
        within: Duration,
    ) -> Result<Connected, Failure> {
        let end = Instant::now() + within;
        let mut failed = Fault::Unreachable.because("it has no address");
        let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        for address in addresses {
            let share = end.saturating_duration_since(Instant::now()) / left.max(1);
            match timeout(share, self.connect_to(address, backend, tls)).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => failed = error,
                Err(_) => {
                    failed = Fault::Unreachable.because(format!("{address} did not accept the connection in time"));
                }
            }
            left -= 1;
        }
        Err(failed)
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        backend: &Backend,
        tls: Option<&BackendConnector>,
    ) -> Result<Connected, Failure> {
        if !backend.is_by_address {
            backend::check(address.ip())?;
        }
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_nodelay(true)?;
        socket.set_send_buffer_size(self.socket_buffer)?;
        socket.set_recv_buffer_size(self.socket_buffer)?;
        let tcp = socket.connect(address).await?;
        check(&tcp, backend.is_by_address, &self.protected.borrow())?;
        let io = match tls {
            None => Either::Left(tcp),
            Some(tls) => Either::Right(tls.connect(tcp).await?),
        };
        let is_h2 = speaks_h2(&io, backend.protocol)?;
        if is_h2 {
            // Many requests share it: a backend that has vanished must not hold all of them until TCP gives up.
            listener::prepare(self::tcp(&io))?;
        }
        Ok(Connected { io, address, is_h2 })
    }
}

fn speaks_h2(io: &Io, protocol: Protocol) -> Result<bool, Failure> {
    let negotiated = match io {
        Either::Left(_) => false,
        Either::Right(tls) => tls.get_ref().1.alpn_protocol() == Some(H2),
    };
    match protocol {
        Protocol::Http | Protocol::Wss => Ok(false),
        Protocol::H2c => Ok(true),
        Protocol::Https => Ok(negotiated),
        Protocol::H2 if negotiated => Ok(true),
        Protocol::H2 => Err(Fault::Protocol.because("it did not choose HTTP/2 (ALPN h2)")),
    }
}

/// An administrator who names a loopback address allows it. Other addresses of the hub and its namespace stay refused.
fn check(tcp: &TcpStream, is_by_address: bool, protected: &ProtectedAddresses) -> Result<(), Failure> {
    let reached = tcp.peer_addr()?.ip();
    if is_by_address && reached.to_canonical().is_loopback() {
        return Ok(());
    }
    let is_own = tcp.local_addr()?.ip() == reached || is_local(reached);
    Ok(protected::check(reached, is_own, protected)?)
}

/// Whether an address belongs to this machine; in a pod, to the pod. Linux connects from the same address to most of
/// them, but from an interface's first one to the others of the same network.
fn is_local(address: IpAddr) -> bool {
    let nowhere = match address {
        IpAddr::V4(_) => IpAddr::V4(NOWHERE.0),
        IpAddr::V6(_) => IpAddr::V6(NOWHERE.1),
    };
    let bind = |address| UdpSocket::bind((address, 0)).map_err(|error| error.kind());
    // Where any address can be bound (`net.ipv4.ip_nonlocal_bind`), the bind proves nothing. After another error the
    // address may still be a local one.
    !matches!(bind(address), Err(ErrorKind::AddrNotAvailable)) && bind(nowhere).is_err()
}
