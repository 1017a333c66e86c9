//! Objects that are read even though part of their metadata cannot be.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::DeserializeGuard;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::AddOnSigner;
use super::kept::{KeepOf, Kept, resource_by};
use addon_signer_core::bounded;

/// What is wrong with an object of which a part was not read.
const TOO_LARGE: &str = "it is larger than the hub reads: mind its labels";

/// One of our objects, whatever its content.
pub type Guarded<K> = Lenient<DeserializeGuard<K>>;
/// An AddOnSigner, whatever its metadata contains.
pub type GuardedSigner = Guarded<AddOnSigner>;

/// An object without its unused parts ([`Kept`]), and without the metadata that cannot be read. The API server accepts
/// times in `managedFields` that are later than any that this program can read, and values in it that are nested more
/// deeply. One object with those must hide neither itself nor the others in its list or watch.
#[derive(Debug, Clone)]
pub struct Lenient<K> {
    /// The object.
    pub object: K,
    /// What else in its metadata cannot be read, which the API server should prevent.
    pub decode_error: Option<String>,
}

impl<K> Guarded<K> {
    /// The object, or why it cannot be read.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(self) -> Result<K, String> {
        let read = self.object.0.map_err(|invalid| invalid.error)?;
        self.decode_error.map_or(Ok(read), Err)
    }
}

impl<'de, K: DeserializeOwned + Kept> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // serde_json counts levels from the beginning of a list, and one deeply nested object must not make it reject
        // the others.
        let bounded::KeptValue { mut value, is_cut } = bounded::read(deserializer, KeepOf::<K>::KEEP)?;
        let decode_error = value.get_mut("metadata").and_then(mend).or_else(|| is_cut.then(|| TOO_LARGE.to_owned()));
        let object = K::deserialize(value).map_err(D::Error::custom)?;
        Ok(Self { object, decode_error })
    }
}

impl<K> From<K> for Lenient<K> {
    fn from(object: K) -> Self {
        Self { object, decode_error: None }
    }
}

impl<K: Serialize> Serialize for Lenient<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

/// Removes what cannot be read. Returns what is wrong, unless it is only the time of a write.
fn mend(metadata: &mut Value) -> Option<String> {
    let entries = metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten();
    for entry in entries.filter_map(Value::as_object_mut) {
        if entry.get("time").is_some_and(|time| Option::<Time>::deserialize(time).is_err()) {
            entry.remove("time");
        }
    }
    let error = ObjectMeta::deserialize(&*metadata).err()?;
    metadata.as_object_mut()?.retain(|name, value| {
        let field = Map::from_iter([(name.clone(), value.clone())]);
        ObjectMeta::deserialize(Value::Object(field)).is_ok()
    });
    Some(format!("metadata: {error}"))
}

resource_by!([K: kube::Resource] Lenient<K>, object: K);

#[cfg(test)]
mod tests {
    use kube::{Resource, ResourceExt};
    use serde_json::json;

    use super::*;
    use crate::ocm::last_manager;

    fn read(object: &Value) -> GuardedSigner {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    #[test]
    fn an_addon_signer_with_a_time_that_cannot_be_read_is_read() {
        for time in ["9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "soon"] {
            let mut object = json!({
                "metadata": { "name": "a", "uid": "u", "resourceVersion": "7", "managedFields": [
                    { "manager": "kubectl", "operation": "Update", "time": "2026-11-21T00:00:00Z" },
                    { "manager": "m", "operation": "Update", "time": time },
                ] },
                "spec": { "signerName": "a.b/c", "addOns": ["t"] },
            });
            let signer = read(&object).read().unwrap();
            assert_eq!((signer.name_any().as_str(), last_manager(&signer.metadata)), ("a", "kubectl"), "{time}");
            object["spec"]["addOns"] = "t".into();
            assert_eq!(read(&object).name_any(), "a");
            assert!(read(&object).read().is_err());
        }
    }

    /// serde_json gives up at 128 levels. etcd keeps far more, in `managedFields` for instance.
    #[test]
    fn a_list_is_read_although_an_object_in_it_is_nested_deeply() {
        let deep = (0..500).fold(json!({}), |inner, _| json!({ "f:a": inner }));
        let mk_object = |name: &str, fields: &Value| {
            json!({
                "metadata": { "name": name, "managedFields": [{ "manager": "m", "fieldsV1": fields }] },
                "spec": { "signerName": "a.b/c", "addOns": ["t"] },
            })
        };
        let list = json!([mk_object("a", &deep), mk_object("b", &json!({}))]).to_string();
        let read: Vec<GuardedSigner> = serde_json::from_str(&list).unwrap();
        let names: Vec<String> = read.into_iter().map(|signer| signer.read().unwrap().name_any()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn of_metadata_that_cannot_be_read_the_rest_counts() {
        let object = json!({
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" },
                          "deletionTimestamp": "9999-12-31T23:59:59Z", "generation": "two", "managedFields": "none" },
            "spec": { "signerName": "a.b/c", "addOns": ["t"] },
        });
        let signer = read(&object);
        let ObjectMeta { name, uid, resource_version, labels, .. } = signer.meta();
        assert_eq!([name, uid, resource_version].map(|text| text.as_deref()), [Some("a"), Some("u"), Some("7")]);
        assert_eq!(labels.as_ref().map(|labels| labels.len()), Some(1));
        assert!(signer.read().unwrap_err().starts_with("metadata: "));
    }
}
