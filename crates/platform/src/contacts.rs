//! When the API server was last heard from on each watch.
//!
//! What a watch has reported is as old as the last sign of life on it: an API server sends a bookmark each minute if it
//! can (kube-apiserver, `defaultBookmarkFrequency`), and ends a watch after the time that its reader asked for. A watch
//! that was silent for too long ends here, and its reader resumes it at the same version. The API server's response to
//! that is a sign of life, too; only without one has anything failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as HttpBody, Bytes};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Service};
use tower_http::timeout::TimeoutError;
use tracing::debug;

use crate::pages::{Bounds, PageBody};

/// The beginning of the event that reports why a watch cannot continue, for instance because its version was compacted.
const ERROR: &[u8] = br#"{"type":"ERROR""#;

/// The name of a resource in a namespace, also for messages.
#[must_use]
pub fn in_namespace(resource: &str, namespace: &str) -> String {
    format!("{resource} in the namespace {namespace}")
}

/// The resource that a path lists or watches, if it does. Source: Kubernetes, API concepts, "Resource URIs".
fn watched(path: &str) -> String {
    let mut parts = path.rsplit('/');
    let resource = parts.next().unwrap_or_default();
    match (parts.next(), parts.next()) {
        (Some(namespace), Some("namespaces")) => in_namespace(resource, namespace),
        _ => resource.to_owned(),
    }
}

/// What is known about the watches of one resource.
#[derive(Debug, Clone, Copy)]
struct Contact {
    /// When the API server last sent something on a watch; when the first watch was requested, if it never did.
    heard: Instant,
    /// When a watch last delivered something, or a request was made to start one.
    active: Instant,
    /// With which status the API server has refused a request since then.
    refused: Option<StatusCode>,
}

impl Contact {
    fn new(heard: Instant, active: Instant) -> Self {
        Self { heard, active, refused: None }
    }
}

/// The contacts of a client, by the plural names of resources, or by these and a namespace ([`in_namespace`]).
#[derive(Debug, Clone, Default)]
pub struct Contacts(Arc<Mutex<HashMap<String, Contact>>>);

impl Contacts {
    /// How long ago the API server was last heard from on the watches of these resources: the longest of these times.
    /// `None` if one of them was never requested.
    pub fn age(&self, resources: &[&str]) -> Option<Duration> {
        let known = self.0.lock();
        let heard = resources.iter().map(|resource| Some(known.get(*resource)?.heard.elapsed()));
        heard.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The status with which the API server refuses requests about one of these resources, if it does.
    pub fn refusal(&self, resources: &[&str]) -> Option<StatusCode> {
        let known = self.0.lock();
        resources.iter().find_map(|resource| known.get(*resource)?.refused)
    }

    /// The resources whose watch neither delivered anything nor was requested within `bound`, because its reader hangs.
    /// While the API server is silent, readers keep asking. A resource that was never watched is not idle.
    pub fn idle<'r>(&self, resources: &[&'r str], bound: Duration) -> Vec<&'r str> {
        let known = self.0.lock();
        let is_idle = |resource: &str| known.get(resource).is_some_and(|contact| contact.active.elapsed() > bound);
        resources.iter().copied().filter(|resource| is_idle(resource)).collect()
    }

    /// The same for resources in namespaces, whichever these are.
    pub fn idle_in_namespaces(&self, resources: &[&str], bound: Duration) -> Vec<String> {
        let is_one = |name: &str| resources.iter().any(|it| name.starts_with(&in_namespace(it, "")));
        let known = self.0.lock();
        let mut idle: Vec<String> = known
            .iter()
            .filter(|(name, contact)| is_one(name) && contact.active.elapsed() > bound)
            .map(|(name, _)| name.clone())
            .collect();
        idle.sort_unstable();
        idle
    }

    /// Forgets a watch that is no longer needed.
    pub fn forget(&self, resource: &str) {
        self.0.lock().remove(resource);
    }

    /// Notes that the API server answered a request about this resource, other than a watch, that was sent then.
    pub fn answered(&self, resource: &str, sent: Instant) {
        self.0.lock().insert(resource.to_owned(), Contact::new(sent, sent));
    }

    /// Notes a request; returns when the watches of its resource last delivered something.
    fn asked(&self, resource: &str, is_watch: bool) -> Instant {
        let now = Instant::now();
        let mut known = self.0.lock();
        match known.get_mut(resource) {
            Some(contact) => {
                contact.active = now;
                return contact.heard;
            }
            None if is_watch => drop(known.insert(resource.to_owned(), Contact::new(now, now))),
            None => {}
        }
        now
    }

    fn refused(&self, resource: &str, status: StatusCode) {
        if let Some(contact) = self.0.lock().get_mut(resource) {
            contact.refused = Some(status);
        }
    }

    fn heard_at(&self, resource: &str, heard: Instant) {
        if let Some(contact) = self.0.lock().get_mut(resource) {
            *contact = Contact::new(heard, Instant::now());
        }
    }
}

/// A client's service that notes its contacts, and bounds every response except watches.
#[derive(Debug, Clone)]
pub(crate) struct Noting<S> {
    pub(crate) inner: S,
    pub(crate) contacts: Contacts,
    /// Those of all responses but watches.
    pub(crate) bounds: Bounds,
}

