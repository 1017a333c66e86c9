//! Watches: replayed and live changes, bookmarks, streaming lists.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::answers::{Body, View, with_type};
use super::selectors::Selector;
use super::state::Hub;
use super::status::ApiError;
use super::store::{Change, Store};
use super::target::{Query, Target};
use super::{answers, fields, listing};

/// How often an idle watch sends a bookmark. kube-apiserver sends one about every minute; this is shorter so that tests
/// get bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(10);
/// `--min-request-timeout` of kube-apiserver: the time limit of a watch without `timeoutSeconds`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// Starts a watch.
pub(super) fn start(hub: &Arc<Hub>, target: &Target, query: &Query, view: View) -> Result<Response<Body>, ApiError> {
    let timeout = query.number("timeoutSeconds")?.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let now = Instant::now();
    let mut watch = Watch {
        hub: Arc::clone(hub),
        changed: hub.changes(),
        filter: Filter { target: target.clone(), selector: listing::selector(target, query)?, view },
        ready: VecDeque::new(),
        seen: 0,
        bookmarks: query.flag("allowWatchBookmarks"),
        bookmark_at: now + BOOKMARK_EVERY,
        ends_at: now + timeout,
        over: false,
    };
    let initial = query.flag("sendInitialEvents");
    match query.number("resourceVersion")?.filter(|_| !initial) {
        None | Some(0) => watch.send_current(initial),
        Some(revision) => watch.seen = revision,
    }
    watch.catch_up()?;
    let body = stream::unfold(watch, |mut watch| async {
        let line = watch.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(line)), watch))
    });
    let body = StreamBody::new(body).boxed_unsync();
    Ok(with_type("application/json", body))
}

/// One open watch.
struct Watch {
    hub: Arc<Hub>,
    changed: watch::Receiver<u64>,
    filter: Filter,
    ready: VecDeque<Bytes>,
    /// The watch has handled all changes up to this revision.
    seen: u64,
    bookmarks: bool,
    bookmark_at: Instant,
    ends_at: Instant,
    over: bool,
}

/// Selects the changes that the watch shows, and their form.
struct Filter {
    target: Target,
    selector: Selector,
    view: View,
}

impl Watch {
    /// The next line, or the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.over {
                return None;
            }
            let wake = self.ends_at.min(self.bookmark_at);
            let stop = self.hub.stop.clone();
            tokio::select! {
                () = stop.cancelled() => return None,
                changed = self.changed.changed() => changed.ok()?, // the hub was dropped
                () = tokio::time::sleep_until(wake) => self.on_time(),
            }
            if let Err(error) = self.catch_up() {
                self.ready.push_back(line("ERROR", &error.status()));
                self.over = true;
            }
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        self.over = now >= self.ends_at;
        if self.bookmarks {
            self.ready.push_back(self.bookmark(json!({})));
        }
        self.bookmark_at = now + BOOKMARK_EVERY;
    }

    fn bookmark(&self, annotations: Value) -> Bytes {
        let resource = self.filter.target.resource;
        let metadata = json!({ "resourceVersion": self.seen.to_string(), "annotations": annotations,
            "creationTimestamp": null });
        let object = json!({ "kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata });
        line("BOOKMARK", &self.filter.view.one(&object))
    }

    /// Sends the current objects, each as `ADDED`. A streaming list ends with a bookmark that marks the end.
    fn send_current(&mut self, streaming: bool) {
        let (lines, revision) = self.hub.read(|store| (self.filter.current(store), store.revision()));
        self.ready.extend(lines);
        self.seen = revision;
        if streaming {
            let end = json!({ "k8s.io/initial-events-end": "true" });
            self.ready.push_back(self.bookmark(end));
        }
    }

    /// Reads the changes that this watch has not handled yet.
    fn catch_up(&mut self) -> Result<(), ApiError> {
        let seen = self.seen;
        let plural = self.filter.target.resource.plural;
        let (lines, revision) = self.hub.read(|store| {
            let changes = store
                .since(plural, seen)
                .map_err(|compacted| ApiError::Expired { requested: seen, oldest: compacted.oldest })?;
            let lines: Vec<Bytes> = changes.filter_map(|c| self.filter.shown(c)).collect();
            Ok::<_, ApiError>((lines, store.revision()))
        })?;
        self.ready.extend(lines);
        self.seen = revision.max(seen);
        Ok(())
    }
}

impl Filter {
    fn current(&self, store: &Store) -> Vec<Bytes> {
        listing::selected(store, &self.target, &self.selector)
            .map(|(_, object)| line("ADDED", &self.view.one(&object)))
            .collect()
    }

    /// The event of a change for this watch. An object that begins to match is `ADDED`; one that no longer matches is
    /// `DELETED`.
    fn shown(&self, change: &Change) -> Option<Bytes> {
        let elsewhere = self.target.namespace.as_ref();
        if elsewhere.is_some_and(|namespace| *namespace != change.namespace) {
            return None;
        }
        let show = |object: &Value| answers::to_shown(self.target.resource, object);
        let mut object = show(&change.object);
        let before = change.before.as_ref().map(|before| show(before));
        let before = before.filter(|before| self.selector.matches(before));
        let is = !change.deleted && self.selector.matches(&object);
        let kind = match (&before, is) {
            (None, true) => "ADDED",
            (Some(_), true) => "MODIFIED",
            (Some(_), false) => "DELETED",
            (None, false) => return None,
        };
        if let (Some(before), false, false) = (before, is, change.deleted) {
            // Like the real server, this sends the last state that matched, with the revision of the change.
            let revision = fields::text(&object, "metadata.resourceVersion").to_owned();
            object = before;
            fields::set(&mut object, "metadata.resourceVersion", revision);
        }
        Some(line(kind, &self.view.one(&object)))
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({ "type": kind, "object": object })))
}
