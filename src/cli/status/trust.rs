//! Who holds the gateway's present trust bundle, by what its agents have shown and by the hub's ManifestWorks.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};

use super::pages::each;
use super::row::HeldTrust;
use super::selection::Selection;
use crate::api::Lenient;
use crate::api::manifest_work::{self, Work, digest_of};
use crate::hub::authorities::store::{BUNDLE_KEY, SERVING_CONFIG_MAP};
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::names::LABEL_HUB_TRUST;

/// The present bundle, and how far ManifestWorks have brought it.
#[derive(Default)]
pub(super) struct BroughtTrust {
    /// The digest that agents show; `None` if there is no bundle.
    pub(super) digest: Option<String>,
    /// Whether the cluster has applied the present bundle.
    works: BTreeMap<AddOnKey, bool>,
}

impl BroughtTrust {
    /// Reads them, for these clusters. `namespace` is the hub's.
    pub(super) async fn read(client: &Client, namespace: &str, wanted: &Selection) -> anyhow::Result<Self> {
        let maps: Api<Lenient<ConfigMap>> = Api::namespaced(client.clone(), namespace);
        let map = maps.get_opt(SERVING_CONFIG_MAP).await;
        let map = map.with_context(|| format!("the ConfigMap {SERVING_CONFIG_MAP} cannot be read"))?;
        let anchors = map.and_then(|map| map.object.data?.remove(BUNDLE_KEY)).unwrap_or_default();
        // `check` says if there is none.
        let digest = Bundle::from_pem(anchors.as_bytes()).ok().map(|bundle| bundle.digest());
        let present = digest_of(&anchors);
        let is_present =
            |work: &Work| work.is_applied && work.content.as_ref().is_some_and(|content| content.anchors == present);
        let api = wanted.objects(client, &manifest_work::resource());
        let mut works = BTreeMap::new();
        let of_trust = ListParams::default().labels(LABEL_HUB_TRUST);
        let listed = each(api, of_trust, |work| {
            works.extend(Work::read(&work.object).map(|(key, work)| (key, is_present(&work))));
        });
        match listed.await {
            Ok(()) => Ok(Self { digest, works }),
            // There is no such API, or the caller may not read it, as the hub's own account without
            // deploy/manifest-works.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(Self { digest, ..Self::default() }),
            Err(error) => Err(error).context("ManifestWorks cannot be listed"),
        }
    }

    /// What its agents have `shown` counts before what a ManifestWork brings, as where a rotation waits for them: an
    /// agent that fetches the bundle itself does not use the ConfigMap. `None` if nothing is known, because a
    /// ManifestWork `is_brought` to nobody, or not to this addon.
    pub(super) fn of(&self, key: &AddOnKey, shown: Option<bool>, is_brought: bool) -> Option<HeldTrust> {
        match shown {
            Some(true) => return Some(HeldTrust::Present),
            Some(false) => return Some(HeldTrust::Another),
            None => {}
        }
        let is_applied = self.works.get(key).copied().unwrap_or_default();
        let brought = if is_applied { HeldTrust::Present } else { HeldTrust::NotApplied };
        (is_brought && !self.works.is_empty()).then_some(brought)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_show_counts_before_what_is_brought() {
        use HeldTrust::{Another, NotApplied, Present};
        let key = |cluster: &str| AddOnKey { cluster: cluster.parse().unwrap(), addon: "t".parse().unwrap() };
        let works = BTreeMap::from([(key("yes"), true), (key("no"), false)]);
        let some = BroughtTrust { digest: None, works };
        for (cluster, shown, is_brought, expected) in [
            ("yes", None, true, Some(Present)),
            ("no", None, true, Some(NotApplied)),
            ("new", None, true, Some(NotApplied)),
            ("yes", None, false, None),
            ("no", Some(true), true, Some(Present)),
            ("yes", Some(false), true, Some(Another)),
        ] {
            assert_eq!(some.of(&key(cluster), shown, is_brought), expected, "{cluster} {shown:?} {is_brought}");
        }
        let none = BroughtTrust::default();
        assert_eq!(none.of(&key("yes"), None, true), None, "no work is anywhere");
        assert_eq!(none.of(&key("yes"), Some(true), false), Some(Present));
    }
}
