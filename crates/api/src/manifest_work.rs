//! The ManifestWork by which the gateway's anchors reach one addon on one cluster: it writes one ConfigMap into the
//! namespace of the addon's agent. Source: open-cluster-management.io/api `work/v1/types.go`.
//!
//! The chart's policy allows the hub's account exactly what [`body`] makes.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::ocm::{self, AddOnApi};
use addon_signer_core::identity::{AddOnKey, AddOnName};
use addon_signer_core::names::LABEL_HUB_TRUST;
use addon_signer_core::names::{TRUST_CONFIG_MAP, TRUST_WORK};

/// API group of ManifestWork.
pub const WORK_GROUP: &str = "work.open-cluster-management.io";
/// Its version.
pub const WORK_VERSION: &str = "v1";
/// Its plural.
pub const MANIFEST_WORKS: &str = "manifestworks";

/// The fields of `spec` that the hub does not write: with them the work could be applied differently, or left behind.
pub const FOREIGN: [&str; 3] = ["manifestConfigs", "deleteOption", "executor"];
/// The key of the ConfigMap's only entry, as in the agent's Secret.
const CA_CRT: &str = "ca.crt";

/// ManifestWork.
#[must_use]
pub fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(WORK_GROUP, WORK_VERSION, "ManifestWork");
    ApiResource::from_gvk_with_plural(&kind, MANIFEST_WORKS)
}

/// The name of an addon's ManifestWork, unique in the cluster's namespace; at most 82 characters.
#[must_use]
pub fn work_name(addon: &AddOnName) -> String {
    TRUST_WORK.replace("<addon>", addon.as_str())
}

/// The name of the ConfigMap on the managed cluster; at most 73 characters.
#[must_use]
pub fn config_map_name(addon: &AddOnName) -> String {
    TRUST_CONFIG_MAP.replace("<addon>", addon.as_str())
}

/// Where an addon's agent runs on its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In this namespace.
    Namespace(Box<str>),
    /// On another cluster, its hosting cluster.
    Hosted,
    /// What OCM would use as the namespace's name is not valid.
    Unnamed,
}

/// An addon on a cluster, as far as its ManifestWork depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The UID of its ManagedClusterAddOn, which owns the ManifestWork.
    pub uid: Box<str>,
    /// Where its agent runs.
    pub place: Place,
    /// Whether it is being deleted.
    pub is_leaving: bool,
}

impl Placement {
    /// Reads a ManagedClusterAddOn.
    #[must_use]
    pub fn read(addon: &DynamicObject) -> Self {
        let place = if ocm::is_hosted(addon) {
            Place::Hosted
        } else {
            ocm::install_namespace(addon).map_or(Place::Unnamed, |name| Place::Namespace(name.into()))
        };
        let uid = addon.metadata.uid.as_deref().unwrap_or_default().into();
        Self { uid, place, is_leaving: ocm::is_being_deleted(addon) }
    }
}

/// SHA-256.
pub type AnchorsDigest = [u8; 32];

/// What a ManifestWork brings, if it matches [`body`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The UID of its only owner.
    pub owner: Box<str>,
    /// The namespace of the ConfigMap.
    pub namespace: Box<str>,
    /// The digest of the anchors.
    pub anchors: AnchorsDigest,
}

/// A ManifestWork of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Its `resourceVersion`.
    pub version: Box<str>,
    /// `None` if another client has changed it.
    pub content: Option<Content>,
    /// Whether the cluster has applied its current content.
    pub is_applied: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
}

