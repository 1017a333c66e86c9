//! A proxy in front of an API server that stops a program at one of its writes, so that a test can kill it there. The
//! program speaks plain HTTP with it; the API server sees whoever the proxy's client is.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HOST};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use kube::config::Kubeconfig;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// At which moment of a write everything stops.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Moment {
    /// The API server never gets the write.
    Before,
    /// The API server has done what was written, and the program never gets the answer.
    After,
    /// The write is under way. [`Gate::deliver`] brings it to the API server, perhaps long after the program was
    /// killed.
    Late,
}

/// A write on its way to the API server.
pub struct Written {
    /// The path, without a query.
    pub path: String,
    pub body: Value,
}

type IsIt = Arc<dyn Fn(&Written) -> bool + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, <Body as hyper::body::Body>::Error>>;

#[derive(Clone)]
enum Mode {
    Open,
    /// Open until the next write that is the one.
    Until(IsIt, Moment),
    /// The write is with the API server, and everything else waits: a write that is refused was none.
    Asking,
    Stopped,
}

/// A proxy on 127.0.0.1, open at first. Dropping it closes it.
pub struct Gate {
    address: SocketAddr,
    wire: Arc<Wire>,
    connections: Arc<Mutex<JoinSet<()>>>,
    _accepting: AbortOnDropHandle<()>,
}

struct Wire {
    client: Client,
    mode: watch::Sender<Mode>,
    held: Mutex<Option<Request<Bytes>>>,
    /// The paths of all writes that were done, and the `resourceVersion` that each has led to.
    done: Mutex<Vec<(String, String)>>,
}

impl Gate {
    /// Starts a proxy that forwards to the server of this client.
    pub async fn in_front_of(client: Client) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mode = watch::Sender::new(Mode::Open);
        let wire = Arc::new(Wire { client, mode, held: Mutex::default(), done: Mutex::default() });
        let connections = Arc::<Mutex<JoinSet<()>>>::default();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&wire), Arc::clone(&connections)));
        Self { address, wire, connections, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// A kubeconfig for the program.
    pub fn kubeconfig(&self) -> Kubeconfig {
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "gate", "cluster": { "server": format!("http://{}", self.address) } }],
            "users": [{ "name": "user", "user": {} }],
            "contexts": [{ "name": "default", "context": { "cluster": "gate", "user": "user" } }],
            "current-context": "default",
        }))
        .unwrap()
    }

    /// Stops everything at this moment of the next write for which `is_it` holds.
    pub fn stop_at(&self, moment: Moment, is_it: impl Fn(&Written) -> bool + Send + Sync + 'static) {
        self.wire.mode.send_replace(Mode::Until(Arc::new(is_it), moment));
    }

    /// Waits until everything has stopped.
    pub async fn stopped(&self) {
        self.wire.mode.subscribe().wait_for(|mode| matches!(mode, Mode::Stopped)).await.unwrap();
    }

    /// Opens the proxy again. All connections that there were are closed.
    pub fn open(&self) {
        let earlier = std::mem::take(&mut *self.connections.lock());
        drop(earlier);
        self.wire.mode.send_replace(Mode::Open);
    }

    /// Brings the write that was under way to the API server; returns its answer.
    pub async fn deliver(&self) -> StatusCode {
        let held = self.wire.held.lock().take().expect("a write is under way");
        self.wire.send(held).await.unwrap().status()
    }

    /// The `resourceVersion` after each write of the object at this path that was done so far.
    pub fn versions_of(&self, path: &str) -> Vec<String> {
        let done = self.wire.done.lock();
        done.iter().filter(|(of, _)| of == path).map(|(_, version)| version.clone()).collect()
    }
}

async fn accept(listener: TcpListener, wire: Arc<Wire>, connections: Arc<Mutex<JoinSet<()>>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let wire = Arc::clone(&wire);
        let serving = async move {
            let service = service_fn(move |request| {
                let wire = Arc::clone(&wire);
                async move { wire.pass(request).await }
            });
            // Either side ends as it likes.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        };
        let mut connections = connections.lock();
        connections.spawn(serving);
        while connections.try_join_next().is_some() {}
    }
}

impl Wire {
    async fn pass(&self, request: Request<Incoming>) -> Result<Answer, kube::Error> {
        let (mut parts, body) = request.into_parts();
        parts.headers.remove(HOST);
        parts.headers.remove(CONNECTION);
        let Ok(body) = body.collect().await else { std::future::pending().await }; // the program is gone
        let request = Request::from_parts(parts, body.to_bytes());
        if request.method() == Method::GET {
            return self.send(request).await;
        }
        match self.wait_turn(&request).await {
            None => self.note(request).await,
            Some((until, Moment::After)) => {
                let answer = self.note(request).await?;
                let is_done = answer.status().is_success();
                self.mode.send_replace(if is_done { Mode::Stopped } else { until });
                if is_done { std::future::pending().await } else { Ok(answer) }
            }
            Some((_, moment)) => {
                *self.held.lock() = (moment == Moment::Late).then_some(request);
                self.mode.send_replace(Mode::Stopped);
                std::future::pending().await
            }
        }
    }

    /// Waits until a write may pass. If it is the one, everything else waits from now on: returns the mode before that,
    /// and the moment.
    async fn wait_turn(&self, request: &Request<Bytes>) -> Option<(Mode, Moment)> {
        let body = serde_json::from_slice(request.body()).unwrap_or_default();
        let written = Written { path: request.uri().path().to_owned(), body };
        let mut modes = self.mode.subscribe();
        loop {
            let mut found = None;
            self.mode.send_if_modified(|mode| match mode {
                Mode::Until(is_it, moment) if is_it(&written) => {
                    let moment = *moment;
                    found = Some((std::mem::replace(mode, Mode::Asking), moment));
                    true
                }
                _ => false,
            });
            if found.is_some() {
                return found;
            }
            match &*modes.borrow_and_update() {
                Mode::Open | Mode::Until(..) => return None,
                Mode::Asking | Mode::Stopped => {}
            }
            modes.changed().await.unwrap();
        }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Answer, kube::Error> {
        let answer = self.client.send(request.map(|bytes| Body::from(bytes.to_vec()))).await?;
        Ok(answer.map(BodyExt::boxed_unsync))
    }

    /// Sends a write, and notes it if it was done.
    async fn note(&self, request: Request<Bytes>) -> Result<Answer, kube::Error> {
        let path = request.uri().path().to_owned();
        let (parts, body) = self.send(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let object: Value = serde_json::from_slice(&body).unwrap_or_default();
        if let Some(version) = object["metadata"]["resourceVersion"].as_str().filter(|_| parts.status.is_success()) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let of = if path.ends_with(name) { path } else { format!("{path}/{name}") }; // a new object
            self.done.lock().push((of, version.to_owned()));
        }
        let body = http_body_util::Full::from(body).map_err(|never| match never {});
        Ok(Response::from_parts(parts, body.boxed_unsync()))
    }
}
