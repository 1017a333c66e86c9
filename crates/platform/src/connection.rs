//! The connection to an API server, bounded in every direction: a server that goes silent must not hold back a
//! revocation, a renewal of the Lease or a rotation.
//!
//! All requests and watches of a client share one HTTP/2 connection, as in Kubernetes' own clients. An API server
//! allows 100 streams on it (kube-apiserver, `--http2-max-streams-per-connection`). A PING detects that the other end
//! is gone, even if a kernel or a load balancer still acknowledges bytes; then every request and watch on it fails at
//! once, and the next one makes a new connection.
//!
//! No request that the server may have seen is repeated here: before it repeats a write, the caller must check again
//! whether the hub still leads.

use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use http::{Request, Response, StatusCode};
use hyper::body::{Body as HttpBody, Bytes};
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{Builder, Client as HyperClient};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use rustls_pki_types::ServerName;
use tower::filter::AsyncFilterLayer;
use tower::{BoxError, Service, ServiceBuilder};
use tower_http::timeout::ResponseBodyTimeoutLayer;

use crate::contacts::{Contacts, Noting};
use crate::credentials::Credentials;
use crate::pages::{Bounds, PageBody};
use crate::proxy::Dialer;
use crate::version;

/// The longest time until TCP and TLS are set up.
const CONNECT: Duration = Duration::from_secs(5);
/// After this long without a byte from the server, while a request is in flight, the client sends a PING.
const PING_AFTER: Duration = Duration::from_secs(3);
/// The longest time until the server answers a PING.
const PING_ANSWER: Duration = Duration::from_secs(3);
/// The longest time until a response begins. It is long, because a busy API server queues requests.
const ANSWER: Duration = Duration::from_secs(30);
/// The longest silence within a response. A watch ends after it and is resumed (`contacts.rs`): the API server may be
/// idle and send no bookmark, or it may be gone while a proxy answers PINGs for it.
const SILENCE: Duration = Duration::from_secs(75);
/// The longest time from the beginning of a response to its end, unless it is a watch.
const WHOLE: Duration = Duration::from_secs(60);
/// Bytes that the server may send ahead on one stream.
const STREAM_WINDOW: u32 = 1 << 18;
/// The same on the whole connection: as much as all its streams may have. Pages of lists wait for each other, and those
/// that wait must not use up the window of the one that is received, and of other requests.
const CONNECTION_WINDOW: u32 = 128 * STREAM_WINDOW;

/// Makes a client for these settings. It connects when it is first used.
///
/// # Errors
/// Certificates or keys that cannot be read, an invalid server name, or a proxy that cannot be used.
pub fn connect(config: Config) -> Result<Client, kube::Error> {
    connect_noting(config, Contacts::default())
}

/// Like [`connect`], but the client notes in `contacts` when it hears from the API server.
///
/// # Errors
/// As [`connect`].
pub fn connect_noting(config: Config, contacts: Contacts) -> Result<Client, kube::Error> {
    connect_with(config, None, contacts)
}

