//! The agent's metric, in the OpenMetrics text format: when the stored certificate expires.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tracing::debug;

use addon_signer_core::timestamp::Timestamp;

/// How long one client may take. Clients are served one after the other, because only Prometheus asks.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause after a connection could not be accepted, for instance because too many files are open.
const RETRY: Duration = Duration::from_millis(100);

/// When the stored certificate expires, in Unix time; 0 while there is none that the gateway may accept. Clones share
/// it.
#[derive(Debug, Clone, Default)]
pub struct CertificateEnd(Arc<AtomicI64>);

impl CertificateEnd {
    pub(crate) fn set(&self, end: Option<Timestamp>) {
        self.0.store(end.map_or(0, Timestamp::unix), Ordering::Relaxed);
    }

    fn text(&self) -> String {
        let name = "addon_signer_agent_certificate_end_timestamp_seconds";
        let help = "When the stored certificate expires, in Unix time; 0 while there is no usable one.";
        format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {}\n# EOF\n", self.0.load(Ordering::Relaxed))
    }
}

/// Serves `/metrics` over plain HTTP.
pub async fn serve(listener: TcpListener, end: CertificateEnd) -> Infallible {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        let answer = service_fn(async |request: hyper::Request<hyper::body::Incoming>| {
            let is_known = request.uri().path() == "/metrics";
            let mut response = Response::new(if is_known { end.text() } else { String::new() });
            if is_known {
                let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, kind);
            } else {
                *response.status_mut() = StatusCode::NOT_FOUND;
            }
            Ok::<_, Infallible>(response)
        });
        let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), answer);
        match timeout(PATIENCE, connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "A client of the metrics was not served"),
            Err(_) => debug!("A client of the metrics took too long"),
        }
    }
}
