//! A CertificateSigningRequest as the hub reads it, in bounded memory. A client that may create CSRs may pad them with
//! some 1.5 MB of labels, annotations, owners and finalizers, for which Kubernetes' types need 12 times the memory; who
//! may approve some signer's CSRs may write times that those types cannot read.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::{Value, json};

use crate::kept::resource_by;
use addon_signer_core::bounded::{self, Keep};
use addon_signer_core::csr::MAX_PEM_BYTES;
use addon_signer_core::keep;
use addon_signer_core::names::ANNOTATION_CSR_USER;

/// The longest of the texts that are always read. A longer one is truncated.
const LONGEST: usize = 1024;
/// The most memory for each list or map that the requester writes. 16 KiB of text fits.
const METADATA: usize = 64 << 10;
/// The most memory for each list of the spec and the status, which only the API server and signers write.
const LIST: usize = 32 << 10;
/// The longest request that is read, as base64: a few bytes more than policy accepts. A multiple of four keeps it valid
/// base64.
const REQUEST: usize = 4 * (MAX_PEM_BYTES / 3 + 1);
/// The longest certificate that is read, as base64.
const CERTIFICATE: usize = 64 << 10;

/// The key of `spec.extra` that has the pod to which the requester's token belongs (Kubernetes, `PodNameKey`).
pub const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// Without `managedFields`, which the API server keeps when an update has none, and without most of `spec.extra`, which
/// no update can change. Requester and tenant are read by name, so no additional content can hide them.
static WANTED: Keep = Keep::Fields(&[
    (
        "metadata",
        keep!(LONGEST;
            "name",
            "generateName",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds";
            "labels" => Keep::All(METADATA),
            "annotations" => Keep::FieldsAnd(&[(ANNOTATION_CSR_USER, Keep::Scalar(LONGEST))], METADATA),
            "ownerReferences" => Keep::All(METADATA),
            "finalizers" => Keep::All(METADATA),
        ),
    ),
    (
        "spec",
        keep!(LONGEST; "signerName", "username", "uid", "expirationSeconds";
            "request" => Keep::Scalar(REQUEST),
            "groups" => Keep::All(LIST),
            "usages" => Keep::All(LIST),
            "extra" => Keep::Fields(&[(POD_NAME, Keep::Each(1, &Keep::Scalar(LONGEST)))]),
        ),
    ),
    ("status", keep!(CERTIFICATE; "certificate"; "conditions" => Keep::All(LIST))),
]);

/// The CSR.
#[derive(Debug, Clone)]
pub struct BoundedCsr {
    /// The part of it that was read.
    pub csr: CertificateSigningRequest,
    /// Whether there was more than the hub reads. In that case the CSR is refused as too large.
    pub is_cut: bool,
}

impl<'de> Deserialize<'de> for BoundedCsr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut kept = bounded::read(deserializer, &WANTED)?;
        drop_unreadable_times(&mut kept.value);
        // One that cannot be read must not hide all others in its list or watch.
        match CertificateSigningRequest::deserialize(&kept.value) {
            Ok(csr) => Ok(Self { csr, is_cut: kept.is_cut }),
            Err(_) => {
                let csr = serde_json::from_value(named(&kept.value)).map_err(D::Error::custom)?;
                Ok(Self { csr, is_cut: true })
            }
        }
    }
}

/// The API server accepts times in conditions that are later than any that [`Time`] can be.
fn drop_unreadable_times(csr: &mut Value) {
    let conditions = csr.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten();
    for condition in conditions.filter_map(Value::as_object_mut) {
        condition.retain(|name, value| !name.ends_with("Time") || Option::<Time>::deserialize(&*value).is_ok());
    }
}

/// A CSR of which only this can be read.
fn named(csr: &Value) -> Value {
    let text = |name: &str| csr.pointer(name).filter(|value| value.is_string()).cloned().unwrap_or_default();
    let [name, uid, version] = ["name", "uid", "resourceVersion"].map(|name| text(&format!("/metadata/{name}")));
    let spec = json!({ "signerName": text("/spec/signerName"), "username": text("/spec/username"), "request": "" });
    json!({ "metadata": { "name": name, "uid": uid, "resourceVersion": version }, "spec": spec })
}

resource_by!([] BoundedCsr, csr: CertificateSigningRequest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csr_hides_no_other_whatever_its_status_says() {
        let late = "9999-12-31T23:59:59Z";
        let with = |condition: Value| {
            let metadata = json!({ "name": "a", "uid": "u", "resourceVersion": "7" });
            let spec = json!({ "signerName": "a.b/c", "request": "" });
            let csr = json!({ "metadata": metadata, "spec": spec, "status": { "conditions": [condition] } });
            let list = json!([csr, csr]).to_string();
            serde_json::from_str::<Vec<BoundedCsr>>(&list).unwrap().remove(1)
        };
        let read =
            with(json!({ "type": "Approved", "status": "True", "lastUpdateTime": late, "lastTransitionTime": late }));
        let condition = &read.csr.status.as_ref().unwrap().conditions.as_ref().unwrap()[0];
        assert_eq!((condition.type_.as_str(), read.is_cut), ("Approved", false));
        let BoundedCsr { csr, is_cut } = with(json!({ "type": ["Approved"] }));
        assert_eq!((csr.metadata.name.as_deref(), csr.spec.signer_name.as_str(), is_cut), (Some("a"), "a.b/c", true));
    }
}
