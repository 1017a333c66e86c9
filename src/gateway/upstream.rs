//! The one HTTP client for all upstreams.

use std::time::Duration;

use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::Limits;
use super::body::Upload;

/// Upstream connections, pooled by host.
pub(super) type UpstreamClient = Client<HttpConnector, Upload>;

const POOL_IDLE: Duration = Duration::from_secs(30);
const POOL_PER_HOST: usize = 128;

pub(super) fn upstream_client(limits: &Limits) -> UpstreamClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(limits.connect_timeout));
    let buffer = usize::try_from(limits.upstream_socket).ok(); // always, and none is the system's own size
    connector.set_send_buffer_size(buffer);
    connector.set_recv_buffer_size(buffer);
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_PER_HOST)
        .http1_max_buf_size(limits.call_buffer)
        .build(connector)
}
