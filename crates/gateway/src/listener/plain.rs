//! A listener without TLS for probes and metrics: few connections, one response each.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long a response may take after the stop. A client that never finishes its request must not hold the process.
const GRACE: Duration = Duration::from_secs(1);
/// How long a connection may take.
const LONGEST: Duration = Duration::from_secs(10);
/// How many connections there are at most. A new one displaces the oldest, so that a client that keeps its connections
/// open cannot lock out probes.
const PERMITS: usize = 64;
/// Pause after a failed accept. Retrying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is cancelled.
pub async fn serve_plain(listener: TcpListener, router: Router, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => {
                report(ended);
                oldest_first.retain(|connection| !connection.is_finished());
            }
            accepted = listener.accept() => {
                let tcp = match accepted {
                    Ok((tcp, _)) => tcp,
                    Err(error) => {
                        // The gateway's listener warns about what affects all listeners.
                        tracing::debug!(%error, "A connection for probes and metrics cannot be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                if oldest_first.len() >= PERMITS && let Some(oldest) = oldest_first.pop_front() {
                    oldest.abort();
                }
                oldest_first.push_back(connections.spawn(timeout(LONGEST, answer(tcp, router.clone()))));
            }
        }
    }
    drop(listener);
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    // What is left is cut when the set is dropped.
    drop(timeout(GRACE, drained).await);
}

fn report(ended: Result<Result<(), Elapsed>, JoinError>) {
    if let Err(error) = ended
        && !error.is_cancelled()
    {
        tracing::error!(%error, "The task of a connection for probes and metrics failed");
    }
}

async fn answer(tcp: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(tcp), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "A connection for probes and metrics ended early");
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
        // Once a later connection has its response, the earlier one is being served.
        let mut whole = TcpStream::connect(address).await.unwrap();
        whole.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        whole.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
        stop.cancel();
        timeout(GRACE * 2, serving).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn clients_that_hold_all_permits_shut_no_probe_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/healthz", get(|| async { "ok\n" }));
        let serving = tokio::spawn(serve_plain(listener, router, CancellationToken::new()));
        let mut silent = Vec::new();
        for _ in 0..=PERMITS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        probe.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
        // 66 connections are two more than there are permits: the first two have ended, the third has not.
        for displaced in &mut silent[..2] {
            assert_eq!(displaced.read(&mut [0]).await.unwrap(), 0);
        }
        let third = &silent[2];
        assert_eq!(third.try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        serving.abort();
    }
}
