//! Which versions of OCM's resources the API server serves, and which one of ManagedClusterAddOn the hub uses.

use std::sync::Arc;

use kube::Client;
use kube::api::{Api, ApiResource, GroupVersionKind};
use kube::core::Status;
use kube::runtime::watcher;
use tokio::sync::watch;

use crate::tasks::send_news;
use addon_signer_api::ocm::{AddOnApi, OcmObject};
use addon_signer_platform::listing::{self, Selector};

/// The status code of an overloaded API server.
const TOO_MANY_REQUESTS: u16 = 429;

/// The first of `versions` in which the API server serves `plural`; `None` when it serves none of them.
pub async fn served_version(
    client: &Client,
    group: &str,
    plural: &str,
    versions: &[&'static str],
) -> Result<Option<&'static str>, kube::Error> {
    let groups = client.list_api_groups().await?.groups;
    let served: Vec<String> = groups
        .into_iter()
        .filter(|found| found.name == group)
        .flat_map(|found| found.versions.into_iter().map(|version| version.version))
        .collect();
    for version in versions.iter().copied().filter(|version| served.iter().any(|found| found == version)) {
        let list = client.list_api_group_resources(&format!("{group}/{version}")).await?;
        if list.resources.iter().any(|resource| resource.name == plural) {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

/// The first of `versions` in which the API server can list objects. Objects stored in another version are converted by
/// OCM's webhook, which may be down; reading them in the stored version needs no webhook. If no list succeeds, the
/// first served version. An overloaded API server tells nothing about a version: its refusal is an error.
pub(crate) async fn readable_version(
    client: &Client,
    (group, kind, plural): (&str, &str, &str),
    versions: &[&'static str],
) -> Result<Option<&'static str>, kube::Error> {
    let mut first = None;
    for version in versions {
        let Some(served) = served_version(client, group, plural, &[version]).await? else { continue };
        let objects = Api::<OcmObject>::all_with(client.clone(), &resource(group, served, kind, plural));
        match listing::any(&objects, &Selector::all()).await {
            Ok(_) => return Ok(Some(served)),
            Err(kube::Error::Api(status)) if status.code == TOO_MANY_REQUESTS => return Err(kube::Error::Api(status)),
            Err(_) => first = first.or(Some(served)),
        }
    }
    Ok(first)
}

/// Whether the API server reports that no object has this name. A 404 without a name means that it does not serve such
/// objects, perhaps only for the moment.
pub(crate) fn says_absent(status: &Status, name: &str) -> bool {
    status.is_not_found() && status.details.as_ref().is_some_and(|details| details.name == name)
}

/// A resource that is used only for its URL.
#[must_use]
pub(super) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// The version that all tasks of the hub use. If the API server can no longer read it, because an upgrade of OCM has
/// removed it or because its conversion webhook is down, the watch of addons switches to the other one.
#[derive(Clone, Debug)]
pub struct AddOnVersion(Arc<watch::Sender<AddOnApi>>);

impl From<AddOnApi> for AddOnVersion {
    fn from(api: AddOnApi) -> Self {
        Self(Arc::new(watch::Sender::new(api)))
    }
}

impl AddOnVersion {
    /// The version to use now.
    #[must_use]
    pub fn now(&self) -> AddOnApi {
        *self.0.borrow()
    }

    /// Sets the version; returns whether it has changed.
    pub(super) fn set(&self, api: AddOnApi) -> bool {
        send_news(&self.0, api)
    }
}

/// Whether the API server has refused a watch or its list, perhaps because it cannot read this version. It refuses
/// watches with "too many requests" for as long as its cache cannot be filled because the webhook is down.
pub(super) fn is_refusal(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    matches!(error, InitialListFailed(kube::Error::Api(_)) | WatchStartFailed(kube::Error::Api(_)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    const GROUP: &str = "example.com";

    /// An API server that serves two versions and answers a list in the newer one with this code.
    fn answer(path: &str, code: u16) -> (u16, Value) {
        let group_version = path.trim_start_matches("/apis").trim_matches('/').to_owned();
        let version = |name: &str| json!({ "groupVersion": format!("{GROUP}/{name}"), "version": name });
        let kind = json!({ "name": "things", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": [] });
        let list = json!({ "metadata": {}, "items": [] });
        match path.strip_suffix("/things") {
            Some(of) if of.ends_with("/v2") && code != 200 => (code, json!(Status { code, ..Status::failure("", "") })),
            Some(_) => (200, list),
            None if group_version.is_empty() => {
                (200, json!({ "groups": [{ "name": GROUP, "versions": [version("v2"), version("v1")] }] }))
            }
            None => (200, json!({ "groupVersion": group_version, "resources": [kind] })),
        }
    }

    async fn readable(code: u16) -> Result<Option<&'static str>, kube::Error> {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let (code, body) = answer(request.uri().path(), code);
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        });
        readable_version(&Client::new(service, "default"), (GROUP, "Thing", "things"), &["v2", "v1"]).await
    }

    /// With the code 429 a watch is refused by an API server that has too much to do, but also by one whose cache of
    /// this version cannot be filled; its list then has the code 500.
    #[tokio::test]
    async fn a_version_is_left_if_its_list_is_refused_unless_by_overload() {
        assert_eq!(readable(200).await.unwrap(), Some("v2"));
        for code in [403, 404, 406, 500] {
            assert_eq!(readable(code).await.unwrap(), Some("v1"), "{code}");
        }
        assert!(readable(429).await.is_err());
    }

    #[test]
    fn each_refusal_of_a_watch_is_a_reason_to_ask_for_the_version() {
        let status = |code: u16| kube::Error::Api(Status { code, ..Status::success() }.boxed());
        for code in [403, 404, 406, 429, 500] {
            assert!(is_refusal(&watcher::Error::InitialListFailed(status(code))), "{code}");
            assert!(is_refusal(&watcher::Error::WatchStartFailed(status(code))), "{code}");
        }
        assert!(!is_refusal(&watcher::Error::NoResourceVersion), "nobody refuses anything");
    }
}
