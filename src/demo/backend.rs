//! The addon's backend: answers each request with the identity that the gateway vouches for.

use std::net::SocketAddr;

use axum::Router;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::grpc;

/// A backend on loopback, until dropped.
pub(super) struct Backend {
    pub(super) address: SocketAddr,
    task: JoinHandle<std::io::Result<()>>,
}

impl Backend {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(any(echo));
        let task = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, task })
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn echo(headers: HeaderMap) -> Response {
    let user = headers.get("x-remote-user").and_then(|value| value.to_str().ok()).unwrap_or("nobody");
    if headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/grpc") {
        return grpc::answer(user);
    }
    format!("{user}\n").into_response()
}
