//! A backend behind addon-signer's gateway. It accepts what agents push, by HTTP; says by gRPC whether it takes pushes;
//! and reports who pushed how much. All on one port, HTTP/1.1 and HTTP/2.
//!
//! It needs no TLS and checks no certificate: the gateway does that, and states in headers who calls. So nobody but the
//! gateway may reach it, which the NetworkPolicy in `hub/backend.yaml` ensures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Pushes and bytes of each addon on each cluster.
type Totals = Arc<Mutex<BTreeMap<String, (u64, usize)>>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    // Every address, of IPv4 and of IPv6. A kernel without IPv6 needs 0.0.0.0.
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "[::]:19291".to_owned());
    // gRPC's own service for health. A backend that is overloaded or being replaced would say NOT_SERVING.
    let (_reporter, health) = tonic_health::server::health_reporter();
    let app = Router::new()
        .route_service("/grpc.health.v1.Health/{method}", health)
        .route("/api/v1/receive", post(receive))
        .route("/totals", get(totals))
        .with_state(Totals::default());
    // Finishes what has begun. The first process of a container ends only by signals that it handles.
    let mut terminate = signal(SignalKind::terminate())?;
    let asked = async move {
        terminate.recv().await;
    };
    axum::serve(TcpListener::bind(address).await?, app).with_graceful_shutdown(asked).await
}

async fn receive(State(totals): State<Totals>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // The gateway removes these headers from what a client sends, and sets them from the certificate that it checked.
    let (Some(cluster), Some(addon)) = (header("x-addon-signer-cluster"), header("x-addon-signer-addon")) else {
        return StatusCode::FORBIDDEN;
    };
    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
    let (pushes, bytes) = totals.entry(format!("{cluster}/{addon}")).or_default();
    *pushes += 1;
    *bytes += body.len();
    StatusCode::NO_CONTENT
}

async fn totals(State(totals): State<Totals>) -> Json<Value> {
    let totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
    Json(
        totals
            .iter()
            .map(|(who, (pushes, bytes))| (who.clone(), json!({ "pushes": pushes, "bytes": bytes })))
            .collect(),
    )
}
