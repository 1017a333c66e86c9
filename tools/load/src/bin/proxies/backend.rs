//! The backend of all proxies, as a process of its own. It answers over HTTP/1.1, and over HTTP/2 without TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use test_kit::process::Process;
use tokio::net::TcpListener;

use crate::GRPC;
use crate::cases::MIB;
use crate::peers::wait_until_it_listens;

const ITEM: &[u8] = b"{\"items\":[],\"next\":null,\"status\":\"everything is as it should be\"}";
/// The message `HealthCheckResponse` with the status `SERVING`, after its prefix.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

/// Starts this program as the backend.
pub(crate) fn start(address: SocketAddr, directory: &Path) -> Process {
    let program = std::env::current_exe().unwrap();
    let backend = Process::start(&program, &[format!("--backend={address}")], directory);
    wait_until_it_listens(&backend, address);
    backend
}

pub(crate) async fn serve(address: SocketAddr) {
    let listener = TcpListener::bind(address).await.unwrap();
    let mib = Bytes::from(vec![b'x'; MIB]);
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let mib = mib.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, mib.clone()));
            // An error is expected, because clients close connections.
            drop(Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tcp), service).await);
        });
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn answer(request: Request<Incoming>, mib: Bytes) -> Result<Answer, Infallible> {
    let path = request.uri().path();
    let is_grpc = path.starts_with(GRPC);
    let body = match path {
        _ if is_grpc => Bytes::from_static(SERVING),
        "/mib" => mib,
        _ => Bytes::from_static(ITEM),
    };
    let mut upload = request.into_body();
    while let Some(frame) = upload.frame().await {
        assert!(frame.is_ok());
    }
    let body = Full::new(body);
    if !is_grpc {
        return Ok(Response::new(body.boxed_unsync()));
    }
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let mut answer = Response::new(body.with_trailers(async { Some(Ok(trailers)) }).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(answer)
}
