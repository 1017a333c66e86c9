//! Which versions of OCM's resources the API server serves, and which one of ManagedClusterAddOn the hub uses.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, GroupVersionKind};
use kube::core::{NotUsed, Object, Status};
use serde::Deserialize;
use tokio::sync::watch;

use crate::tasks::send_news;
use addon_signer_api::ocm::AddOnApi;

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

/// How long a watch waits for an answer about the version: meanwhile its events wait.
pub(super) const ANSWERED: Duration = Duration::from_secs(3);

/// What a CustomResourceDefinition says of its versions.
#[derive(Debug, Clone, Deserialize)]
struct Definition {
    versions: Vec<DefinedVersion>,
}

#[derive(Debug, Clone, Deserialize)]
struct DefinedVersion {
    name: String,
    served: bool,
    storage: bool,
}

/// The one of `versions` in which the API server stores the custom resource `plural`, or else the first that it serves;
/// `None` when it serves none of them. Who may not know gets the oldest.
///
/// For any other version OCM's webhook converts each object, and the API server fills its cache with all of them. If
/// the webhook is down, or one object cannot be converted, nobody can watch that version, although a list of a few
/// objects may succeed. The same is true of objects that were stored in another version before, until they are written
/// again.
pub(crate) async fn stored_version(
    client: &Client,
    group: &str,
    plural: &str,
    versions: &[&'static str],
) -> Result<Option<&'static str>, kube::Error> {
    let kind = ApiResource::erase::<CustomResourceDefinition>(&());
    let definitions = Api::<Object<Definition, NotUsed>>::all_with(client.clone(), &kind);
    let name = format!("{plural}.{group}");
    match definitions.get(&name).await {
        Ok(found) => Ok(stored(&found.spec, versions)),
        // An API server need not have one for what it serves, and not everybody who runs a command may read it. OCM has
        // stored the oldest version in all releases up to 1.3.
        Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {
            let oldest_first: Vec<_> = versions.iter().rev().copied().collect();
            served_version(client, group, plural, &oldest_first).await
        }
        Err(error) => Err(error),
    }
}

fn stored(definition: &Definition, versions: &[&'static str]) -> Option<&'static str> {
    let find = |name: &str| definition.versions.iter().find(|version| version.name == name && version.served);
    let served = || versions.iter().copied().filter_map(|name| Some((name, find(name)?)));
    served().find(|(_, version)| version.storage).or_else(|| served().next()).map(|(name, _)| name)
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

/// The version that all tasks of the hub use. The watch of addons changes it when an upgrade of OCM has.
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    const GROUP: &str = "example.com";
    const VERSIONS: [&str; 2] = ["v2", "v1"];

    fn version(name: &str, served: bool, storage: bool) -> Value {
        json!({ "name": name, "served": served, "storage": storage })
    }

    /// An API server that serves both versions and answers like this for the CustomResourceDefinition.
    async fn version_if(code: u16, definition: Value) -> Result<Option<&'static str>, kube::Error> {
        let service = tower::service_fn(move |request: Request<Body>| {
            let group_version = |name: &str| json!({ "groupVersion": format!("{GROUP}/{name}"), "version": name });
            let kind =
                json!({ "name": "things", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": [] });
            let (code, body) = match request.uri().path() {
                "/apis" => (200, json!({ "groups": [{ "name": GROUP, "versions": VERSIONS.map(group_version) }] })),
                path if path.ends_with("/things.example.com") => (code, definition.clone()),
                _ => (200, json!({ "groupVersion": "", "resources": [kind] })),
            };
            let body = Body::from(body.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        stored_version(&Client::new(service, "default"), GROUP, "things", &VERSIONS).await
    }

    #[tokio::test]
    async fn the_stored_version_is_used_while_it_is_served() {
        for (versions, expected) in [
            ([version("v1", true, true), version("v2", true, false)], Some("v1")),
            ([version("v1", true, false), version("v2", true, true)], Some("v2")),
            ([version("v1", false, true), version("v2", true, false)], Some("v2")),
            ([version("v1", true, false), version("v3", true, true)], Some("v1")),
            ([version("v1", false, true), version("v3", true, false)], None),
        ] {
            let definition = json!({ "metadata": { "name": "things.example.com" }, "spec": { "versions": versions } });
            assert_eq!(version_if(200, definition).await.unwrap(), expected, "{versions:?}");
        }
    }

    #[tokio::test]
    async fn who_may_not_read_the_stored_version_takes_the_oldest() {
        let status = |code: u16| json!({ "kind": "Status", "status": "Failure", "code": code });
        for code in [403, 404] {
            assert_eq!(version_if(code, status(code)).await.unwrap(), Some("v1"), "{code}");
        }
        for code in [401, 429, 500] {
            assert!(version_if(code, status(code)).await.is_err(), "{code}");
        }
    }
}
