//! The HTTP clients for all backends.

use std::time::Duration;

use hyper::Request;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::watch;

use super::Limits;
use super::body::Upload;
use super::connector::CheckedConnector;
use super::resolver::CheckedResolver;
use addon_signer_core::gateway::access::CallConnection;
use addon_signer_core::gateway::backend::{self, RefusedAddress};
use addon_signer_core::gateway::neighbours::Neighbours;

const POOL_IDLE: Duration = Duration::from_secs(30);
const POOL_PER_HOST: usize = 128;

/// Backend connections, pooled by host. None connects to an address that no backend may have.
pub(super) struct BackendClient {
    pooled: Client<CheckedConnector, Upload>,
    /// For calls that use their own connection: it has no pool.
    single: Client<CheckedConnector, Upload>,
    allow_loopback: bool,
}

impl BackendClient {
    /// `allow_loopback` allows loopback addresses, and any others that belong to the hub or its namespace.
    pub(super) fn new(limits: &Limits, allow_loopback: bool, neighbours: watch::Receiver<Neighbours>) -> Self {
        let resolver = CheckedResolver::new(allow_loopback);
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits.connect_timeout));
        let buffer = usize::try_from(limits.backend_socket).ok(); // always fits; `None` would be the system's own size
        connector.set_send_buffer_size(buffer);
        connector.set_recv_buffer_size(buffer);
        let connector = CheckedConnector::new(connector, (!allow_loopback).then_some(neighbours));
        let client = |idle_per_host| {
            Client::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(POOL_IDLE)
                .pool_max_idle_per_host(idle_per_host)
                .http1_max_buf_size(limits.call_buffer)
                .build(connector.clone())
        };
        Self { pooled: client(POOL_PER_HOST), single: client(0), allow_loopback }
    }

    /// Sends a request. The resolver checks a name, but is not consulted for an address in the URL.
    pub(super) fn request(
        &self,
        request: Request<Upload>,
        connection: CallConnection,
    ) -> Result<ResponseFuture, RefusedAddress> {
        backend::check_host(request.uri().host().unwrap_or_default(), self.allow_loopback)?;
        Ok(match connection {
            CallConnection::Shared => self.pooled.request(request),
            CallConnection::Own => self.single.request(request),
        })
    }
}
