//! What monitoring and kubelet request: `/metrics`, in the OpenMetrics text format, and `/readyz`.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tracing::debug;

use addon_signer_core::credentials::Unusable;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;

/// How long one client may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How many clients are served at a time: Prometheus, kubelet's two probes, and one that is slow.
const CLIENTS: usize = 4;
/// The pause after a connection could not be accepted, for instance because too many files are open.
const RETRY: Duration = Duration::from_millis(100);

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The agent's metrics: name, kind and help. The samples of a counter end in `_total`.
pub const METRICS: [(&str, &str, &str); 2] = [
    (
        "addon_signer_agent_certificate_end_timestamp_seconds",
        "gauge",
        "When the stored certificate expires, in Unix time; 0 while there is no usable one",
    ),
    ("addon_signer_agent_on_renew_failures", "counter", "How often the command of --on-renew has failed"),
];

/// What is known of the stored certificate and of the command. Clones share it.
#[derive(Debug, Clone)]
pub struct Probe(Arc<ProbeState>);

#[derive(Debug)]
struct ProbeState {
    clock: Clock,
    /// When the stored certificate expires, or why none can be used.
    certificate: Mutex<Result<Timestamp, String>>,
    failures: AtomicU64,
}

impl Probe {
    /// Nothing is known yet.
    pub fn new(clock: Clock) -> Self {
        let certificate = Mutex::new(Err("the stored certificate has not been read yet".to_owned()));
        Self(Arc::new(ProbeState { clock, certificate, failures: AtomicU64::new(0) }))
    }

    /// Sets when the stored certificate expires, or why none can be used.
    pub(crate) fn set(&self, certificate: Result<Timestamp, String>) {
        *self.0.certificate.lock().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    /// The command of `--on-renew` has failed once more.
    pub(crate) fn count_failure(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn certificate(&self) -> Result<Timestamp, String> {
        self.0.certificate.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn metrics(&self) -> String {
        let seconds = self.certificate().map_or(0, Timestamp::unix);
        let count = self.0.failures.load(Ordering::Relaxed);
        let [(end, gauge, of_end), (failures, counter, of_failures)] = METRICS;
        format!(
            "# HELP {end} {of_end}.\n# TYPE {end} {gauge}\n{end} {seconds}\n\
             # HELP {failures} {of_failures}.\n# TYPE {failures} {counter}\n{failures}_total {count}\n# EOF\n"
        )
    }

    /// The certificate may have expired since the agent last checked it.
    fn readiness(&self) -> (StatusCode, String) {
        let reason = match self.certificate() {
            Ok(end) if self.0.clock.now() <= end => return (StatusCode::OK, "ok\n".to_owned()),
            Ok(end) => Unusable::Expired(end).to_string(),
            Err(reason) => reason,
        };
        (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
    }

    fn answer(&self, path: &str) -> Response<String> {
        let (status, kind, body) = match path {
            "/metrics" => (StatusCode::OK, OPEN_METRICS, self.metrics()),
            "/readyz" => {
                let (status, body) = self.readiness();
                (status, PLAIN, body)
            }
            _ => (StatusCode::NOT_FOUND, PLAIN, String::new()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

/// Serves `/metrics` and `/readyz` over plain HTTP.
pub async fn serve(listener: TcpListener, probe: Probe) -> Infallible {
    serve_for(TIMEOUT, listener, probe).await
}

async fn serve_for(limit: Duration, listener: TcpListener, probe: Probe) -> Infallible {
    loop {
        let clients = stream::repeat(&listener).then(accept);
        clients.for_each_concurrent(CLIENTS, |client| serve_one(limit, client, &probe)).await;
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            Err(_) => sleep(RETRY).await,
        }
    }
}

async fn serve_one(limit: Duration, client: TcpStream, probe: &Probe) {
    let answer = service_fn(async |request: Request<Incoming>| Ok::<_, Infallible>(probe.answer(request.uri().path())));
    let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(client), answer);
    match timeout(limit, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "A client of the metrics was not served"),
        Err(_) => debug!("A client of the metrics took too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn ready_is_who_has_a_certificate_that_has_not_expired() {
        let clock = Clock::default();
        let probe = Probe::new(clock.clone());
        let unready = |reason: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"));
        assert_eq!(probe.readiness(), unready("the stored certificate has not been read yet"));
        let end = Timestamp::from_unix(clock.now().unix() + 1000);
        probe.set(Ok(end));
        assert_eq!(probe.readiness(), (StatusCode::OK, "ok\n".to_owned()));
        clock.advance(Duration::from_secs(1100));
        assert_eq!(probe.readiness(), unready(&format!("the certificate expired at {end}")));
        probe.set(Err("the certificate is revoked".to_owned()));
        assert_eq!(probe.readiness(), unready("the certificate is revoked"));
    }

    #[test]
    fn metrics_have_the_end_and_the_failures() {
        let probe = Probe::new(Clock::default());
        let values = || {
            let text = probe.metrics();
            assert!(text.ends_with("\n# EOF\n"), "{text}");
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        let end = |seconds| format!("addon_signer_agent_certificate_end_timestamp_seconds {seconds}");
        let failures = |count| format!("addon_signer_agent_on_renew_failures_total {count}");
        assert_eq!(values(), [end(0), failures(0)]);
        probe.set(Ok(Timestamp::from_unix(7)));
        probe.count_failure();
        assert_eq!(values(), [end(7), failures(1)]);
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_keeps_nobody_waiting() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let probe = Probe::new(Clock::default());
        let ages = Duration::from_secs(3600);
        let asked = async {
            let silent = TcpStream::connect(address).await.unwrap();
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            drop(silent);
            answer
        };
        tokio::select! {
            never = serve_for(ages, listener, probe) => match never {},
            answer = asked => assert!(answer.starts_with("HTTP/1.0 503"), "{answer}"),
            () = sleep(Duration::from_secs(30)) => panic!("it waits for the other one"),
        }
    }
}
