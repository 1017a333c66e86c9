//! Which versions of OCM's resources the API server serves, and which one of ManagedClusterAddOn the hub uses.

use std::sync::Arc;

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
/// `None` when it serves none of them.
///
/// For any other version OCM's webhook converts each object, and the API server fills its cache with all of them. If
/// the webhook is down, or one object cannot be converted, nobody can watch that version, although a list of a few
/// objects may succeed.
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
        // An API server need not have one for what it serves, and not everybody who runs a command may read it.
        Err(kube::Error::Api(status)) if says_absent(&status, &name) || status.is_forbidden() => {
            served_version(client, group, plural, versions).await
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
    use serde_json::json;

    use super::*;

    #[test]
    fn the_stored_version_is_used_while_it_is_served() {
        let version =
            |name: &str, served: bool, storage: bool| json!({ "name": name, "served": served, "storage": storage });
        let (new, old, other) = ("v1beta1", "v1alpha1", "v1");
        for (versions, expected) in [
            (vec![version(old, true, true), version(new, true, false)], Some(old)),
            (vec![version(old, true, false), version(new, true, true)], Some(new)),
            (vec![version(old, false, true), version(new, true, false)], Some(new)),
            (vec![version(old, true, true)], Some(old)),
            (vec![version(old, true, false), version(new, true, false), version(other, true, true)], Some(new)),
            (vec![version(old, false, true), version(other, true, false)], None),
        ] {
            let definition = serde_json::from_value(json!({ "versions": versions })).unwrap();
            assert_eq!(stored(&definition, &[new, old]), expected, "{versions:?}");
        }
    }
}
