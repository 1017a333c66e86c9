//! The parts of Open Cluster Management's types that we use: names, labels and annotations of clusters and addons.
//!
//! The hub reads them as [`OcmObject`], in bounded memory. Source: open-cluster-management.io/api
//! `addon/{v1alpha1,v1beta1}/types_managedclusteraddon.go`.

mod object;

pub use object::OcmObject;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

use addon_signer_core::identity::{AddOnKey, ClusterName};
use addon_signer_core::names::{ANNOTATION_REVOKE_BEFORE, ANNOTATION_REVOKED_BY, ANNOTATION_SUSPENDED};
use addon_signer_core::registry::Revocation;
use addon_signer_core::timestamp::Timestamp;

/// API group of ManagedCluster.
pub const CLUSTER_GROUP: &str = "cluster.open-cluster-management.io";
/// API group of ManagedClusterAddOn.
pub const ADDON_GROUP: &str = "addon.open-cluster-management.io";

/// On a ManagedClusterAddOn (v1beta1): the namespace of its agent.
const ANNOTATION_INSTALL_NAMESPACE: &str = "addon.open-cluster-management.io/v1alpha1-install-namespace";
/// On a ManagedClusterAddOn: the cluster on which its agent runs, if that is a different one.
const ANNOTATION_HOSTING_CLUSTER: &str = "addon.open-cluster-management.io/hosting-cluster-name";
/// On a ManagedCluster: the ManagedClusterSet that it is in. Only a user who may join clusters to the set may write it
/// (OCM's webhook for ManagedClusters).
const LABEL_CLUSTER_SET: &str = "cluster.open-cluster-management.io/clusterset";
/// The namespace of agents for which none is specified.
const DEFAULT_NAMESPACE: &str = "open-cluster-management-agent-addon";

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

    /// The version in which a ManagedClusterAddOn was read.
    #[must_use]
    pub fn of(addon: &DynamicObject) -> Option<Self> {
        let version = addon.types.as_ref()?.api_version.strip_prefix(ADDON_GROUP)?.strip_prefix('/')?;
        [Self::V1Alpha1, Self::V1Beta1].into_iter().find(|api| api.version() == version)
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

/// Whether the hub has accepted a ManagedCluster: `spec.hubAcceptsClient` is `true`; if it is absent, the hub has not.
#[must_use]
pub fn hub_accepts_client(cluster: &DynamicObject) -> bool {
    cluster.data.pointer("/spec/hubAcceptsClient") == Some(&Value::Bool(true))
}

/// The ManagedClusterSet that a ManagedCluster is in.
#[must_use]
pub fn cluster_set(cluster: &DynamicObject) -> Option<String> {
    cluster.metadata.labels.as_ref()?.get(LABEL_CLUSTER_SET).filter(|set| !set.is_empty()).cloned()
}

/// Whether the object is being deleted.
#[must_use]
pub fn is_being_deleted(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// When the API server created the object; no client can choose or change that time.
#[must_use]
pub fn created(object: &DynamicObject) -> Option<Timestamp> {
    created_at(&object.metadata)
}

/// The same for any object.
#[must_use]
pub fn created_at(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.creation_timestamp.as_ref().map(|made| Timestamp::from_unix(made.0.as_second()))
}

/// Cluster and name of a ManagedClusterAddOn; `None` for names that OCM does not allow, which no identity can have.
#[must_use]
pub fn addon_key(addon: &DynamicObject) -> Option<AddOnKey> {
    let cluster = addon.metadata.namespace.as_ref()?.parse().ok()?;
    Some(AddOnKey { cluster, addon: addon.metadata.name.as_ref()?.parse().ok()? })
}

/// Whether the agent of a ManagedClusterAddOn runs on another cluster.
#[must_use]
pub fn is_hosted(addon: &DynamicObject) -> bool {
    annotation(addon, ANNOTATION_HOSTING_CLUSTER).is_some_and(|hosting| !hosting.is_empty())
}

/// The namespace of a ManagedClusterAddOn's agent on its cluster, as OCM's registration agent chooses it
/// (`pkg/registration/spoke/addon/configuration.go`); `None` if that is not a valid namespace name. The addon-manager
/// puts that of an AddOnDeploymentConfig into `status.namespace`.
#[must_use]
pub fn install_namespace(addon: &DynamicObject) -> Option<&str> {
    let text = |path| addon.data.pointer(path).and_then(Value::as_str);
    let written =
        [text("/status/namespace"), annotation(addon, ANNOTATION_INSTALL_NAMESPACE), text("/spec/installNamespace")];
    let name = written.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or(DEFAULT_NAMESPACE);
    // A cluster's name is that of its namespace on the hub, so both have the same form.
    name.parse::<ClusterName>().is_ok().then_some(name)
}

fn annotation<'o>(object: &'o DynamicObject, name: &str) -> Option<&'o str> {
    object.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Whether an administrator has suspended an addon on its cluster: [`ANNOTATION_SUSPENDED`] with any value but
/// `false`, so that `True` or `yes` suspends it too.
#[must_use]
pub fn is_suspended(addon: &DynamicObject) -> bool {
    annotation(addon, ANNOTATION_SUSPENDED).is_some_and(|value| value != "false")
}

/// The value of [`ANNOTATION_REVOKE_BEFORE`] is not a time. The intended time is unknown, so no certificate is
/// accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableRevocation;

/// Which certificates of an addon on its cluster are revoked. A fraction of a second counts as a whole second, so that
/// more are revoked.
///
/// [`ANNOTATION_REVOKED_BY`] names the user who asked, but only if it has exactly this time. If it has another time,
/// the time was edited and the old annotation left behind.
pub fn revocation(addon: &DynamicObject) -> Result<Option<Revocation>, UnreadableRevocation> {
    let Some(text) = annotation(addon, ANNOTATION_REVOKE_BEFORE) else { return Ok(None) };
    let before = Timestamp::from_rfc3339_rounded_up(text).ok_or(UnreadableRevocation)?;
    let written = annotation(addon, ANNOTATION_REVOKED_BY).and_then(|written| written.split_once(' '));
    let of_this = written.filter(|(time, _)| Timestamp::from_rfc3339_rounded_up(time) == Some(before));
    let by = of_this.map(|(_, user)| user.chars().take(USER_MAX).collect()).unwrap_or_default();
    Ok(Some(Revocation { before, by }))
}

/// The field manager of the last change of anything but a subresource; empty where the API server kept none.
#[must_use]
pub fn last_manager(object: &ObjectMeta) -> &str {
    let last = entries(object).max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    last.and_then(|entry| entry.manager.as_deref()).unwrap_or_default()
}

/// The field manager that set an annotation; empty if the annotation is absent, because a removal leaves no trace.
#[must_use]
pub fn annotator<'m>(object: &'m ObjectMeta, annotation: &str) -> &'m str {
    let field = format!("f:{annotation}");
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:metadata")?.get("f:annotations"));
        fields.is_some_and(|fields| fields.get(&field).is_some())
    };
    entries(object).find(owns).and_then(|entry| entry.manager.as_deref()).unwrap_or_default()
}

/// The field managers of a field of the status: the one that last changed its value, and all that wrote the same value
/// since.
pub fn status_managers<'m>(object: &'m ObjectMeta, field: &str) -> impl Iterator<Item = &'m str> {
    let field = format!("f:{field}");
    let owns = move |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:status"));
        fields.is_some_and(|fields| fields.get(&field).is_some())
    };
    object.managed_fields.iter().flatten().filter(owns).filter_map(|entry| entry.manager.as_deref())
}

fn entries(object: &ObjectMeta) -> impl Iterator<Item = &ManagedFieldsEntry> {
    object.managed_fields.iter().flatten().filter(|entry| entry.subresource.is_none())
}

#[cfg(test)]
mod tests;
