//! Keeps [`Templates`] by watches of ClusterManagementAddOns and AddOnTemplates, in the version that is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, pending};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::registrations::discovery::{ANSWERED, resource, stored_version};
use crate::relist::Watched;
use crate::tasks::send_news;
use addon_signer_api::Lenient;
use addon_signer_api::addon_template::{
    ADDON_TEMPLATES, MANAGEMENT_ADDONS, TEMPLATE_VERSIONS as VERSIONS, facts_of_template, templates_of_management_addon,
};
use addon_signer_api::ocm::ADDON_GROUP;
use addon_signer_core::templates::{TemplatedAddOns, Templates};
use addon_signer_platform::backoff::Pauses;
use addon_signer_platform::errors::explain;
use addon_signer_platform::listing::{Selector, watch as watch_objects};

/// How soon the hub asks the API server again which resources it serves, while it does not serve both; also the longest
/// pause after a refusal.
const DISCOVER: Duration = Duration::from_secs(60);
/// How soon the hub asks again if the API server did not answer; also the shortest pause after a refusal.
const RETRY: Duration = Duration::from_secs(3);

/// How long the API server must report that it does not serve ClusterManagementAddOns before the known ones are
/// forgotten: an API server that starts does not serve all resources at once, and the hub writes to an addon that seems
/// to have no owner.
const CONFIRMED_AFTER: Duration = Duration::from_secs(300);

/// The status code of an overloaded API server.
const TOO_MANY_REQUESTS: u16 = 429;

type Objects = BoxStream<'static, Result<Event<Lenient<DynamicObject>>, watcher::Error>>;

/// Keeps `known` up to date until it has no readers any more.
pub(crate) async fn keep_templates(client: Client, known: watch::Sender<Templates>) {
    let mut refusals = Pauses::new(RETRY, DISCOVER);
    let mut absent: Option<Instant> = None;
    loop {
        let served = served(&client).await;
        if !matches!(served, Ok([None, _])) {
            absent = None;
        }
        match served {
            Ok([None, _]) => {
                let since = *absent.get_or_insert_with(Instant::now);
                let has_owners = matches!(&*known.borrow(), Templates::Read(read) if !read.owners.is_empty());
                if !has_owners || since.elapsed() >= CONFIRMED_AFTER {
                    // Without ClusterManagementAddOns the addon-manager registers nothing from templates.
                    send_news(&known, Templates::Read(Arc::default()));
                }
                sleep(DISCOVER).await;
            }
            Ok(both @ [Some(_), Some(_)]) => {
                follow(&client, both, &known).await;
                sleep(refusals.after_failure()).await;
            }
            Ok(one @ [Some(_), None]) => {
                let following = follow(&client, one, &known);
                // Whether it ended or timed out, ask again what is served, until AddOnTemplates are served too.
                if timeout(DISCOVER, following).await.is_ok() {
                    sleep(refusals.after_failure()).await;
                }
            }
            Err(error) => {
                unread(&known, &explain(&error));
                sleep(RETRY).await;
            }
        }
        if known.is_closed() {
            return;
        }
    }
}

/// ClusterManagementAddOn and AddOnTemplate, if they are served.
type Served = [Option<ApiResource>; 2];

async fn served(client: &Client) -> Result<Served, kube::Error> {
    let find = async |kind: &str, plural: &str| {
        let version = stored_version(client, ADDON_GROUP, plural, &VERSIONS).await?;
        Ok::<_, kube::Error>(version.map(|version| resource(ADDON_GROUP, version, kind, plural)))
    };
    let (addons, templates) =
        tokio::try_join!(find("ClusterManagementAddOn", MANAGEMENT_ADDONS), find("AddOnTemplate", ADDON_TEMPLATES))?;
    Ok([addons, templates])
}

fn objects(client: &Client, resource: Option<&ApiResource>) -> Objects {
    let Some(resource) = resource else { return pending().boxed() };
    let api = Api::<Lenient<DynamicObject>>::all_with(client.clone(), resource);
    watch_objects(api, Selector::all()).boxed()
}