impl<S, B> Service<Request<Body>> for Noting<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<PageBody>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let resource = watched(request.uri().path());
        let asks =
            |wanted: &str| request.uri().query().is_some_and(|query| query.split('&').any(|it| it.starts_with(wanted)));
        let (is_watch, is_page) = (asks("watch=true"), asks("limit="));
        let mut last = self.contacts.asked(&resource, is_watch);
        let contacts = self.contacts.clone();
        let bounds = self.bounds.clone();
        let answer = self.inner.call(request);
        async move {
            let response = answer.await?;
            if !response.status().is_success() {
                contacts.refused(&resource, response.status());
            }
            if !is_watch || !response.status().is_success() {
                return Ok(response.map(|body| bounds.apply(boxed(body), is_page)));
            }
            contacts.heard_at(&resource, Instant::now());
            let name = resource.clone();
            let noted = response.map(|body| {
                boxed(body.map_frame(move |frame| {
                    // Each event is a line. A part of one is no sign of life, because no reader can use it yet. After
                    // an error the watch cannot continue, so what it has reported keeps its age until the resource is
                    // listed again.
                    let data = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
                    if data.split(|byte| *byte == b'\n').any(|line| line.starts_with(ERROR)) {
                        contacts.heard_at(&resource, last);
                    } else if data.contains(&b'\n') {
                        last = Instant::now();
                        contacts.heard_at(&resource, last);
                    }
                    frame
                }))
            });
            Ok(noted.map(|body| ending(body, name)))
        }
        .boxed()
    }
}

/// A watch ends after an event of more bytes: the reader keeps the buffer of its largest event for as long as the watch
/// lasts, and JSON may have six bytes for each one that an object has.
const LARGE_EVENT: usize = 1 << 20;

/// The response to a watch, which ends if the API server is silent for too long between two events, and after a large
/// one. Then it is resumed where it was.
fn ending(watch: PageBody, resource: String) -> PageBody {
    // How many bytes of an unended event came, and whether an event was large.
    let begin = (0_usize, false);
    let frames =
        stream::unfold((watch, resource, begin), |(mut watch, resource, (mut unended, mut is_large))| async move {
            if is_large && unended == 0 {
                return None;
            }
            let frame = watch.frame().await?;
            match &frame {
                Err(error) if unended == 0 && error.is::<TimeoutError>() => {
                    debug!(resource, "A watch was silent; resuming it");
                    return None;
                }
                Ok(frame) => {
                    let data = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
                    for piece in data.split_inclusive(|byte| *byte == b'\n') {
                        unended = unended.saturating_add(piece.len());
                        is_large |= unended > LARGE_EVENT;
                        if piece.ends_with(b"\n") {
                            unended = 0;
                        }
                    }
                }
                Err(_) => {}
            }
            Some((frame, (watch, resource, (unended, is_large))))
        });
    StreamBody::new(frames).boxed_unsync()
}

