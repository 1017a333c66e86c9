//! A gRPC request through the gateway: HTTP/2, a framed message each way, trailers with the status.

use anyhow::{Context, ensure};
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response};
use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::traffic::TrafficCaller;

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

/// The backend's answer: one message, and the trailers that end every request of gRPC.
pub(super) fn answer(text: &str) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Frame::data(message(text)), Frame::trailers(trailers)].map(Ok::<_, std::convert::Infallible>);
    let mut response = Response::new(Body::new(StreamBody::new(stream::iter(frames))));
    response.headers_mut().insert(CONTENT_TYPE, KIND);
    response
}

/// Makes one request; returns the message of the answer.
pub(super) async fn call(caller: &TrafficCaller) -> anyhow::Result<String> {
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
