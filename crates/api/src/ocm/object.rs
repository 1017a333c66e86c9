//! A ManagedCluster, ManagedClusterAddOn or ManifestWork as the hub reads it: with the fields that it needs, in bounded
//! memory. A cluster's agent writes the status of its own addons and ManifestWorks, and may make it as large as the API
//! server accepts (1.5 MB).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff;
use kube::api::DynamicObject;
use serde::de::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{ANNOTATION_HOSTING_CLUSTER, ANNOTATION_INSTALL_NAMESPACE, LABEL_CLUSTER_SET};
use crate::kept::resource_by;
use addon_signer_core::bounded::{self, Keep};
use addon_signer_core::keep;
use addon_signer_core::names::{
    ANNOTATION_REVOKE_BEFORE, ANNOTATION_REVOKED_BY, ANNOTATION_SUSPENDED, LABEL_HUB_TRUST,
};

/// The longest of the texts that are always read. A longer one is truncated, which is fail-safe: the annotation that
/// revokes is then not a time, and the one that suspends is not `false`.
const LONGEST: usize = 1024;
/// The most memory for what only the writer of registrations reads; together with [`MANAGERS`] some 350 KiB per object.
const REGISTRATIONS: usize = 128 << 10;
const CONDITIONS: usize = 64 << 10;
const CONFIGS: usize = 32 << 10;
const OWNERS: usize = 16 << 10;
/// For a ManifestWork: a bundle of a few anchors has some 3 KB.
const WORKLOAD: usize = 64 << 10;
/// How many entries of `metadata.managedFields` are read. Kubernetes keeps ten, and one for each program that applies.
const MANAGERS: usize = 32;

/// Everything that decides the eligibility is read by name, so no additional content can hide it.
static WANTED: Keep = keep!(LONGEST; "apiVersion", "kind";
    "metadata" => keep!(LONGEST;
        "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation";
        "annotations" => keep!(LONGEST;
            ANNOTATION_SUSPENDED,
            ANNOTATION_REVOKE_BEFORE,
            ANNOTATION_REVOKED_BY,
            ANNOTATION_INSTALL_NAMESPACE,
            ANNOTATION_HOSTING_CLUSTER,
        ),
        "labels" => keep!(LONGEST; LABEL_HUB_TRUST, LABEL_CLUSTER_SET),
        "ownerReferences" => Keep::All(OWNERS),
        "managedFields" => Keep::Each(MANAGERS, &MANAGER),
    ),
    "spec" => keep!(LONGEST; "hubAcceptsClient", "installNamespace";
        "configs" => Keep::All(CONFIGS),
        "workload" => Keep::All(WORKLOAD),
        "manifestConfigs" => Keep::All(CONFIGS),
        "deleteOption" => Keep::All(CONFIGS),
        "executor" => Keep::All(CONFIGS),
    ),
    "status" => keep!(LONGEST; "namespace";
        "registrations" => Keep::All(REGISTRATIONS), "conditions" => Keep::All(CONDITIONS)),
);

/// The field managers of the fields that the hub asks about. Not the times: the API server accepts any time that an
/// agent writes there, even one later than any that this program can read.
static MANAGER: Keep = keep!(LONGEST; "manager", "operation", "subresource";
    "fieldsV1" => Keep::Fields(&[
        ("f:metadata", Keep::Fields(&[("f:annotations", Keep::Fields(&[("f:addon-signer.io/suspended", NAME_ONLY)]))])),
        ("f:status", Keep::Fields(&[("f:registrations", NAME_ONLY)])),
    ]),
);
const NAME_ONLY: Keep = Keep::Fields(&[]);

/// The object.
#[derive(Debug, Clone)]
pub struct OcmObject {
    /// The part of it that was read.
    pub object: DynamicObject,
    /// Whether there was more than the hub reads. In that case `status` may lack entries, so nothing is written into
    /// it; which addons are registered is known anyway.
    pub is_cut: bool,
}

impl From<DynamicObject> for OcmObject {
    fn from(object: DynamicObject) -> Self {
        Self { object, is_cut: false }
    }
}

impl<'de> Deserialize<'de> for OcmObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut kept = bounded::read(deserializer, &WANTED)?;
        let mut part = |name: &str| kept.value.get_mut(name).map(Value::take).unwrap_or_default();
        let metadata = match part("metadata") {
            Value::Null => ObjectMeta::default(),
            metadata => ObjectMeta::deserialize(&metadata).unwrap_or_else(|_| doubtful(&metadata)),
        };
        let data = Map::from_iter(["spec", "status"].map(|name| (name.to_owned(), part(name))));
        // Kubernetes includes them in every OCM object. One without them is read again before the hub writes to it.
        let types = serde_json::from_value(kept.value).ok(); // so a missing type is not an error
        let object = DynamicObject { types, metadata, data: Value::Object(data) };
        Ok(Self { object, is_cut: kept.is_cut })
    }
}

/// What replaces metadata that cannot be read: one such object must not hide all others in its list or watch. It is
/// treated as being deleted, so it makes no addon eligible.
fn doubtful(metadata: &Value) -> ObjectMeta {
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).map(str::to_owned);
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        deletion_timestamp: Some(Time(jiff::Timestamp::UNIX_EPOCH)),
        ..ObjectMeta::default()
    }
}

