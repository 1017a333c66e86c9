//! A listener without TLS and without clients that matter: probes and metrics.

use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long an answer may take after the stop. A client that never finishes its request must not hold the process.
const GRACE: Duration = Duration::from_secs(1);

/// Serves until `stop` is cancelled.
///
/// # Errors
/// When the listener fails.
pub(crate) async fn serve_plain(listener: TcpListener, router: Router, stop: CancellationToken) -> std::io::Result<()> {
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let over = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = serving => ended,
        () = over => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_never_finished_does_not_hold_the_process() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = Router::new().route("/healthz", get(|| async { "ok\n" }));
        let serving = tokio::spawn(serve_plain(listener, router, stop.clone()));
        let mut half = TcpStream::connect(address).await.unwrap();
        half.write_all(b"GET /heal").await.unwrap();
        // Once a later connection has its answer, the earlier one is being served.
        let mut whole = TcpStream::connect(address).await.unwrap();
        whole.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        whole.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
        stop.cancel();
        timeout(GRACE * 2, serving).await.unwrap().unwrap().unwrap();
    }
}
