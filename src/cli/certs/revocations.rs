//! Which certificates were revoked. The ledger does not know: a revocation is an annotation of a ManagedClusterAddOn.

use std::collections::BTreeMap;

use anyhow::Context;
use kube::{Api, Client};

use addon_signer_api::ocm::{self, OcmObject};
use addon_signer_core::identity::{AddOnKey, ClusterName};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::registrations::registry::discover;
use addon_signer_ledger::view::Certificate;
use addon_signer_platform::kubeconfig::Access;
use addon_signer_platform::kubernetes;
use addon_signer_platform::listing::{self, Selector};

/// For addons on clusters, the time before which their certificates must have begun to be revoked.
#[derive(Debug, Default)]
pub(super) struct Revocations(BTreeMap<(String, String), Timestamp>);

impl Revocations {
    /// Reads those on this cluster, or on all, with this kubeconfig.
    pub(super) async fn connect(access: &Access, cluster: Option<ClusterName>) -> anyhow::Result<Self> {
        Self::read(&kubernetes::client(access).await?, cluster).await
    }

    /// Reads those on this cluster, or on all.
    pub(super) async fn read(client: &Client, cluster: Option<ClusterName>) -> anyhow::Result<Self> {
        let resource = discover(client).await?.resource();
        let addons: Api<OcmObject> = match cluster {
            Some(cluster) => Api::namespaced_with(client.clone(), cluster.as_str(), &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let mut all = BTreeMap::new();
        let listed = listing::each(addons, Selector::all(), |addon| {
            let Some(AddOnKey { cluster, addon: name }) = ocm::addon_key(&addon.object) else { return };
            // One that cannot be read makes the addon ineligible, which is another state.
            let revocation = ocm::revocation(&addon.object).unwrap_or_default();
            all.extend(revocation.map(|set| ((cluster.to_string(), name.to_string()), set.before)));
        });
        listed.await.context("ManagedClusterAddOns cannot be listed; the ClusterRole addon-signer-viewer allows it")?;
        Ok(Self(all))
    }

    /// Whether a certificate is revoked.
    pub(super) fn revokes(&self, certificate: &Certificate) -> bool {
        let before = self.0.get(&(certificate.cluster.clone(), certificate.addon.clone()));
        before.is_some_and(|before| certificate.not_before < *before)
    }
}
