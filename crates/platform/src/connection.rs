//! The connection to an API server, bounded in every direction: a server that goes silent must not hold back a
//! revocation, a renewal of the Lease or a rotation.
//!
//! All calls and watches of a client share one HTTP/2 connection, as in Kubernetes' own clients. An API server allows
//! 100 streams on it (kube-apiserver, `--http2-max-streams-per-connection`). A PING detects that the other end is gone,
//! even if a kernel or a load balancer still acknowledges bytes; then every call and watch on it fails at once, and the
//! next one makes a new connection.
//!
//! No call that the server may have seen is repeated here: before repeating a write, the caller has to check again
//! whether the hub still leads.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{self, Builder, Client as HyperClient};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use rustls_pki_types::ServerName;
use tower::{BoxError, ServiceBuilder};
use tower_http::timeout::ResponseBodyTimeoutLayer;

use crate::contacts::{Contacts, Noting};
use crate::pages::Bounds;
use crate::proxy::Dialer;

/// The longest time until TCP and TLS are set up.
const CONNECT: Duration = Duration::from_secs(5);
/// After this long without a byte from the server, while a call is in flight, the client sends a PING.
const PING_AFTER: Duration = Duration::from_secs(3);
/// The longest time until the server answers a PING.
const PING_ANSWER: Duration = Duration::from_secs(3);
/// The longest time until an answer begins. It is long, because a busy API server queues calls.
const ANSWER: Duration = Duration::from_secs(30);
/// The longest silence within an answer. A watch is never silent for so long, because the API server sends a bookmark
/// each minute (kube-apiserver, `defaultBookmarkFrequency`). A proxy may answer PINGs for an API server that is gone.
const SILENCE: Duration = Duration::from_secs(75);
/// The longest time from the beginning of an answer to its end, unless it is a watch.
const WHOLE: Duration = Duration::from_secs(60);
/// Bytes that the server may send ahead on one stream.
const STREAM_WINDOW: u32 = 1 << 18;
/// The same on the whole connection: as much as all its streams may have. Pages of lists wait for each other, and those
/// that wait must leave room for the one that is received, and for calls.
const CONNECTION_WINDOW: u32 = 128 * STREAM_WINDOW;

/// Makes a client for these settings. It connects when it is first used.
///
/// # Errors
/// Certificates or keys that cannot be read, an invalid server name, or a proxy that cannot be used.
pub fn connect(config: Config) -> Result<Client, kube::Error> {
    connect_noting(config, Contacts::default())
}

/// As [`connect`]; the client notes in `contacts` when it hears from the API server.
///
/// # Errors
/// As [`connect`].
pub fn connect_noting(config: Config, contacts: Contacts) -> Result<Client, kube::Error> {
    let connector = connector(&config)?;
    let connections: HyperClient<_, Body> = builder().build(connector);
    let bounds = Bounds::new(WHOLE);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .layer_fn(move |inner| Noting { inner, contacts: contacts.clone(), bounds: bounds.clone() })
        .timeout(ANSWER)
        .layer(ResponseBodyTimeoutLayer::new(SILENCE))
        .service(connections);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Whether a call failed because there was no connection, so that the server has seen nothing of it.
#[must_use]
pub fn never_connected(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| cause.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect))
}

fn builder() -> Builder {
    let mut builder = HyperClient::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_ANSWER)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

fn connector(config: &Config) -> Result<TimeoutConnector<HttpsConnector<Dialer>>, kube::Error> {
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let names: Arc<dyn ResolveServerName + Send + Sync> = match &config.tls_server_name {
        None => Arc::new(DefaultServerNameResolver::default()),
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(|error| kube::Error::Service(error.into()))?;
            Arc::new(FixedServerNameResolver::new(name))
        }
    };
    let tcp = Dialer::of_kubeconfig(config.proxy_url.as_ref()).map_err(|error| kube::Error::Service(error.into()))?;
    let mut connector = TimeoutConnector::new(HttpsConnector::new(tcp, tls, false, names));
    connector.set_connect_timeout(Some(CONNECT));
    Ok(connector)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_refused_connection_is_told_from_a_call_without_an_answer() {
        let never = async |address: std::net::SocketAddr| {
            let client = connect(Config::new(format!("http://{address}").parse().unwrap())).unwrap();
            let request = hyper::Request::get("/").body(Body::empty()).unwrap();
            never_connected(&client.send(request).await.unwrap_err())
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closes = std::thread::spawn(move || drop(listener.accept().unwrap()));
        assert!(!never(address).await, "it has perhaps read the call");
        closes.join().unwrap();
        assert!(never(address).await, "nobody listens any more");
    }
}
