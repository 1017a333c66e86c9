//! What monitoring asks: `/healthz`, `/readyz` and `/metrics`.

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::gateway::serving::is_current;
use crate::hub::lease::{Leadership, Leading};
use crate::ledger::Health;
use crate::listener::serve_plain;
use crate::telemetry::Metrics;
use addon_signer_core::lease::LEASE_NAME;
use addon_signer_core::registry::{Registry, SharedRegistry};
use addon_signer_platform::clock::Clock;

/// What the metrics address serves.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) metrics: Metrics,
    pub(crate) registry: SharedRegistry,
    pub(crate) serving: watch::Receiver<Option<Arc<rustls::sign::CertifiedKey>>>,
    pub(crate) clock: Clock,
    pub(crate) leading: Leading,
    pub(crate) ledger: watch::Receiver<Health>,
}

impl Probe {
    fn ready(&self) -> (StatusCode, Cow<'static, str>) {
        match self.leading.leadership() {
            // Ready if unsure: an API server that does not answer must not make the gateway unavailable.
            Leadership::Leader { .. } | Leadership::Unsure { .. } => {}
            Leadership::Waiting(why) => {
                let sentence = format!("waiting for the Lease {LEASE_NAME}, {why}\n");
                return (StatusCode::SERVICE_UNAVAILABLE, sentence.into());
            }
            Leadership::Lost(_) | Leadership::Released => {
                return (StatusCode::SERVICE_UNAVAILABLE, "this process ends\n".into());
            }
        }
        if !self.registry.read(Registry::is_ready) {
            return (StatusCode::SERVICE_UNAVAILABLE, "clusters and addons are not read yet\n".into());
        }
        if !is_current(self.serving.borrow().as_deref(), self.clock.now()) {
            return (StatusCode::SERVICE_UNAVAILABLE, "the gateway has no certificate that is valid\n".into());
        }
        match &*self.ledger.borrow() {
            Health::Up { .. } => (StatusCode::OK, "ok\n".into()),
            Health::Starting => (StatusCode::OK, "ok; the ledger is being opened\n".into()),
            // Still ready: the gateway works without the ledger, and Kubernetes would make it unavailable.
            Health::Down(error) => (StatusCode::OK, format!("ok; nothing is signed now: {error}\n").into()),
        }
    }

    fn text(&self) -> impl IntoResponse + use<> {
        let content_type = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
        self.metrics.ledger(match &*self.ledger.borrow() {
            Health::Up { tip, .. } => Some(tip.seq),
            Health::Starting | Health::Down(_) => None,
        });
        match self.metrics.render() {
            Ok(text) => (StatusCode::OK, content_type, text),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, content_type, String::new()),
        }
    }
}

/// Serves until `stop` is cancelled.
///
/// # Errors
/// The error of the socket.
pub(crate) async fn serve_metrics(listener: TcpListener, probe: Probe, stop: CancellationToken) -> anyhow::Result<()> {
    let ready = probe.clone();
    let text = probe;
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { ready.ready() }))
        .route("/metrics", get(move || async move { text.text() }));
    serve_plain(listener, router, stop).await.context("the metrics cannot be served")
}
