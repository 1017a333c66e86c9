//! Sends the agents' requests through the gateway, one after the other, with the certificate on disk.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use ring::rand::SystemRandom;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use addon_signer_agent::gateway::client_config;
use addon_signer_agent::store::Store;
use addon_signer_core::credentials::{Usable, Wanted, examine};
use addon_signer_platform::clock::Clock;

/// Requests on one connection, so that new certificates and anchors are picked up soon.
const PER_CONNECTION: u64 = 25;
/// Pause between requests. None may fail; their number does not matter.
const PAUSE: Duration = Duration::from_millis(2);

/// The agents' counters.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) sent: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// One agent's requests.
#[derive(Clone)]
pub(super) struct TrafficCaller {
    pub(super) gateway: SocketAddr,
    pub(super) directory: PathBuf,
    pub(super) wanted: Wanted,
    pub(super) path: String,
    pub(super) clock: Clock,
    pub(super) last: Arc<Mutex<Option<Arc<Usable>>>>,
}

/// All agents' requests, which run until this is dropped or stopped.
pub(super) struct Traffic {
    pub(super) count: Arc<Count>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Traffic {
    pub(super) fn start(callers: &[TrafficCaller]) -> Self {
        let count = Arc::new(Count::default());
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for caller in callers.iter().cloned() {
            let count = count.clone();
            let stop = stop.clone();
            tasks.spawn(async move {
                while !stop.is_cancelled() {
                    if let Err(error) = caller.connection(&count).await {
                        count.sent.fetch_add(1, Ordering::Relaxed);
                        count.failed.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(%error, user = caller.wanted.user, "A request failed");
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                }
            });
        }
        Self { count, stop, tasks }
    }

    /// Lets the connections end by themselves; returns how many requests were sent and how many failed.
    pub(super) async fn stop(mut self) -> (u64, u64) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        (self.count.sent.load(Ordering::Relaxed), self.count.failed.load(Ordering::Relaxed))
    }
}

impl TrafficCaller {
    /// The certificate and key now on disk.
    pub(super) async fn credentials(&self) -> anyhow::Result<Usable> {
        let stored = Store::directory(self.directory.clone()).load().await?.context("there is no certificate")?;
        Ok(examine(&stored, &self.wanted, self.clock.now(), &SystemRandom::new())?)
    }

    /// The certificate and key on disk, or the last complete ones, because an addon keeps what it has loaded.
    async fn current(&self) -> anyhow::Result<Arc<Usable>> {
        let loaded = self.credentials().await;
        let mut last = self.last.lock().await;
        match (loaded, last.as_ref()) {
            (Ok(usable), _) => Ok(last.insert(Arc::new(usable)).clone()),
            (Err(_), Some(usable)) => Ok(usable.clone()),
            (Err(error), None) => Err(error),
        }
    }

    /// Connects with the present certificate, offering these protocols.
    pub(super) async fn tls(&self, alpn: &[&[u8]]) -> anyhow::Result<TlsStream<TcpStream>> {
        let usable = self.current().await?;
        let tcp = TcpStream::connect(self.gateway).await?;
        tcp.set_nodelay(true)?;
        let mut config = client_config(&usable, &self.clock)?;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::from(self.gateway.ip());
        Ok(TlsConnector::from(Arc::new(config)).connect(name, tcp).await?)
    }

    async fn connect(&self) -> anyhow::Result<(SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>)> {
        let stream = self.tls(&[]).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        Ok((sender, tokio::spawn(connection)))
    }

    fn request(&self) -> anyhow::Result<Request<Full<Bytes>>> {
        let request = Request::builder().method(Method::POST).uri(&self.path).header(HOST, self.gateway.to_string());
        Ok(request.body(Full::new(Bytes::from_static(b"metrics")))?)
    }

    /// One request on a connection of its own.
    pub(super) async fn once(&self) -> anyhow::Result<StatusCode> {
        let (mut sender, _driver) = self.connect().await?;
        Ok(sender.send_request(self.request()?).await?.status())
    }

    async fn connection(&self, count: &Count) -> anyhow::Result<()> {
        let (mut sender, driver) = self.connect().await?;
        for _ in 0..PER_CONNECTION {
            let response = sender.send_request(self.request()?).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::ensure!(status.is_success(), "the gateway answered {status}");
            anyhow::ensure!(body.trim_ascii() == self.wanted.user.as_bytes(), "the backend saw another identity");
            count.sent.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
        drop(sender);
        driver.await??;
        Ok(())
    }
}
