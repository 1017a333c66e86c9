//! The parts of Open Cluster Management's types that we use: names, labels and annotations of clusters and addons.
//!
//! The hub reads them as [`OcmObject`], in bounded memory. Source: open-cluster-management.io/api
//! `addon/{v1alpha1,v1beta1}/types_managedclusteraddon.go`.

mod object;

pub use object::OcmObject;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

use addon_signer_core::identity::AddOnKey;
use addon_signer_core::names::{ANNOTATION_REVOKE_BEFORE, ANNOTATION_REVOKED_BY, ANNOTATION_SUSPENDED};
use addon_signer_core::registry::Revocation;
use addon_signer_core::timestamp::Timestamp;

/// API group of ManagedCluster.
pub const CLUSTER_GROUP: &str = "cluster.open-cluster-management.io";
/// API group of ManagedClusterAddOn.
pub const ADDON_GROUP: &str = "addon.open-cluster-management.io";

/// The longest user name that is read from an annotation, in characters. Kubernetes' own names are shorter.
const USER_MAX: usize = 256;

/// The versions of ManagedClusterAddOn; a hub serves one or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddOnApi {
    /// Read by OCM agents up to v1.2.
    V1Alpha1,
    /// Read by OCM agents from v1.3 on.
    V1Beta1,
}

impl AddOnApi {
    /// The version's name.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    /// ManagedClusterAddOn in this version.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let kind = GroupVersionKind::gvk(ADDON_GROUP, self.version(), "ManagedClusterAddOn");
        ApiResource::from_gvk_with_plural(&kind, "managedclusteraddons")
    }
}

/// ManagedCluster, cluster-scoped, v1.
#[must_use]
pub fn managed_cluster_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(CLUSTER_GROUP, "v1", "ManagedCluster");
    ApiResource::from_gvk_with_plural(&kind, "managedclusters")
}

/// Whether the hub has accepted a ManagedCluster: `spec.hubAcceptsClient` is `true`, absent is not.
#[must_use]
pub fn hub_accepts_client(cluster: &DynamicObject) -> bool {
    cluster.data.pointer("/spec/hubAcceptsClient") == Some(&Value::Bool(true))
}

/// Whether the object is being deleted.
#[must_use]
pub fn is_being_deleted(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// Cluster and name of a ManagedClusterAddOn; `None` for names that OCM does not allow, which no identity can have.
#[must_use]
pub fn addon_key(addon: &DynamicObject) -> Option<AddOnKey> {
    let cluster = addon.metadata.namespace.as_ref()?.parse().ok()?;
    Some(AddOnKey { cluster, addon: addon.metadata.name.as_ref()?.parse().ok()? })
}

/// Whether an administrator has suspended an addon on its cluster: [`ANNOTATION_SUSPENDED`] with any value but
/// `false`, so that `True` or `yes` suspends it too.
#[must_use]
pub fn is_suspended(addon: &DynamicObject) -> bool {
    let annotations = addon.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(ANNOTATION_SUSPENDED)).is_some_and(|value| value != "false")
}

/// The value of [`ANNOTATION_REVOKE_BEFORE`] is not a time. The intended time is unknown, so nobody gets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableRevocation;

/// Which certificates of an addon on its cluster are revoked. A part of a second counts as a whole second, so that more
/// are revoked.
///
/// [`ANNOTATION_REVOKED_BY`] says who asked, but only if it names exactly this time. If it names another time, somebody
/// edited the time and left the old annotation behind.
///
/// # Errors
/// [`UnreadableRevocation`].
pub fn revocation(addon: &DynamicObject) -> Result<Option<Revocation>, UnreadableRevocation> {
    let annotation = |name| addon.metadata.annotations.as_ref().and_then(|all| all.get(name));
    let Some(text) = annotation(ANNOTATION_REVOKE_BEFORE) else { return Ok(None) };
    let before = Timestamp::from_rfc3339_rounded_up(text).ok_or(UnreadableRevocation)?;
    let said = annotation(ANNOTATION_REVOKED_BY).and_then(|said| said.split_once(' '));
    let of_this = said.filter(|(time, _)| Timestamp::from_rfc3339_rounded_up(time) == Some(before));
    let by = of_this.map(|(_, user)| user.chars().take(USER_MAX).collect()).unwrap_or_default();
    Ok(Some(Revocation { before, by }))
}

#[cfg(test)]
mod tests;