fn boxed<B>(body: B) -> PageBody
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::body::Frame;
    use tower::{ServiceExt, service_fn};

    use super::*;

    const BOUND: Duration = Duration::from_secs(60);

    /// Requests `path` from a server that sends these pieces, one each second.
    async fn ask<P>(contacts: &Contacts, path: &str, pieces: P) -> PageBody
    where
        P: Iterator<Item = &'static str> + Clone + Send + 'static,
    {
        let inner = service_fn(move |_: Request<Body>| {
            let frames = stream::unfold(pieces.clone(), |mut pieces| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let piece = Bytes::from_static(pieces.next()?.as_bytes());
                Some((Ok::<_, Infallible>(Frame::data(piece)), pieces))
            });
            std::future::ready(Ok::<_, Infallible>(Response::new(StreamBody::new(frames))))
        });
        let noting = Noting { inner, contacts: contacts.clone(), bounds: Bounds::new(BOUND) };
        noting.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap().into_body()
    }

    #[tokio::test(start_paused = true)]
    async fn trickling_answer_times_out_and_a_watch_does_not() {
        let contacts = Contacts::default();
        let whole = ask(&contacts, "/apis/g/v1/things", ["x"; 50].into_iter()).await.collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "x".repeat(50));
        let began = Instant::now();
        let endless = ask(&contacts, "/apis/g/v1/things", std::iter::repeat("x")).await;
        let error = endless.collect().await.unwrap_err();
        assert_eq!(error.to_string(), "the API server did not end its answer within 60 s");
        assert_eq!(began.elapsed(), BOUND);
        let watch = ask(&contacts, "/apis/g/v1/things?watch=true", ["x\n"; 100].into_iter()).await;
        assert_eq!(watch.collect().await.unwrap().to_bytes().len(), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_ends_after_a_large_event() {
        let piece: &'static str = Box::leak("x".repeat(LARGE_EVENT).into_boxed_str());
        let pieces = ["small\n", piece, "x", "\n", "never\n"].into_iter();
        let watch = ask(&Contacts::default(), "/apis/g/v1/things?watch=true", pieces).await;
        let read = watch.collect().await.unwrap().to_bytes();
        assert_eq!(read.len(), "small\nx\n".len() + LARGE_EVENT);
        let burst: &'static str = Box::leak("\nx".repeat(LARGE_EVENT / 4).into_boxed_str());
        let watch = ask(&Contacts::default(), "/apis/g/v1/things?watch=true", [burst; 4].into_iter()).await;
        assert_eq!(watch.collect().await.unwrap().to_bytes().len(), 4 * burst.len(), "small events, however many");
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_an_event_is_no_sign_of_life() {
        let contacts = Contacts::default();
        let mut watch = ask(&contacts, "/apis/g/v1/things?watch=true", ["{", "}", "\n{"].into_iter()).await;
        let long_ago = Instant::now().checked_sub(2 * BOUND).unwrap();
        *contacts.0.lock().get_mut("things").unwrap() = Contact::new(long_ago, long_ago);
        for is_event in [false, false, true] {
            watch.frame().await.unwrap().unwrap();
            assert_eq!(contacts.age(&["things"]).unwrap() < BOUND, is_event);
            assert_eq!(contacts.idle(&["things"], BOUND).is_empty(), is_event);
        }
    }

    #[test]
    fn knowledge_is_as_old_as_the_oldest_contact() {
        let contacts = Contacts::default();
        contacts.asked("a", true);
        contacts.asked("b", false);
        assert_eq!(contacts.age(&["a", "b"]), None, "nobody watches b");
        contacts.asked("b", true);
        let long_ago = Instant::now().checked_sub(BOUND).unwrap();
        contacts.heard_at("a", long_ago);
        assert!(contacts.age(&["a", "b"]).unwrap() >= BOUND);
        assert!(contacts.age(&["b"]).unwrap() < BOUND);
        contacts.heard_at("b", long_ago);
        contacts.asked("b", true);
        assert!(contacts.age(&["b"]).unwrap() >= BOUND, "to ask is not to hear, also before the first answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_known_until_the_watch_is_heard() {
        let contacts = Contacts::default();
        let ask = async |status: StatusCode| {
            let answer = move |_| {
                let mut response = Response::new(StreamBody::new(stream::empty::<Result<Frame<Bytes>, Infallible>>()));
                *response.status_mut() = status;
                std::future::ready(Ok::<_, Infallible>(response))
            };
            let noting = Noting { inner: service_fn(answer), contacts: contacts.clone(), bounds: Bounds::new(BOUND) };
            let request = Request::get("/apis/g/v1/things?watch=true").body(Body::empty()).unwrap();
            noting.oneshot(request).await.unwrap();
            contacts.refusal(&["others", "things"])
        };
        assert_eq!(ask(StatusCode::UNAUTHORIZED).await, Some(StatusCode::UNAUTHORIZED));
        assert_eq!(ask(StatusCode::OK).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_cannot_continue_has_shown_nothing_new() {
        const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n";
        let contacts = Contacts::default();
        contacts.asked("things", true);
        let long_ago = Instant::now().checked_sub(BOUND).unwrap();
        contacts.heard_at("things", long_ago);
        let mut watch = ask(&contacts, "/apis/g/v1/things?watch=true", [EXPIRED].into_iter()).await;
        watch.frame().await.unwrap().unwrap();
        assert!(contacts.age(&["things"]).unwrap() >= BOUND);
        let mut watch = ask(&contacts, "/apis/g/v1/things?watch=true", ["{}\n", EXPIRED].into_iter()).await;
        for _ in 0..2 {
            watch.frame().await.unwrap().unwrap();
            assert!(contacts.age(&["things"]).unwrap() < BOUND, "what it has told before is new");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_of_one_namespace_is_told_from_that_of_another() {
        let contacts = Contacts::default();
        for path in ["/api/v1/namespaces/a/services", "/api/v1/namespaces/b/services", "/api/v1/services"] {
            contacts.asked(&watched(path), true);
        }
        tokio::time::advance(2 * BOUND).await;
        contacts.asked(&watched("/api/v1/namespaces/b/services"), true);
        let idle = || contacts.idle_in_namespaces(&["services"], BOUND);
        assert_eq!(idle(), ["services in the namespace a"]);
        contacts.forget(&in_namespace("services", "a"));
        assert!(idle().is_empty(), "nobody needs it any more");
    }

    #[test]
    fn a_watch_that_nobody_heard_or_asked_for_is_idle() {
        let contacts = Contacts::default();
        contacts.asked("lists", false);
        contacts.asked("watches", true);
        let long_ago = Instant::now().checked_sub(2 * BOUND).unwrap();
        let age = |contacts: &Contacts| contacts.0.lock().values_mut().for_each(|contact| contact.active = long_ago);
        age(&contacts);
        assert_eq!(contacts.idle(&["lists", "watches", "others"], BOUND), ["watches"]);
        contacts.asked("watches", false);
        assert!(contacts.idle(&["watches"], BOUND).is_empty(), "a list that comes before the next watch");
        age(&contacts);
        contacts.heard_at("watches", Instant::now());
        assert!(contacts.idle(&["watches"], BOUND).is_empty());
    }
}
