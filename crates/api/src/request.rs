//! A CertificateSigningRequest as the hub reads it, in bounded memory. A client that may create CSRs may pad them with
//! some 1.5 MB of labels, annotations, owners and finalizers, for which Kubernetes' types need 12 times the memory.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde::de::{Deserialize, Deserializer, Error};

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
        let kept = bounded::read(deserializer, &WANTED)?;
        let csr = serde_json::from_value(kept.value).map_err(D::Error::custom)?;
        Ok(Self { csr, is_cut: kept.is_cut })
    }
}

resource_by!([] BoundedCsr, csr: CertificateSigningRequest);