/// Whether the API server has refused a watch or its list. An overloaded one has not.
fn is_refusal(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)) => {
            status.code != TOO_MANY_REQUESTS
        }
        _ => false,
    }
}

/// Whether other versions must be followed now. If the API server does not answer, they stay.
async fn has_changed(client: &Client, following: &Served) -> bool {
    let served = timeout(ANSWERED, served(client)).await;
    served.is_ok_and(|found| found.is_ok_and(|now| now != *following))
}

/// Follows both watches until the API server refuses one of them, or serves other versions.
async fn follow(client: &Client, following: Served, known: &watch::Sender<Templates>) {
    let [mut addons, mut templates] = following.each_ref().map(|kind| objects(client, kind.as_ref()));
    let mut of_addons = Watched::default();
    let mut of_templates = if following[1].is_some() { Watched::default() } else { Watched::nothing() };
    loop {
        let seen = tokio::select! {
            Some(event) = addons.next() => {
                event.map(|event| of_addons.observe(event, |found| templates_of_management_addon(&found.object)))
            }
            Some(event) = templates.next() => {
                event.map(|event| of_templates.observe(event, |found| facts_of_template(&found.object)))
            }
            else => return,
        };
        match (seen, of_addons.all(), of_templates.all()) {
            (Ok(_), Some(addons), Some(templates)) => publish(addons, templates, known),
            (Ok(_), ..) => {}
            (Err(error), ..) => {
                debug!(%error, "The watch of ClusterManagementAddOns or AddOnTemplates failed; the hub retries");
                unread(known, &error.to_string());
                if is_refusal(&error) || has_changed(client, &following).await {
                    return;
                }
            }
        }
    }
}

fn publish(
    addons: &BTreeMap<String, Option<BTreeSet<String>>>,
    templates: &BTreeMap<String, addon_signer_core::templates::TemplateFacts>,
    known: &watch::Sender<Templates>,
) {
    // Skip names that OCM does not allow for addons.
    let templated = addons.iter().filter_map(|(name, found)| Some((name.parse().ok()?, found.clone()?)));
    let read = TemplatedAddOns {
        addons: templated.collect(),
        templates: templates.clone(),
        owners: addons.keys().cloned().collect(),
    };
    if send_news(known, Templates::Read(Arc::new(read))) {
        info!(
            addons = addons.len(),
            templates = templates.len(),
            "The hub has read which addons OCM's addon-manager registers"
        );
    }
}