/// Like [`connect_noting`], with credentials from elsewhere.
pub(crate) fn connect_with(
    mut config: Config,
    credentials: Option<Credentials>,
    contacts: Contacts,
) -> Result<Client, kube::Error> {
    config.headers.push((USER_AGENT, version::user_agent()));
    let connector = connector(&config)?;
    let connections: HyperClient<_, Body> = builder().build(connector);
    let refused = credentials.clone();
    let service = ServiceBuilder::new()
        .map_response(move |response: Response<PageBody>| {
            if response.status() == StatusCode::UNAUTHORIZED {
                refused.iter().for_each(Credentials::refused);
            }
            response
        })
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .option_layer(credentials.map(|it| AsyncFilterLayer::new(move |request| it.clone().add(request))))
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(bounded(connections, contacts));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Bounds requests, and notes when the API server was heard from.
fn bounded<S, B>(
    connections: S,
    contacts: Contacts,
) -> impl Service<Request<Body>, Response = Response<PageBody>, Error = BoxError, Future: Send> + Clone
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static> + Clone,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let bounds = Bounds::new(WHOLE);
    ServiceBuilder::new()
        .layer_fn(move |inner| Noting { inner, contacts: contacts.clone(), bounds: bounds.clone() })
        .timeout(ANSWER)
        .layer(ResponseBodyTimeoutLayer::new(SILENCE))
        .service(connections)
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
    let tcp = Dialer::of_kubeconfig(config.proxy_url.as_ref());
    tcp.check(&config.cluster_url).map_err(|error| kube::Error::Service(error.into()))?;
    let mut connector = TimeoutConnector::new(HttpsConnector::new(tcp, tls, false, names));
    connector.set_connect_timeout(Some(CONNECT));
    Ok(connector)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt, stream};
    use http_body_util::{BodyExt, Full, StreamBody};
    use hyper::body::Frame;
    use kube::Api;
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    use kube::runtime::watcher::Event;
    use parking_lot::Mutex;
    use tokio::sync::watch;
    use tokio::time::{sleep, timeout};
    use tower::service_fn;

    use super::*;
    use crate::listing::{self, Selector, Watch};

    /// What a server does with a watch.
    #[derive(Clone, Copy, PartialEq)]
    enum Mood {
        /// It answers, and sends these bytes after 40 seconds, if there are any.
        Sends(&'static str),
        /// It does not answer.
        Gone,
    }

    const EVENT: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"9\"}}}\n";

    /// A server of ConfigMaps without bookmarks, and what its watches ask for.
    struct Server {
        mood: watch::Sender<Mood>,
        asked: Arc<Mutex<Vec<String>>>,
        contacts: Contacts,
        events: Watch<DynamicObject>,
    }

    impl Server {
        /// It was listed and is now watched.
        async fn start(mood: Mood) -> Self {
            let (mood, now) = watch::channel(mood);
            let asked = Arc::<Mutex<Vec<String>>>::default();
            let versions = asked.clone();
            let answering = service_fn(move |request: Request<Body>| {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let is_watch = query.contains("watch=true");
                if is_watch {
                    versions.lock().push(query.rsplit_once("resourceVersion=").unwrap().1.to_owned());
                }
                let mood = *now.borrow();
                async move {
                    match mood {
                        _ if !is_watch => {}
                        Mood::Gone => std::future::pending().await,
                        Mood::Sends(text) => return Ok::<_, Infallible>(Response::new(sends(text))),
                    }
                    let list = r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#;
                    Ok(Response::new(Full::from(list).map_err(BoxError::from).boxed_unsync()))
                }
            });
            let contacts = Contacts::default();
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
            let client = Client::new(bounded(answering, contacts.clone()), "default");
            let mut events = listing::watch(Api::all_with(client, &kind), Selector::all());
            while !matches!(events.next().await.unwrap().unwrap(), Event::InitDone) {}
            Self { mood, asked, contacts, events }
        }

        fn age(&self) -> Duration {
            self.contacts.age(&["configmaps"]).unwrap()
        }
    }

    /// Sends this, then nothing more.
    fn sends(text: &'static str) -> PageBody {
        let once = stream::once(async move {
            sleep(Duration::from_secs(40)).await;
            Ok(Frame::data(Bytes::from(text)))
        });
        let once = once.filter(move |_| std::future::ready(!text.is_empty()));
        StreamBody::new(once.chain(stream::pending())).boxed_unsync()
    }

    /// Bookmarks have no promised interval: an idle API server was silent for two minutes.
    #[tokio::test(start_paused = true)]
    async fn a_quiet_hour_is_no_failure_and_no_silence() {
        let mut server = Server::start(Mood::Sends(EVENT)).await;
        assert!(matches!(server.events.next().await.unwrap().unwrap(), Event::Apply(_)));
        server.mood.send_replace(Mood::Sends(""));
        for minute in 0..60 {
            let quiet = timeout(Duration::from_secs(60), server.events.next()).await;
            assert!(quiet.is_err(), "{quiet:?} in minute {minute}");
            assert!(server.age() <= SILENCE, "{:?} in minute {minute}", server.age());
        }
        let asked = server.asked.lock().clone();
        assert!((48..50).contains(&asked.len()), "every 75 s: {asked:?}");
        assert!(asked[0] == "7" && asked[1..].iter().all(|version| version == "9"), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn watch_that_cannot_be_resumed_fails_and_counts_as_silence() {
        let mut server = Server::start(Mood::Sends("")).await;
        server.mood.send_replace(Mood::Gone);
        let failed = timeout(SILENCE + ANSWER + Duration::from_secs(1), server.events.next()).await;
        assert!(failed.unwrap().unwrap().is_err());
        assert!(server.age() >= SILENCE + ANSWER, "{:?}", server.age());
        server.mood.send_replace(Mood::Sends(""));
        let quiet = timeout(Duration::from_secs(60), server.events.next()).await;
        assert!(quiet.is_err() && server.age() <= SILENCE, "{quiet:?}");
    }

    /// A server that stops in the middle of an event is not idle.
    #[tokio::test(start_paused = true)]
    async fn silence_within_an_event_is_a_failure() {
        let mut server = Server::start(Mood::Sends(&EVENT[..20])).await;
        let bound = Duration::from_secs(41) + SILENCE;
        assert!(timeout(bound, server.events.next()).await.unwrap().unwrap().is_err());
    }
}
