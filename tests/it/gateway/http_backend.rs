//! A backend whose answers the test writes, over HTTP/1.1 and HTTP/2, with and without TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use addon_signer_core::gateway::route::{Backend, BackendTls, Protocol, Route};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use test_kit::gateway::{ANY, GatewayWorld, mk_backend, route};
use test_kit::issue::{Ca, Leaf};

/// A body that may break off.
pub(super) type Content = UnsyncBoxBody<Bytes, std::io::Error>;
/// What sends the pieces of a body.
pub(super) type Pieces = UnboundedSender<Piece>;
type Piece = Result<Frame<Bytes>, std::io::Error>;

/// A backend that runs as long as the test's runtime.
pub(super) struct HttpBackend {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl HttpBackend {
    pub(super) async fn start<F, A>(answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<Content>> + Send + 'static,
    {
        Self::start_with(None, answer).await
    }

    pub(super) async fn start_with<F, A>(tls: Option<ServerConfig>, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<Content>> + Send + 'static,
    {
        let listener = TcpListener::bind(ANY).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(accept(tcp, tls.clone(), answer.clone()));
            }
        });
        Self { address, connections }
    }

    /// How many connections there were.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// A route to it, for all paths.
    pub(super) fn route(&self, protocol: Protocol) -> Route {
        route_to(mk_backend(self.address, protocol))
    }
}

async fn accept<F, A>(tcp: TcpStream, tls: Option<TlsAcceptor>, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<Content>> + Send + 'static,
{
    tcp.set_nodelay(true).unwrap();
    match tls {
        None => serve(tcp, answer).await,
        Some(tls) => {
            if let Ok(tls) = tls.accept(tcp).await {
                serve(tls, answer).await;
            }
        }
    }
}

async fn serve<S, F, A>(io: S, answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<Content>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answering = answer(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let builder = Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    serving.await.ok(); // it fails if the gateway leaves early, which is part of the tests
}

/// A route to a backend, for all paths.
pub(super) fn route_to(backend: Backend) -> Route {
    Route { backend: Ok(Arc::new(backend)), ..route("/", "http://127.0.0.1:1") }
}

/// A server's side of TLS for `receive.svc`.
pub(super) fn mk_server_tls(ca: &Ca, world: &GatewayWorld, alpn: &[&str]) -> ServerConfig {
    let Leaf { certificate, key, .. } = ca.server(&["receive.svc"], &[], world.clock.now());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

pub(super) fn mk_tls(ca: &Ca, name: &str) -> BackendTls {
    let anchors = vec![ca.authority().certificate().clone()].into();
    BackendTls { anchors, server_name: name.to_owned(), client_certificate: false }
}

pub(super) fn text(text: impl Into<Bytes>) -> Response<Content> {
    Response::new(Full::new(text.into()).map_err(|never| match never {}).boxed_unsync())
}

/// An answer that begins and does not end.
pub(super) fn endless() -> Response<Content> {
    let begins = futures::stream::iter([piece("begins")]);
    Response::new(StreamBody::new(begins.chain(futures::stream::pending())).boxed_unsync())
}

/// A body whose pieces come from elsewhere.
pub(super) fn pieces() -> (Pieces, StreamBody<UnboundedReceiver<Piece>>) {
    let (pieces, rest) = unbounded();
    (pieces, StreamBody::new(rest))
}

pub(super) fn piece(text: &'static str) -> Piece {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

/// Sends back what comes, with its trailers.
pub(super) fn echo(request: Request<Incoming>) -> Response<Content> {
    Response::new(request.into_body().map_err(std::io::Error::other).boxed_unsync())
}
