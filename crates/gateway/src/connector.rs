//! Connects to backends. A connection that has reached the hub itself or its namespace is closed before anything is
//! sent on it.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tower::Service;

use super::resolver::CheckedResolver;
use super::stream::BackendStream;
use addon_signer_core::gateway::neighbours::{self, Neighbours};

/// Addresses that no machine has: one from a class that was never used, one from a documentation prefix.
const NOWHERE: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(240, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// Opens connections, and checks the addresses that they have reached.
#[derive(Clone)]
pub(super) struct CheckedConnector {
    inner: HttpConnector<CheckedResolver>,
    /// `None` if any address may be reached.
    neighbours: Option<watch::Receiver<Neighbours>>,
}

impl CheckedConnector {
    pub(super) fn new(inner: HttpConnector<CheckedResolver>, neighbours: Option<watch::Receiver<Neighbours>>) -> Self {
        Self { inner, neighbours }
    }
}

impl Service<Uri> for CheckedConnector {
    type Response = BackendStream;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, neighbours) = (self.inner.call(uri), self.neighbours.clone());
        Box::pin(async move {
            let connection = connecting.await?;
            if let Some(neighbours) = neighbours {
                check(connection.inner(), &neighbours.borrow())?;
            }
            Ok(BackendStream::new(connection))
        })
    }
}

fn check(tcp: &TcpStream, neighbours: &Neighbours) -> Result<(), Box<dyn Error + Send + Sync>> {
    let reached = tcp.peer_addr()?.ip();
    let is_own = tcp.local_addr()?.ip() == reached || is_local(reached);
    Ok(neighbours::check(reached, is_own, neighbours)?)
}

/// Whether an address belongs to this machine; in a pod, to the pod. Linux connects from the same address to most of
/// them, but from an interface's first one to the others of the same network.
fn is_local(address: IpAddr) -> bool {
    let nowhere = match address {
        IpAddr::V4(_) => IpAddr::V4(NOWHERE.0),
        IpAddr::V6(_) => IpAddr::V6(NOWHERE.1),
    };
    let bind = |address| UdpSocket::bind((address, 0)).map_err(|error| error.kind());
    // Where anything can be bound (`net.ipv4.ip_nonlocal_bind`), that says nothing. Another error may hide that it is.
    !matches!(bind(address), Err(ErrorKind::AddrNotAvailable)) && bind(nowhere).is_err()
}
