//! The one way to list and to watch objects: page by page, in bounded memory. A client that may write objects of a kind
//! may make each as large as an API server accepts: 1.5 MB, of which JSON makes up to 9 MB. An object's type decides
//! how much of it is kept; `pages.rs` bounds how much text is received at a time.
#![expect(clippy::disallowed_types, reason = "here they are bounded")]

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::Api;
use kube::api::ListParams;
use kube::core::ObjectList;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::backoff::WatchBackoff;
use crate::pages::is_too_large;

/// How many objects a page has, unless they are too large together.
const PAGE: u32 = 16;
/// How many it has at least: this many are never too large, and a list that is read one by one would take longer than
/// the 5 minutes for which the API server keeps it.
const LEAST: u32 = 2;
/// How long events may wait for the reader. Then the watch stops reading, so that a reader that hangs is noticed.
const HANGS: Duration = Duration::from_secs(60);
/// How often to check that.
const ROUND: Duration = Duration::from_secs(15);
/// How many events may wait for the reader of a watch.
const WAITING: usize = 16;
/// How often to repeat a request that an API server refuses for now, because it is overloaded or only beginning to
/// serve such objects.
const TRIES: u32 = 10;
/// The pause that it requests (`Retry-After` of kube-apiserver).
const LATER: Duration = Duration::from_secs(1);

/// Which objects of a kind.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    labels: Option<String>,
    fields: Option<String>,
}

impl Selector {
    /// All.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Those that match a label selector.
    #[must_use]
    pub fn labels(selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..Self::default() }
    }

    /// Those that match a field selector.
    #[must_use]
    pub fn fields(selector: &str) -> Self {
        Self { fields: Some(selector.to_owned()), ..Self::default() }
    }

    fn pages(&self, page: u32) -> ListParams {
        let Self { labels, fields } = self.clone();
        ListParams { label_selector: labels, field_selector: fields, limit: Some(page), ..ListParams::default() }
    }

    fn config(&self, page: u32) -> watcher::Config {
        let Self { labels, fields } = self.clone();
        watcher::Config { label_selector: labels, field_selector: fields, ..watcher::Config::default().page_size(page) }
    }
}

/// What a watch reports, from its first list on. Dropping it ends the watch.
///
/// A task of its own reads the responses, so that a busy reader does not keep other lists waiting.
#[derive(Debug)]
pub struct Watch<K> {
    events: mpsc::Receiver<watcher::Result<Event<K>>>,
    _reading: AbortOnDropHandle<()>,
}

impl<K> Stream for Watch<K> {
    type Item = watcher::Result<Event<K>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context)
    }
}

/// Watches objects. After an error it pauses and continues; only a bug ends it.
#[must_use]
pub fn watch<K>(api: Api<K>, selected: Selector) -> Watch<K>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let (sender, events) = mpsc::channel(WAITING);
    Watch { events, _reading: AbortOnDropHandle::new(tokio::spawn(read(api, selected, sender))) }
}

async fn read<K>(api: Api<K>, selected: Selector, events: mpsc::Sender<watcher::Result<Event<K>>>)
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut page = PAGE;
    let mut taken = Instant::now();
    loop {
        let mut watched = watcher(api.clone(), selected.config(page)).backoff(WatchBackoff::default()).boxed();
        loop {
            let event = match timeout(ROUND, watched.next()).await {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(_) if events.is_closed() => return,
                Err(_) => {
                    if events.capacity() == WAITING {
                        taken = Instant::now();
                    } else if taken.elapsed() > HANGS {
                        drop(events.reserve_many(WAITING).await); // it is closed, or all was taken
                    }
                    continue;
                }
            };
            let is_error = event.is_err();
            let halves = page > LEAST && matches!(&event, Err(error) if is_too_large(error));
            // The reader need not know of a page that is requested again.
            if !halves && events.send(event).await.is_err() {
                return;
            }
            // The list begins again with smaller pages.
            if halves {
                page /= 2;
                break;
            }
            // The next list begins with large pages again.
            if is_error && page < PAGE {
                page = PAGE;
                sleep(LATER).await;
                break;
            }
        }
    }
}

/// A list, page by page, so that no more than one page is ever held.
#[derive(Debug)]
pub struct Pages<K> {
    api: Api<K>,
    selected: Selector,
    size: u32,
    after: Option<String>,
    has_ended: bool,
}

impl<K: Clone + DeserializeOwned + std::fmt::Debug> Pages<K> {
    /// The list of these objects.
    pub fn new(api: Api<K>, selected: Selector) -> Self {
        Self { api, selected, size: PAGE, after: None, has_ended: false }
    }

    /// The next page; `None` after the last one.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn next(&mut self) -> kube::Result<Option<Vec<K>>> {
        if self.has_ended {
            return Ok(None);
        }
        let page = loop {
            let params = ListParams { continue_token: self.after.clone(), ..self.selected.pages(self.size) };
            match list_retrying(&self.api, &params).await {
                Err(error) if self.size > LEAST && is_too_large(&error) => self.size /= 2,
                listed => break listed?,
            }
        };
        self.size = (2 * self.size).min(PAGE); // those that follow may be small
        self.after = page.metadata.continue_.filter(|token| !token.is_empty());
        self.has_ended = self.after.is_none();
        Ok(Some(page.items))
    }
}

