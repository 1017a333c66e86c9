//! Which versions of OCM's resources the API server serves.

use kube::Client;
use kube::api::{Api, ApiResource, GroupVersionKind};
use kube::core::Status;

use addon_signer_api::ocm::OcmObject;
use addon_signer_platform::listing::{self, Selector};

/// The first of `versions` in which the API server serves `plural`; `None` when it serves none of them.
///
/// # Errors
/// The error of the API server.
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

/// The first of `versions` in which the API server can list objects. What is stored in another version needs OCM's
/// webhook that converts it, which may be away; then the other version needs none. If no list succeeds, the first that
/// is served.
///
/// # Errors
/// The error of the API server.
pub(crate) async fn readable_version(
    client: &Client,
    (group, kind, plural): (&str, &str, &str),
    versions: &[&'static str],
) -> Result<Option<&'static str>, kube::Error> {
    let mut first = None;
    for version in versions {
        let Some(served) = served_version(client, group, plural, &[version]).await? else { continue };
        let objects = Api::<OcmObject>::all_with(client.clone(), &resource(group, served, kind, plural));
        if listing::any(&objects, &Selector::all()).await.is_ok() {
            return Ok(Some(served));
        }
        first.get_or_insert(served);
    }
    Ok(first)
}

/// Whether the API server says that there is no object of this name. A 404 that names none says that it does not serve
/// such objects, perhaps only at the moment.
pub(crate) fn says_absent(status: &Status, name: &str) -> bool {
    status.is_not_found() && status.details.as_ref().is_some_and(|details| details.name == name)
}

/// A resource that is used only for its URL.
#[must_use]
pub(super) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}
