//! The addon's backend: answers each request with the identity that the gateway vouches for, over gRPC too: HTTP/2, a
//! framed message each way, trailers with the status.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::traffic::TrafficCaller;

/// A backend on loopback, which runs until it is dropped.
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
        return grpc_answer(user);
    }
    format!("{user}\n").into_response()
}

/// The service of the demonstration.
pub(super) const SERVICE: &str = "demo.v1.Metrics";
/// Its method.
pub(super) const METHOD: &str = "Push";
const KIND: HeaderValue = HeaderValue::from_static("application/grpc");

/// A message with its header of five bytes (gRPC over HTTP/2, "Length-Prefixed-Message").
fn message(text: &str) -> Bytes {
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(text.len()).unwrap_or_default().to_be_bytes());
    framed.extend_from_slice(text.as_bytes());
    framed.into()
}

/// The backend's response: one message, and the trailers that end every gRPC response.
fn grpc_answer(text: &str) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Frame::data(message(text)), Frame::trailers(trailers)].map(Ok::<_, std::convert::Infallible>);
    let mut response = Response::new(Body::new(StreamBody::new(stream::iter(frames))));
    response.headers_mut().insert(CONTENT_TYPE, KIND);
    response
}

/// Makes one request; returns the message of the response.
pub(super) async fn call_grpc(caller: &TrafficCaller) -> anyhow::Result<String> {
    let stream = caller.tls(&[b"h2"]).await?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let uri = format!("https://{}/{SERVICE}/{METHOD}", caller.gateway);
    let request = Request::builder().method(Method::POST).uri(uri).header(CONTENT_TYPE, KIND).header("te", "trailers");
    let response = sender.send_request(request.body(Full::new(message("metrics")))?).await?;
    ensure!(response.status().is_success(), "the gateway answered {}", response.status());
    let body = response.into_body().collect().await?;
    let status = body.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
    ensure!(status.as_ref().is_some_and(|status| status == "0"), "the request ended with the status {status:?}");
    let body = body.to_bytes();
    drop(sender);
    driver.await??;
    let text = body.get(5..).context("the answer has no message")?;
    Ok(String::from_utf8_lossy(text).into_owned())
}
