//! Reads the Services that accepted AddOnRoutes name, and their EndpointSlices, by one watch of each kind in each of
//! their namespaces. The hub watches no other namespace and keeps no other Service.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::services::KnownServices;
use addon_signer_api::Guarded;
use addon_signer_api::route_rules::slices_of;
use addon_signer_core::gateway::routing::{Backends, WantedServices};
use addon_signer_platform::contacts::{Contacts, in_namespace};
use addon_signer_platform::listing::{Selector, watch as watch_objects};
use addon_signer_telemetry::pulse::Pulse;

/// What is watched in each of the namespaces.
const WATCHED: [&str; 2] = ["services", "endpointslices"];
/// Pause that collects further changes of what is wanted or known: the owners of AddOnRoutes and Services must not be
/// able to keep a processor busy.
const PAUSE: Duration = Duration::from_millis(50);
/// The shortest time between two starts of the watches of a namespace, whose lists may be long.
const AGAIN: Duration = Duration::from_secs(3);
/// The shortest time between two lists that find EndpointSlices that did not fit before.
const LIST_PAUSE: Duration = Duration::from_secs(30);
/// How often there is a sign of life while nothing changes.
const QUIET: Duration = Duration::from_secs(15);

/// What was read, by namespaces.
pub(super) type AllBackends = BTreeMap<String, Backends>;

/// The watches of a namespace.
struct Following {
    names: BTreeSet<String>,
    since: Instant,
    stop: CancellationToken,
}

/// Keeps the Services up to date until `wanted` has no sender any more.
///
/// When further Services of a namespace are wanted, its watches restart, and the known ones stay until the lists are
/// complete.
pub(super) async fn keep(
    client: Client,
    contacts: Contacts,
    mut wanted: watch::Receiver<WantedServices>,
    known: watch::Sender<AllBackends>,
    pulse: Pulse,
) {
    let mut following = BTreeMap::<String, Following>::new();
    let (mut tasks, mut stopped) = (JoinSet::new(), Vec::new());
    loop {
        pulse.beat();
        let services = wanted.borrow_and_update().clone();
        let mut is_late = false;
        following.retain(|namespace, Following { names, since, stop }| {
            let wanted = services.get(namespace);
            let is_early = wanted.is_some() && since.elapsed() < AGAIN;
            let is_enough = wanted.is_some_and(|wanted| wanted.is_subset(names));
            is_late |= is_early && !is_enough;
            let stays = is_enough || is_early;
            if !stays {
                stop.cancel();
            }
            stays
        });
        forget(&known, &services);
        for (namespace, names) in services {
            following.entry(namespace.clone()).or_insert_with(|| {
                let stop = CancellationToken::new();
                let follow = follow(client.clone(), namespace.clone(), names.clone(), known.clone());
                let stopped = stop.clone().run_until_cancelled_owned(follow);
                tasks.spawn(stopped.map(move |ended| (namespace, ended)));
                Following { names, since: Instant::now(), stop }
            });
        }
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            Some(ended) = tasks.join_next() => match ended {
                Ok((namespace, None)) if !following.contains_key(&namespace) => {
                    forget_contacts(&contacts, &namespace);
                    stopped.push(namespace);
                }
                Ok((_, None)) => {} // it was restarted
                Ok((_, Some(()))) | Err(_) => return,
            },
            () = sleep(if is_late { AGAIN } else { QUIET }) => {
                // A reader that was being stopped may have noted one more contact.
                stopped.retain(|namespace| !following.contains_key(namespace));
                stopped.drain(..).for_each(|namespace| forget_contacts(&contacts, &namespace));
            }
        }
        sleep(PAUSE).await;
    }
}

fn forget_contacts(contacts: &Contacts, namespace: &str) {
    WATCHED.iter().for_each(|resource| contacts.forget(&in_namespace(resource, namespace)));
}

/// Forgets what is no longer wanted.
fn forget(known: &watch::Sender<AllBackends>, wanted: &WantedServices) {
    known.send_if_modified(|known| {
        let mut has_changed = false;
        known.retain(|namespace, backends| {
            let Some(names) = wanted.get(namespace) else {
                has_changed = true;
                return false;
            };
            let before = backends.services.len();
            backends.services.retain(|name, _| names.contains(name));
            backends.endpoints.retain(|name, _| names.contains(name));
            has_changed |= backends.services.len() != before;
            true
        });
        has_changed
    });
}

/// Follows these Services of a namespace until a watch ends.
async fn follow(client: Client, namespace: String, names: BTreeSet<String>, known: watch::Sender<AllBackends>) {
    let services: Api<Guarded<Service>> = Api::namespaced(client.clone(), &namespace);
    let all_slices: Api<Guarded<EndpointSlice>> = Api::namespaced(client, &namespace);
    let of_names = Selector::labels(&slices_of(names.iter().map(String::as_str)));
    let mut services = watch_objects(services, Selector::all());
    let mut slices = watch_objects(all_slices.clone(), of_names.clone());
    let mut read = KnownServices::new(&namespace, names);
    let mut next_list = Instant::now();
    loop {
        if Instant::now() >= next_list && read.wants_slices_again() {
            slices = watch_objects(all_slices.clone(), of_names.clone());
            next_list = Instant::now() + LIST_PAUSE;
        }
        let mut news = tokio::select! {
            event = services.next() => event.map(Box::new).map(BackendNews::Service),
            event = slices.next() => event.map(Box::new).map(BackendNews::Slice),
            () = sleep(QUIET) => continue,
        };
        // A list brings its objects one by one; handle all that have arrived before going on.
        let mut refused = None;
        while let Some(one) = news {
            refused = note(&mut read, &namespace, one).or(refused);
            let service = services.next().now_or_never().flatten().map(Box::new).map(BackendNews::Service);
            news = service.or_else(|| slices.next().now_or_never().flatten().map(Box::new).map(BackendNews::Slice));
        }
        let now = read.complete();
        known.send_if_modified(|known| {
            let before = known.get(&namespace);
            let now = match (now, refused) {
                (Some(now), _) => now,
                (None, Some(refusal)) => Backends { refusal: Some(refusal), ..before.cloned().unwrap_or_default() },
                (None, None) => return false,
            };
            let differs = before != Some(&now);
            if differs {
                known.insert(namespace.clone(), now);
            }
            differs
        });
        sleep(PAUSE).await;
    }
}

