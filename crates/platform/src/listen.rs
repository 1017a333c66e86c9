//! The sockets on which both programs listen, for IPv4 and IPv6.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket};

/// How many connections wait to be accepted.
pub const BACKLOG: u32 = 1024;

/// Listens at this address. `[::]` takes connections of both families, so that one address serves nodes with IPv4, with
/// IPv6 and with both. `socket_buffer` fixes the buffers of each connection.
///
/// # Errors
/// An address in use, or one that this machine does not have.
pub fn bind(address: SocketAddr, socket_buffer: Option<u32>) -> io::Result<TcpListener> {
    let listening = listen(address, socket_buffer);
    listening.or_else(|error| listen(without_ipv6(address, &error).ok_or(error)?, socket_buffer))
}

fn listen(address: SocketAddr, socket_buffer: Option<u32>) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        // Otherwise the sysctl `net.ipv6.bindv6only` decides.
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    if let Some(bytes) = socket_buffer {
        socket.set_recv_buffer_size(bytes)?;
        socket.set_send_buffer_size(bytes)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The address that replaces `[::]` in a kernel without IPv6 (the boot parameter `ipv6.disable=1`).
fn without_ipv6(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let has_none = Errno::from_io_error(error) == Some(Errno::AFNOSUPPORT);
    let is_all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    (has_none && is_all).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

/// A client's address as the client knows it: a socket of both families shows IPv4 addresses as `::ffff:192.0.2.1`.
#[must_use]
pub fn peer(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_ipv6_listens_on_every_ipv4_address() {
        let [unsupported, in_use] = [Errno::AFNOSUPPORT, Errno::ADDRINUSE].map(io::Error::from);
        let [all, loopback, v4] = ["[::]:8443", "[::1]:8443", "0.0.0.0:8443"].map(|text| text.parse().unwrap());
        assert_eq!(without_ipv6(all, &unsupported), Some(v4));
        assert_eq!(without_ipv6(all, &in_use), None);
        assert_eq!(without_ipv6(loopback, &unsupported), None);
    }

    #[test]
    fn clients_have_one_address_in_either_family_of_sockets() {
        let shown = ["[::ffff:192.0.2.1]:7", "192.0.2.1:7", "[2001:db8::1]:7"].map(|text| peer(text.parse().unwrap()));
        assert_eq!(shown, ["192.0.2.1:7", "192.0.2.1:7", "[2001:db8::1]:7"].map(|text| text.parse().unwrap()));
    }

    #[tokio::test]
    async fn an_address_in_use_is_an_error() {
        let first = bind("[::]:0".parse().unwrap(), None).unwrap();
        let second = bind(first.local_addr().unwrap(), None);
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
