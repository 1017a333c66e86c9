//! The one HTTP client for all upstreams.

use std::time::Duration;

use hyper::Request;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower::ServiceExt;
use tower::util::MapResponse;

use super::Limits;
use super::body::Upload;
use super::resolver::CheckedResolver;
use super::stream::UpstreamStream;
use addon_signer_core::gateway::upstream::{self, RefusedAddress};

const POOL_IDLE: Duration = Duration::from_secs(30);
const POOL_PER_HOST: usize = 128;

/// Upstream connections, pooled by host. None goes to an address that no backend may have.
pub(super) struct UpstreamClient {
    client: Client<Connector, Upload>,
    allow_loopback: bool,
}

impl UpstreamClient {
    pub(super) fn new(limits: &Limits, allow_loopback: bool) -> Self {
        let resolver = CheckedResolver::new(allow_loopback);
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits.connect_timeout));
        let buffer = usize::try_from(limits.upstream_socket).ok(); // always, and none is the system's own size
        connector.set_send_buffer_size(buffer);
        connector.set_recv_buffer_size(buffer);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_PER_HOST)
            .http1_max_buf_size(limits.call_buffer)
            .build(connector.map_response(UpstreamStream::new as fn(_) -> _));
        Self { client, allow_loopback }
    }

    /// Sends a request. The resolver checks a name, and is not asked about an address in the URL.
    pub(super) fn request(&self, request: Request<Upload>) -> Result<ResponseFuture, RefusedAddress> {
        upstream::check_host(request.uri().host().unwrap_or_default(), self.allow_loopback)?;
        Ok(self.client.request(request))
    }
}

type Connector = MapResponse<HttpConnector<CheckedResolver>, fn(TokioIo<TcpStream>) -> UpstreamStream>;