impl Work {
    /// Reads a ManifestWork; `None` for one that is not the hub's.
    #[must_use]
    pub fn read(object: &DynamicObject) -> Option<(AddOnKey, Self)> {
        let labels = object.metadata.labels.as_ref()?;
        let addon: AddOnName = labels.get(LABEL_HUB_TRUST)?.parse().ok()?;
        if object.metadata.name.as_deref() != Some(&work_name(&addon)) {
            return None;
        }
        let work = Self {
            version: object.metadata.resource_version.as_deref().unwrap_or_default().into(),
            content: content(object, &addon),
            is_applied: is_applied(object),
            is_deleting: ocm::is_being_deleted(object),
        };
        let cluster = object.metadata.namespace.as_ref()?.parse().ok()?;
        Some((AddOnKey { cluster, addon }, work))
    }
}

/// The addon and the cluster of a ManifestWork, by its name alone.
#[must_use]
pub fn key_of(object: &DynamicObject) -> Option<AddOnKey> {
    let addon = object.metadata.name.as_deref()?.strip_prefix("addon-signer-")?.strip_suffix("-trust")?.parse().ok()?;
    Some(AddOnKey { cluster: object.metadata.namespace.as_ref()?.parse().ok()?, addon })
}

/// Distinguishes one text of anchors from another.
#[must_use]
pub fn digest_of(anchors: &str) -> AnchorsDigest {
    let mut bytes = AnchorsDigest::default();
    bytes.copy_from_slice(digest(&SHA256, anchors.as_bytes()).as_ref());
    bytes
}

fn content(object: &DynamicObject, addon: &AddOnName) -> Option<Content> {
    let [owner] = object.metadata.owner_references.as_deref()? else { return None };
    let spec = object.data.get("spec")?;
    if FOREIGN.iter().any(|field| spec.get(field).is_some_and(|value| !value.is_null())) {
        return None;
    }
    let manifests = object.data.pointer("/spec/workload/manifests")?;
    let text = |path| manifests.pointer(path).and_then(Value::as_str);
    let (namespace, anchors) = (text("/0/metadata/namespace")?, text("/0/data/ca.crt")?);
    let owner = owner.uid.as_str().into();
    (*manifests == manifests_of(addon, namespace, anchors)).then(|| Content {
        owner,
        namespace: namespace.into(),
        anchors: digest_of(anchors),
    })
}

/// Whether the work agent reports that for the current generation (`ManifestWork` condition `Applied`).
fn is_applied(object: &DynamicObject) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == "Applied"
            && condition["status"] == "True"
            && condition["observedGeneration"].as_i64() == object.metadata.generation
    })
}

fn manifests_of(addon: &AddOnName, namespace: &str, anchors: &str) -> Value {
    json!([{
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": config_map_name(addon), "namespace": namespace },
        "data": { CA_CRT: anchors },
    }])
}

/// The merge patch that restores [`body`] in a ManifestWork that another client has changed, if it still has this
/// version.
#[must_use]
pub fn repair(mut body: Value, version: &str) -> Value {
    if let Some(metadata) = body.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
    if let Some(spec) = body.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.extend(FOREIGN.map(|field| (field.to_owned(), Value::Null)));
    }
    body
}

