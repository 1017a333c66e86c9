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
/// first served version.
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

/// The status code of an overloaded API server, which tells nothing about the version.
const TOO_MANY_REQUESTS: u16 = 429;

/// Whether the API server has refused a watch or its list, perhaps because it cannot read this version.
pub(super) fn is_refusal(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)) => {
            status.code != TOO_MANY_REQUESTS
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn an_api_server_that_has_too_much_to_do_refuses_no_version() {
        let status = |code: u16| kube::Error::Api(Status { code, ..Status::success() }.boxed());
        for code in [403, 404, 406, 500] {
            assert!(is_refusal(&watcher::Error::InitialListFailed(status(code))), "{code}");
            assert!(is_refusal(&watcher::Error::WatchStartFailed(status(code))), "{code}");
        }
        assert!(!is_refusal(&watcher::Error::InitialListFailed(status(429))));
        assert!(!is_refusal(&watcher::Error::WatchStartFailed(status(429))));
        assert!(!is_refusal(&watcher::Error::NoResourceVersion), "nobody refuses anything");
    }
}