/// Logs once why nothing is known: if both watches fail, the first cause is enough. Known facts stay, although they may
/// be outdated.
fn unread(known: &watch::Sender<Templates>, cause: &str) {
    if *known.borrow() == Templates::Starting {
        warn!(
            cause,
            "Cannot read which addons OCM's addon-manager registers; the hub writes no registration until it can"
        );
        send_news(known, Templates::Unread(cause.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Mutex;

    use hyper::{Request, Response, StatusCode};
    use kube::client::Body;
    use kube::core::Status;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    /// Whether the API server refuses lists and watches at this second of the test.
    fn refuses(second: u64) -> bool {
        !(200..500).contains(&second)
    }

    /// That a CustomResourceDefinition does not exist.
    fn no_definition(name: &str) -> Value {
        json!({ "kind": "Status", "code": 404, "reason": "NotFound", "details": { "name": name } })
    }

    /// Serves these resources. Watches end in second 500. Notes when a list begins, unless it only probes a version.
    async fn answer(
        request: Request<Body>,
        served: &[&str],
        began: Instant,
        lists: &Mutex<BTreeSet<u64>>,
    ) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default();
        let api = format!("{ADDON_GROUP}/v1alpha1");
        let resource =
            |name: &&str| json!({ "name": name, "singularName": "", "namespaced": false, "kind": "K", "verbs": [] });
        let resources: Vec<Value> = served.iter().map(resource).collect();
        let mut code = StatusCode::OK;
        let body = match request.uri().path().rsplit('/').next().unwrap() {
            name if name.contains('.') => {
                code = StatusCode::NOT_FOUND;
                no_definition(name)
            }
            "apis" => {
                let version = json!({ "groupVersion": api, "version": "v1alpha1" });
                json!({ "groups": [{ "name": ADDON_GROUP, "versions": [version] }] })
            }
            "v1alpha1" => json!({ "groupVersion": api, "resources": resources }),
            _ => {
                if query.contains("limit=16") {
                    lists.lock().unwrap().insert(began.elapsed().as_secs());
                }
                if refuses(began.elapsed().as_secs()) {
                    code = StatusCode::FORBIDDEN;
                    json!({ "kind": "Status", "code": 403, "reason": "Forbidden" })
                } else if query.contains("watch=true") {
                    tokio::time::sleep_until(began + Duration::from_secs(500)).await;
                    Value::Null
                } else {
                    json!({ "metadata": { "resourceVersion": "1" }, "items": [] })
                }
            }
        };
        Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
    }

    /// An API server that has one ClusterManagementAddOn and serves such objects, except in these seconds.
    async fn answer_with_gaps(request: Request<Body>, began: Instant, gaps: &[Range<u64>]) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default();
        let second = began.elapsed().as_secs();
        let is_served = !gaps.iter().any(|gap| gap.contains(&second));
        let kind =
            |name: &str| json!({ "name": name, "singularName": "", "namespaced": false, "kind": "K", "verbs": [] });
        let resources = is_served.then(|| kind(MANAGEMENT_ADDONS));
        let mut code = StatusCode::OK;
        let body = match request.uri().path().rsplit('/').next().unwrap() {
            name if name.contains('.') => {
                code = StatusCode::NOT_FOUND;
                no_definition(name)
            }
            "apis" => {
                let version = json!({ "groupVersion": format!("{ADDON_GROUP}/v1alpha1"), "version": "v1alpha1" });
                json!({ "groups": [{ "name": ADDON_GROUP, "versions": [version] }] })
            }
            "v1alpha1" => json!({ "groupVersion": "", "resources": resources.as_slice() }),
            _ if !is_served => {
                code = StatusCode::NOT_FOUND;
                json!({ "kind": "Status", "code": 404, "reason": "NotFound" })
            }
            _ if query.contains("watch=true") => {
                let next = gaps.iter().map(|gap| gap.start).find(|start| *start > second);
                tokio::time::sleep_until(began + Duration::from_secs(next.unwrap_or(u64::from(u32::MAX)))).await;
                Value::Null
            }
            _ => json!({ "metadata": { "resourceVersion": "1" }, "items": [{ "metadata": { "name": "telemetry" } }] }),
        };
        Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
    }

    /// Whether ClusterManagementAddOns are known at this second, if they are served except in these.
    async fn knows_owners(at: u64, gaps: &'static [Range<u64>]) -> bool {
        let began = Instant::now();
        let service = tower::service_fn(move |request| async move {
            Ok::<_, std::convert::Infallible>(answer_with_gaps(request, began, gaps).await)
        });
        let (known, read) = watch::channel(Templates::default());
        let keeping = keep_templates(Client::new(service, "default"), known);
        assert!(tokio::time::timeout_at(began + Duration::from_secs(at), keeping).await.is_err());
        matches!(&*read.borrow(), Templates::Read(read) if !read.owners.is_empty())
    }

    #[test]
    fn an_api_server_that_has_too_much_to_do_refuses_nothing() {
        let status = |code: u16| kube::Error::Api(Status { code, ..Status::success() }.boxed());
        for code in [403, 404, 406, 500] {
            assert!(is_refusal(&watcher::Error::InitialListFailed(status(code))), "{code}");
            assert!(is_refusal(&watcher::Error::WatchStartFailed(status(code))), "{code}");
        }
        assert!(!is_refusal(&watcher::Error::InitialListFailed(status(429))));
        assert!(!is_refusal(&watcher::Error::WatchStartFailed(status(429))));
        assert!(!is_refusal(&watcher::Error::NoResourceVersion), "nobody refuses anything");
    }

    /// Stores everything in v1beta1, from this time on in v1alpha1, and ends a watch of v1beta1 then, as too old. A
    /// ClusterManagementAddOn has the name of the version in which it is read.
    async fn answer_stored(request: Request<Body>, from: Instant) -> Response<Body> {
        let is_old = Instant::now() >= from;
        let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage });
        let path = request.uri().path();
        let read = if path.contains("/v1alpha1/") { "v1alpha1" } else { "v1beta1" };
        let body = if path.contains("/customresourcedefinitions/") {
            let versions = [version("v1alpha1", is_old), version("v1beta1", !is_old)];
            json!({ "metadata": { "name": "any" }, "spec": { "versions": versions } })
        } else if !request.uri().query().unwrap_or_default().contains("watch=true") {
            json!({ "metadata": { "resourceVersion": "1" }, "items": [{ "metadata": { "name": read } }] })
        } else if read == "v1alpha1" {
            std::future::pending().await
        } else {
            tokio::time::sleep_until(from).await;
            json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "reason": "Expired" } })
        };
        Response::new(Body::from(body.to_string().into_bytes()))
    }

    #[tokio::test(start_paused = true)]
    async fn another_stored_version_is_read_when_a_watch_ends_for_it() {
        let began = Instant::now();
        let from = began + Duration::from_secs(100);
        let service = tower::service_fn(move |request| async move {
            Ok::<_, std::convert::Infallible>(answer_stored(request, from).await)
        });
        let (known, read) = watch::channel(Templates::default());
        let keeping = keep_templates(Client::new(service, "default"), known);
        let mut seen = Vec::new();
        let looks = async {
            for at in [50, 150] {
                tokio::time::sleep_until(began + Duration::from_secs(at)).await;
                let Templates::Read(read) = &*read.borrow() else { continue };
                seen.extend(read.owners.iter().cloned());
            }
        };
        tokio::select! { () = keeping => panic!("it ended"), () = looks => {} }
        assert_eq!(seen, ["v1beta1", "v1alpha1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn owners_are_forgotten_only_after_five_minutes_unserved() {
        for (at, is_known) in [(10, true), (150, true), (395, true), (500, false)] {
            assert_eq!(knows_owners(at, &[100..700, 700..9_999]).await, is_known, "{at} s");
        }
        for at in [395, 750, 2_000] {
            assert!(knows_owners(at, &[100..390, 700..900]).await, "it was only starting: {at} s");
        }
    }

    /// When lists begin, in seconds, while the API server serves these resources.
    async fn lists(served: &'static [&str]) -> Vec<u64> {
        let (began, lists) = (Instant::now(), Arc::<Mutex<BTreeSet<u64>>>::default());
        let noted = Arc::clone(&lists);
        let service = tower::service_fn(move |request| {
            let noted = Arc::clone(&noted);
            async move { Ok::<_, std::convert::Infallible>(answer(request, served, began, &noted).await) }
        });
        let (known, read) = watch::channel(Templates::default());
        let keeping = keep_templates(Client::new(service, "default"), known);
        assert!(tokio::time::timeout(Duration::from_secs(530), keeping).await.is_err());
        assert!(matches!(*read.borrow(), Templates::Read(_)));
        lists.lock().unwrap().iter().copied().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn refused_lists_are_retried_ever_less_often_until_served() {
        let both = lists(&[MANAGEMENT_ADDONS, ADDON_TEMPLATES]).await;
        assert_eq!(both, [0, 3, 9, 21, 45, 93, 153, 213, 503, 509, 521]);
        let without_templates = lists(&[MANAGEMENT_ADDONS]).await;
        assert_eq!(without_templates, [0, 3, 9, 21, 45, 93, 153, 213, 273, 333, 393, 453, 503, 509, 521]);
    }
}
