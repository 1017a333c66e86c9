//! Checks of objects of every kind. Pure functions.

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, ClusterTrustBundle};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::Value;
use x509_parser::pem::Pem;

use super::admission;
use super::fields::{self, text};
use super::resources::Resource;
use super::status::{ApiError, Cause};

/// `TotalAnnotationSizeLimitB` of apimachinery.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// `MaxSecretSize` of the API: the limit of all values of a Secret or ConfigMap together, in bytes.
const DATA_LIMIT: usize = 1024 * 1024;

/// The body must have the kind of the URL. A body without a kind gets it.
pub(super) fn check_type(resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    if !object.is_object() {
        return Err(ApiError::BadRequest("the body is not an object".into()));
    }
    for (field, wanted) in [("apiVersion", resource.api_version()), ("kind", resource.kind.to_owned())] {
        let found = text(object, field);
        if !found.is_empty() && found != wanted {
            return Err(ApiError::BadRequest(format!(
                "the {field} in the data ({found}) does not match the expected {field} ({wanted})"
            )));
        }
        fields::set(object, field, wanted);
    }
    Ok(())
}

/// For the most important kinds, checks the types of the fields: numbers, base64, maps of strings.
pub(super) fn check_fields(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let object = object.clone();
    let checked = match resource.kind {
        "CertificateSigningRequest" => serde_json::from_value::<CertificateSigningRequest>(object).map(drop),
        "ClusterTrustBundle" => serde_json::from_value::<ClusterTrustBundle>(object).map(drop),
        "Secret" => serde_json::from_value::<Secret>(object).map(drop),
        "ConfigMap" => serde_json::from_value::<ConfigMap>(object).map(drop),
        "Lease" => serde_json::from_value::<Lease>(object).map(drop),
        _ => Ok(()),
    };
    checked.map_err(|error| {
        let kind = resource.kind;
        let version = resource.version;
        ApiError::BadRequest(format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}"))
    })
}

/// Checks the name, the size of the annotations, the size of a Secret or ConfigMap, the numbers of a Lease, and the
/// anchors of a ClusterTrustBundle.
pub(super) fn check_metadata(resource: &'static Resource, name: &str, object: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    // Kubernetes: "We don't care what you call your certificate requests". A URL must be able to carry the name.
    let fits = if resource.is_csr() {
        !name.contains(['/', '%']) && name != "." && name != ".."
    } else {
        // Kubernetes: a bundle of the signer `a.b/c` is `a.b:c:…`, one without a signer has no colon.
        let signer = if resource.is_bundle() { text(object, "spec.signerName") } else { "" };
        let prefix = if signer.is_empty() { String::new() } else { format!("{}:", signer.replace('/', ":")) };
        name.strip_prefix(&prefix).is_some_and(admission::is_subdomain)
    };
    if !fits {
        causes.push(Cause::invalid(
            "metadata.name",
            name,
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', \
             regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ));
    }
    let annotations = fields::get(object, "metadata.annotations").and_then(Value::as_object);
    let size: usize =
        annotations.into_iter().flatten().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause::too_long("metadata.annotations", "may not be more than 262144 bytes"));
    }
    if matches!(resource.plural, "secrets" | "configmaps") && data_size(object) > DATA_LIMIT {
        causes.push(Cause::too_long("data", "may not be more than 1048576 bytes"));
    }
    if resource.kind == "Lease" {
        causes.extend(lease_causes(object));
    }
    if resource.is_bundle() {
        causes.extend(bundle_cause(object));
    }
    ApiError::unless_valid(resource, name, causes)
}

/// `validateTrustBundle` of Kubernetes: certificates of CAs alone, and at least one.
fn bundle_cause(object: &Value) -> Option<Cause> {
    let anchors: Vec<_> = Pem::iter_from_buffer(text(object, "spec.trustBundle").as_bytes()).collect();
    let is_anchor = |pem: &Pem| pem.label == "CERTIFICATE" && pem.parse_x509().is_ok_and(|anchor| anchor.is_ca());
    let is_good = !anchors.is_empty() && anchors.iter().all(|pem| pem.as_ref().is_ok_and(is_anchor));
    (!is_good).then(|| Cause::invalid("spec.trustBundle", "<value omitted>", "must be certificates of CAs"))
}

/// `ValidateLeaseSpec` of Kubernetes, for the fields that an elected leader writes.
fn lease_causes(object: &Value) -> impl Iterator<Item = Cause> {
    let rules = [
        ("spec.leaseDurationSeconds", 1, "must be greater than 0"),
        ("spec.leaseTransitions", 0, "must be greater than or equal to 0"),
    ];
    rules.into_iter().filter_map(|(field, least, words)| {
        let number = fields::get(object, field)?.as_i64()?;
        (number < least).then(|| Cause::invalid(field, number, words))
    })
}

/// The number of bytes in `data`. Base64 in a Secret counts three bytes for four characters.
fn data_size(object: &Value) -> usize {
    let base64 = text(object, "kind") == "Secret";
    let data = fields::get(object, "data").and_then(Value::as_object);
    data.into_iter()
        .flatten()
        .filter_map(|(_, value)| value.as_str())
        .map(|value| if base64 { value.trim_end_matches('=').len() * 3 / 4 } else { value.len() })
        .sum()
}

/// Removes empty fields of the metadata, as Kubernetes does when it writes an ObjectMeta.
pub(super) fn tidy_metadata(object: &mut Value) {
    let Some(metadata) = fields::get_mut(object, "metadata").and_then(Value::as_object_mut) else {
        return; // never: every object has metadata by now
    };
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
}