/// Passes `take` all objects, page after page.
///
/// # Errors
/// Those of the API server. `take` may have seen a part of the objects.
pub async fn each<K>(api: Api<K>, selected: Selector, mut take: impl FnMut(K)) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut pages = Pages::new(api, selected);
    while let Some(page) = pages.next().await? {
        page.into_iter().for_each(&mut take);
    }
    Ok(())
}

/// All objects. For kinds of which few exist.
///
/// # Errors
/// Those of the API server.
pub async fn all<K>(api: Api<K>, selected: Selector) -> kube::Result<Vec<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut found = Vec::new();
    each(api, selected, |object| found.push(object)).await?;
    Ok(found)
}

/// One object, if there is any; an error if the kind does not exist or may not be listed.
///
/// # Errors
/// Those of the API server.
pub async fn any<K>(api: &Api<K>, selected: &Selector) -> kube::Result<Option<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    Ok(api.list(&selected.pages(1)).await?.items.pop())
}

async fn list_retrying<K>(api: &Api<K>, params: &ListParams) -> kube::Result<ObjectList<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    for _ in 1..TRIES {
        match api.list(params).await {
            Err(kube::Error::Api(status)) if status.code == 429 => sleep(LATER).await,
            answered => return answered,
        }
    }
    api.list(params).await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use hyper::{Request, Response};
    use kube::client::Body;
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    use kube::{Client, ResourceExt};
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::*;
    use crate::contacts::{Contacts, Noting};
    use crate::pages::Bounds;

    /// An API that answers each query with the code and JSON that `answer` returns for it.
    fn mk_api(answer: impl Fn(&str) -> (u16, Value) + Clone + Send + 'static) -> Api<DynamicObject> {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, answer) = answer(request.uri().query().unwrap_or_default());
            async move {
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let bounds = Bounds::new(Duration::from_secs(60));
        let service = Noting { inner: service.map_err(tower::BoxError::from), contacts: Contacts::default(), bounds };
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        Api::all_with(Client::new(service, "default"), &kind)
    }

    /// The value of a parameter of a query, as a number.
    fn number(query: &str, name: &str) -> usize {
        let value = query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    /// Refuses the first `busy` requests for now, then answers with two pages.
    async fn names(busy: u32) -> Result<Vec<String>, u16> {
        let asked = Arc::<AtomicU32>::default();
        let api = mk_api(move |query| {
            let is_busy = asked.fetch_add(1, Ordering::Relaxed) < busy;
            assert_eq!(number(query, "limit"), 16);
            let (name, next) = if query.contains("continue=more") { ("b", "") } else { ("a", "more") };
            let later = json!({ "kind": "Status", "status": "Failure", "code": 429, "message": "", "reason": "" });
            let page = json!({ "metadata": { "continue": next }, "items": [{ "metadata": { "name": name } }] });
            if is_busy { (429, later) } else { (200, page) }
        });
        match all(api, Selector::all()).await {
            Ok(found) => Ok(found.iter().map(ResourceExt::name_any).collect()),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(error) => panic!("{error}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_pages_are_read_and_busy_server_is_asked_again() {
        for busy in [0, 1, TRIES - 1] {
            assert_eq!(names(busy).await, Ok(vec!["a".to_owned(), "b".to_owned()]), "{busy}");
        }
        assert_eq!(names(TRIES).await, Err(429));
    }

    /// An API with 20 objects of 2 MiB.
    fn mk_large() -> (Api<DynamicObject>, Arc<parking_lot::Mutex<Vec<usize>>>) {
        let limits = Arc::<parking_lot::Mutex<Vec<usize>>>::default();
        let seen = Arc::clone(&limits);
        let api = mk_api(move |query| {
            let (limit, from) = (number(query, "limit"), number(query, "continue"));
            seen.lock().push(limit);
            let to = (from + limit).min(20);
            let padding = "x".repeat(2 << 20);
            let object = |at| json!({ "metadata": { "name": format!("{at}") }, "padding": padding });
            let next = if to == 20 { String::new() } else { to.to_string() };
            let items: Vec<Value> = (from..to).map(object).collect();
            (200, json!({ "metadata": { "continue": next, "resourceVersion": "1" }, "items": items }))
        });
        (api, limits)
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_asked_for_by_halves() {
        let (api, limits) = mk_large();
        let names = |found: Vec<DynamicObject>| found.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        let expected: Vec<String> = (0..20).map(|at| at.to_string()).collect();
        assert_eq!(names(all(api, Selector::all()).await.unwrap()), expected);
        assert_eq!(*limits.lock(), [16, 8, 16, 8, 16]);
        let (api, limits) = mk_large();
        let mut events = watch(api, Selector::all());
        let mut shown = Vec::new();
        loop {
            match events.next().await.unwrap().unwrap() {
                Event::Init => shown.clear(),
                Event::InitApply(object) => shown.push(object),
                Event::InitDone => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(names(shown), expected);
        assert_eq!(limits.lock()[..4], [16, 8, 8, 8]);
    }
}
