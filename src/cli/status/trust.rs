//! To whom the hub's ManifestWorks have brought the gateway's present trust bundle.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use super::selection::Selection;
use addon_signer_api::Lenient;
use addon_signer_api::manifest_work::{self, Work, digest_of};
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::names::LABEL_HUB_TRUST;
use addon_signer_hub::authorities::store::{BUNDLE_KEY, SERVING_CONFIG_MAP};
use addon_signer_platform::listing::{self, Selector};

/// How far ManifestWorks have brought the present bundle: whether each cluster has applied it.
#[derive(Default)]
pub(super) struct BroughtTrust(BTreeMap<AddOnKey, bool>);

impl BroughtTrust {
    /// Reads them, for these clusters. `namespace` is the hub's.
    pub(super) async fn read(client: &Client, namespace: &str, wanted: &Selection) -> anyhow::Result<Self> {
        let maps: Api<Lenient<ConfigMap>> = Api::namespaced(client.clone(), namespace);
        let map = maps.get_opt(SERVING_CONFIG_MAP).await;
        let map = map.with_context(|| format!("the ConfigMap {SERVING_CONFIG_MAP} cannot be read"))?;
        let anchors = map.and_then(|map| map.object.data?.remove(BUNDLE_KEY)).unwrap_or_default();
        let present = digest_of(&anchors);
        let is_present =
            |work: &Work| work.is_applied && work.content.as_ref().is_some_and(|content| content.anchors == present);
        let api = wanted.objects(client, &manifest_work::resource());
        let mut works = BTreeMap::new();
        let of_trust = Selector::labels(LABEL_HUB_TRUST);
        let listed = listing::each(api, of_trust, |work| {
            works.extend(Work::read(&work.object).map(|(key, work)| (key, is_present(&work))));
        });
        match listed.await {
            Ok(()) => Ok(Self(works)),
            // There is no such API, or the caller may not read it, like the hub's own account without
            // trust.manifestWorks.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(Self::default()),
            Err(error) => Err(error).context("ManifestWorks cannot be listed"),
        }
    }

    /// Whether its cluster has applied the present bundle. `None` if nothing is known, because a ManifestWork
    /// `is_brought` to nobody, or not to this addon.
    pub(super) fn of(&self, key: &AddOnKey, is_brought: bool) -> Option<bool> {
        (is_brought && !self.0.is_empty()).then(|| self.0.get(key).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_works_exist_addon_without_one_lacks_the_bundle() {
        let key = |cluster: &str| AddOnKey { cluster: cluster.parse().unwrap(), addon: "t".parse().unwrap() };
        let some = BroughtTrust(BTreeMap::from([(key("yes"), true), (key("no"), false)]));
        for (cluster, is_brought, expected) in
            [("yes", true, Some(true)), ("no", true, Some(false)), ("new", true, Some(false)), ("yes", false, None)]
        {
            assert_eq!(some.of(&key(cluster), is_brought), expected, "{cluster} {is_brought}");
        }
        assert_eq!(BroughtTrust::default().of(&key("yes"), true), None, "no work is anywhere");
    }
}
