//! Which addons on which clusters `status` and `check` cover.

use kube::api::ApiResource;
use kube::{Api, Client};

use addon_signer_api::ocm::OcmObject;
use addon_signer_core::identity::{AddOnKey, AddOnName, ClusterName};
use addon_signer_core::query::Filter;

/// Which addons on which clusters.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Selection {
    pub(in crate::cli) addon: Option<AddOnName>,
    pub(in crate::cli) cluster: Option<ClusterName>,
}

impl Selection {
    pub(super) fn has(&self, key: &AddOnKey) -> bool {
        self.addon.as_ref().is_none_or(|addon| *addon == key.addon)
            && self.cluster.as_ref().is_none_or(|cluster| *cluster == key.cluster)
    }

    /// Such objects of these clusters: each cluster has a namespace of its name.
    pub(super) fn objects(&self, client: &Client, kind: &ApiResource) -> Api<OcmObject> {
        match &self.cluster {
            Some(cluster) => Api::namespaced_with(client.clone(), cluster.as_str(), kind),
            None => Api::all_with(client.clone(), kind),
        }
    }

    pub(super) fn filter(&self) -> Filter {
        let cluster = self.cluster.as_ref().map(ToString::to_string);
        Filter { cluster, addon: self.addon.as_ref().map(ToString::to_string), ..Filter::default() }
    }
}