resource_by!([] OcmObject, object: DynamicObject);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ocm::{
        ADDON_GROUP, AddOnApi, annotator, hub_accepts_client, is_being_deleted, is_suspended, revocation,
    };
    use crate::registrations::is_anothers;

    fn read(object: &Value) -> OcmObject {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    #[test]
    fn of_an_addon_only_what_is_looked_at_is_kept() {
        let annotations = json!({ ANNOTATION_SUSPENDED: "true", "example.com/other": "x" });
        let fields = json!({ "f:metadata": { "f:annotations": { ".": {}, "f:addon-signer.io/suspended": {} } } });
        let managers = json!([
            { "manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields },
            { "manager": "agent", "fieldsV1": { "f:status": { "f:registrations": { "x": 1 } } } },
        ]);
        let addon = read(&json!({
            "apiVersion": format!("{ADDON_GROUP}/v1beta1"), "kind": "ManagedClusterAddOn",
            "metadata": {
                "name": "telemetry", "namespace": "spoke1", "labels": { "a": "b" }, "finalizers": ["a/b"],
                "annotations": annotations, "managedFields": managers, "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "configs": [4], "installNamespace": "ns" },
            "status": { "registrations": [1], "conditions": [2], "relatedObjects": [3] },
        }));
        assert!(!addon.is_cut);
        assert!(is_suspended(&addon.object));
        assert!(is_being_deleted(&addon.object));
        assert_eq!(AddOnApi::of(&addon.object), Some(AddOnApi::V1Beta1));
        assert!(is_anothers(&addon.object));
        assert_eq!(annotator(&addon.object.metadata, ANNOTATION_SUSPENDED), "kubectl");
        assert_eq!(addon.object.metadata.annotations.as_ref().unwrap().len(), 1);
        let ObjectMeta { labels, finalizers, .. } = &addon.object.metadata;
        assert!(labels.as_ref().unwrap().is_empty());
        assert!(finalizers.is_none());
        let spec = json!({ "configs": [4], "installNamespace": "ns" });
        let expected = json!({ "spec": spec, "status": { "registrations": [1], "conditions": [2] } });
        assert_eq!(addon.object.data, expected);
        let empty = read(&json!({ "metadata": { "name": "telemetry" } }));
        assert_eq!(empty.object.data, json!({ "spec": null, "status": null }));
        assert_eq!(AddOnApi::of(&empty.object), None);
    }

    #[test]
    fn no_metadata_hides_an_object() {
        let mut cluster = json!({
            "metadata": { "name": "c1", "uid": "u", "resourceVersion": "7", "generation": 2 },
            "spec": { "hubAcceptsClient": true },
        });
        for time in ["9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "soon"] {
            cluster["metadata"]["managedFields"] = json!([{ "manager": "agent", "operation": "Update", "time": time }]);
            let found = read(&cluster).object;
            assert!(hub_accepts_client(&found), "{time}");
            assert!(!is_being_deleted(&found), "{time}");
            assert_eq!(found.metadata.generation, Some(2));
        }
        cluster["metadata"]["deletionTimestamp"] = "9999-12-31T23:59:59Z".into();
        let found = read(&cluster).object;
        let ObjectMeta { name, uid, resource_version, .. } = &found.metadata;
        let kept = [name, uid, resource_version].map(|text| text.as_deref());
        assert_eq!((kept, is_being_deleted(&found)), ([Some("c1"), Some("u"), Some("7")], true));
    }

    #[test]
    fn a_status_too_large_hides_no_eligibility_and_is_not_kept() {
        let groups = vec!["a"; 375_000];
        let mut addon = json!({
            "metadata": { "name": "telemetry", "namespace": "spoke1", "annotations": { ANNOTATION_SUSPENDED: "yes" } },
            "status": { "registrations": [{ "signerName": "x", "subject": { "groups": groups } }] },
        });
        let read_back = read(&addon);
        assert!(read_back.is_cut);
        assert!(is_suspended(&read_back.object));
        assert!(read_back.object.data.to_string().len() < REGISTRATIONS);
        addon["status"] = json!({ "conditions": vec![json!({ "type": "a" }); 50_000] });
        assert!(read(&addon).is_cut);
        let manager = json!({ "manager": "m", "fieldsV1": { "f:status": { "f:registrations": {} } } });
        addon["status"] = Value::Null;
        addon["metadata"]["managedFields"] = json!(vec![manager.clone(); MANAGERS]);
        assert!(!read(&addon).is_cut);
        addon["metadata"]["managedFields"] = json!(vec![manager; 10_000]);
        assert!(read(&addon).is_cut);
        assert!(is_suspended(&read(&addon).object));
    }

    #[test]
    fn annotations_that_are_too_long_make_nobody_eligible() {
        let mut addon = json!({ "metadata": { "annotations": { ANNOTATION_SUSPENDED: "x".repeat(500_000) } } });
        assert!(read(&addon).is_cut);
        assert!(is_suspended(&read(&addon).object));
        let time = format!("2026-01-01T00:00:00.{}Z", "0".repeat(2_000));
        addon["metadata"]["annotations"] = json!({ ANNOTATION_REVOKE_BEFORE: time });
        assert!(revocation(&read(&addon).object).is_err());
    }
}
