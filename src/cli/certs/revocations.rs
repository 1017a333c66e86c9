//! Which certificates were revoked. The ledger does not know: a revocation is an annotation of a ManagedClusterAddOn.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow};
use kube::{Api, Client};
use tokio::time::timeout;

use crate::output::tell;
use addon_signer_api::ocm::{self, OcmObject};
use addon_signer_core::identity::{AddOnKey, ClusterName};
use addon_signer_core::journal::CertificateState;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::registrations::registry::discover;
use addon_signer_ledger::view::Certificate;
use addon_signer_platform::errors::explain;
use addon_signer_platform::kubeconfig::Access;
use addon_signer_platform::kubernetes;
use addon_signer_platform::listing::{self, Selector};

/// How long a list waits for what it can do without.
const TIMEOUT: Duration = Duration::from_secs(5);

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

    /// What was read; on an error, or if nobody answers soon, none, with a line on standard error.
    pub(super) async fn or_none(reading: impl Future<Output = anyhow::Result<Self>>) -> Self {
        let read = timeout(TIMEOUT, reading).await;
        let late = || anyhow!("ManagedClusterAddOns were not all listed within {} s", TIMEOUT.as_secs());
        read.unwrap_or_else(|_| Err(late())).unwrap_or_else(Self::unknown)
    }

    /// None, because of this error, with a line on standard error.
    pub(super) fn unknown(error: anyhow::Error) -> Self {
        tell(&format!("What is revoked is not known: {}", explain(error.as_ref())));
        Self::default()
    }

    /// Whether a certificate that an agent may have is revoked.
    pub(super) fn revokes(&self, certificate: &Certificate) -> bool {
        if !matches!(certificate.state, CertificateState::Signed | CertificateState::Published) {
            return false;
        }
        let before = self.0.get(&(certificate.cluster.clone(), certificate.addon.clone()));
        before.is_some_and(|before| certificate.not_before < *before)
    }

    /// Revokes what began before this time.
    #[cfg(test)]
    pub(super) fn revoke(&mut self, cluster: &str, addon: &str, before: Timestamp) {
        self.0.insert((cluster.to_owned(), addon.to_owned()), before);
    }
}