enum BackendNews {
    Service(Box<watcher::Result<Event<Guarded<Service>>>>),
    Slice(Box<watcher::Result<Event<Guarded<EndpointSlice>>>>),
}

/// Handles an event. Returns why the API server refuses to show a kind, if it does.
fn note(read: &mut KnownServices, namespace: &str, news: BackendNews) -> Option<String> {
    let (kind, error) = match news {
        BackendNews::Service(seen) => match *seen {
            Ok(event) => {
                read.observe_service(event);
                return None;
            }
            Err(error) => ("services", error),
        },
        BackendNews::Slice(seen) => match *seen {
            Ok(event) => {
                read.observe_slice(event);
                return None;
            }
            Err(error) => ("endpointslices", error),
        },
    };
    warn!(%error, kind, namespace, "A watch of the backends of AddOnRoutes failed; the hub retries");
    is_forbidden(&error).then(|| {
        let role = "gateway.backendNamespaces of the chart says where it may";
        format!("its account cannot list and watch {kind} in the namespace {namespace}; {role}")
    })
}

fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)) => status.code == 403,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use addon_signer_telemetry::pulse::Pulses;
    use hyper::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// The open watches, by their paths and queries.
    type Open = Arc<Mutex<BTreeSet<String>>>;

    struct OpenWatch(String, Open);

    impl Drop for OpenWatch {
        fn drop(&mut self) {
            self.1.lock().remove(&self.0);
        }
    }

    /// An API server with the Service `web` in each namespace. It does not answer about the namespace `frozen`, and
    /// forbids reading the Service of `closed`.
    fn mk_client() -> (Client, Open) {
        let open = Open::default();
        let noted = Arc::clone(&open);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (uri, noted) = (request.uri().clone(), Arc::clone(&noted));
            async move {
                let (path, query) = (uri.path(), uri.query().unwrap_or_default());
                if path.contains("/frozen/") {
                    std::future::pending::<()>().await;
                }
                if query.contains("watch=true") {
                    noted.lock().insert(path.to_owned());
                    let _open = OpenWatch(path.to_owned(), noted);
                    std::future::pending::<()>().await;
                }
                let metadata = json!({ "name": "web", "resourceVersion": "1" });
                let web = json!({ "metadata": metadata, "spec": { "ports": [{ "port": 80 }] } });
                let items = if path.ends_with("/services") { vec![web] } else { Vec::new() };
                let (code, answer) = if path.contains("/closed/") {
                    (403, json!({ "kind": "Status", "status": "Failure", "code": 403, "message": "no", "reason": "" }))
                } else {
                    (200, json!({ "metadata": { "resourceVersion": "1" }, "items": items }))
                };
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        (Client::new(service, "default"), open)
    }

    fn wants(all: &[(&str, &[&str])]) -> WantedServices {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        all.iter().map(|(namespace, services)| ((*namespace).to_owned(), names(services))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_namespace_is_watched_for_as_long_as_it_is_wanted() {
        let (client, open) = mk_client();
        let wanted = watch::Sender::new(wants(&[("a", &["web"]), ("frozen", &["web"]), ("closed", &["web"])]));
        let (known, mut read) = watch::channel(AllBackends::new());
        let contacts = Contacts::default();
        let pulse = Pulses::default().start("backends");
        tokio::spawn(keep(client, contacts.clone(), wanted.subscribe(), known, pulse));
        let has = |name: &'static str, exists: bool| {
            move |known: &AllBackends| {
                known.get("a").and_then(|a| a.services.get(name)).map(Option::is_some) == Some(exists)
            }
        };
        read.wait_for(has("web", true)).await.unwrap();
        let refusal = |known: &AllBackends| known.get("closed").is_some_and(|closed| closed.refusal.is_some());
        assert!(!read.wait_for(refusal).await.unwrap().contains_key("frozen"), "nobody waits for it");
        let watched = |expected: &'static [&'static str]| {
            let open = Arc::clone(&open);
            async move {
                while open.lock().iter().ne(expected) {
                    sleep(Duration::from_millis(10)).await;
                }
            }
        };
        const BOTH: [&str; 2] =
            ["/api/v1/namespaces/a/services", "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices"];
        watched(&BOTH).await;

        // What is known stays while the lists are repeated for another name.
        wanted.send_replace(wants(&[("a", &["other", "web"])]));
        let never_lost = |known: &AllBackends| {
            assert!(has("web", true)(known), "it was forgotten");
            has("other", false)(known)
        };
        drop(read.wait_for(never_lost).await.unwrap());
        assert!(read.borrow().get("closed").is_none());
        watched(&BOTH).await;
        contacts.answered(&in_namespace("services", "a"), tokio::time::Instant::now());
        wanted.send_replace(WantedServices::new());
        watched(&[]).await;
        read.wait_for(AllBackends::is_empty).await.unwrap();
        while contacts.age(&[&in_namespace("services", "a")]).is_some() {
            sleep(Duration::from_millis(10)).await;
        }
    }
}