/// The parts of a ManifestWork that the hub writes. Kubernetes deletes it with its owner.
#[must_use]
pub fn body(key: &AddOnKey, api: AddOnApi, owner: &str, namespace: &str, anchors: &str) -> Value {
    let addon = &key.addon;
    let owner_kind = api.resource();
    json!({
        "apiVersion": format!("{WORK_GROUP}/{WORK_VERSION}"),
        "kind": "ManifestWork",
        "metadata": {
            "name": work_name(addon),
            "namespace": key.cluster.as_str(),
            "labels": { LABEL_HUB_TRUST: addon.as_str() },
            "ownerReferences": [{
                "apiVersion": owner_kind.api_version, "kind": owner_kind.kind, "name": addon.as_str(), "uid": owner,
            }],
        },
        "spec": { "workload": { "manifests": manifests_of(addon, namespace, anchors) } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_work(change: impl FnOnce(&mut Value)) -> DynamicObject {
        let key = AddOnKey { cluster: "c1".parse().unwrap(), addon: "telemetry".parse().unwrap() };
        let mut work = body(&key, AddOnApi::V1Alpha1, "u1", "agents", "PEM");
        work["metadata"]["resourceVersion"] = "7".into();
        work["metadata"]["generation"] = 2.into();
        work["status"] = json!({ "conditions": [{ "type": "Applied", "status": "True", "observedGeneration": 2 }] });
        change(&mut work);
        serde_json::from_value(work).unwrap()
    }

    #[test]
    fn what_the_hub_writes_is_what_it_reads() {
        let (key, work) = Work::read(&mk_work(|_| ())).unwrap();
        assert_eq!(key.to_string(), "c1/telemetry");
        let content = Content { owner: "u1".into(), namespace: "agents".into(), anchors: digest_of("PEM") };
        let version = "7".into();
        let (is_applied, is_deleting) = (true, false);
        assert_eq!(work, Work { version, content: Some(content), is_applied, is_deleting });
    }

    #[test]
    fn what_somebody_changed_is_not_what_the_hub_wrote() {
        let changes: [fn(&mut Value); 10] = [
            |work| work["spec"]["manifestConfigs"] = json!([{ "updateStrategy": { "type": "CreateOnly" } }]),
            |work| work["spec"]["deleteOption"] = json!({ "propagationPolicy": "Orphan" }),
            |work| work["spec"]["executor"] = json!({}),
            |work| work["spec"]["workload"]["manifests"][0]["data"]["more"] = "x".into(),
            |work| work["spec"]["workload"]["manifests"][0]["kind"] = "Secret".into(),
            |work| work["spec"]["workload"]["manifests"][0]["metadata"]["name"] = "other".into(),
            |work| work["spec"]["workload"]["manifests"] = json!([]),
            |work| work["spec"]["workload"]["manifests"].as_array_mut().unwrap().push(json!({})),
            |work| work["metadata"]["ownerReferences"] = json!([]),
            |work| work["spec"] = Value::Null,
        ];
        for change in changes {
            assert_eq!(Work::read(&mk_work(change)).unwrap().1.content, None);
        }
        let key = AddOnKey { cluster: "c1".parse().unwrap(), addon: "telemetry".parse().unwrap() };
        let repaired = repair(body(&key, AddOnApi::V1Alpha1, "u1", "agents", "PEM"), "7");
        let spec = repaired["spec"].as_object().unwrap();
        assert!(FOREIGN.iter().all(|field| spec.get(*field) == Some(&Value::Null)), "{repaired}");
    }

    #[test]
    fn a_work_of_another_name_or_without_the_label_is_anothers() {
        let changes: [fn(&mut Value); 4] = [
            |work| work["metadata"]["name"] = "addon-telemetry-deploy-0".into(),
            |work| work["metadata"]["labels"] = json!({}),
            |work| work["metadata"]["labels"][LABEL_HUB_TRUST] = "search".into(),
            |work| work["metadata"]["labels"][LABEL_HUB_TRUST] = "No Name".into(),
        ];
        for change in changes {
            assert_eq!(Work::read(&mk_work(change)), None);
        }
    }

    #[test]
    fn applied_is_what_the_cluster_says_of_the_present_generation() {
        let changes: [fn(&mut Value); 4] = [
            |work| work["status"]["conditions"][0]["observedGeneration"] = 1.into(),
            |work| work["status"]["conditions"][0]["status"] = "False".into(),
            |work| work["status"]["conditions"][0]["type"] = "Available".into(),
            |work| work["status"] = Value::Null,
        ];
        for change in changes {
            assert!(!Work::read(&mk_work(change)).unwrap().1.is_applied);
        }
    }

    #[test]
    fn names_of_the_longest_addon_are_legal() {
        let longest: AddOnName = "a".repeat(63).parse().unwrap();
        assert_eq!((work_name(&longest).len(), config_map_name(&longest).len()), (82, 73));
    }
}
