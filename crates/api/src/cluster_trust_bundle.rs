//! The ClusterTrustBundle with the gateway's anchors, for the pods of the hub cluster (certificates.k8s.io).
//!
//! It belongs to the signer of the gateway's certificate, so a client needs the right `attest` on the signer to write
//! it, or another one of that signer. Kubernetes requires its name to begin with the signer's name.

pub use addon_signer_core::names::TRUST_BUNDLE;
use k8s_openapi::api::certificates::v1::ClusterTrustBundleSpec;
use kube::api::{ApiResource, GroupVersionKind, NotUsed, Object};

use addon_signer_core::identity::GATEWAY_SERVING_SIGNER;

/// The API group.
pub const CERTIFICATES_GROUP: &str = "certificates.k8s.io";
/// The versions that the hub can write, in order of preference. What it writes is the same in both.
pub const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// The plural.
pub const CLUSTER_TRUST_BUNDLES: &str = "clustertrustbundles";

/// A ClusterTrustBundle in any of the versions.
pub type ClusterTrustBundle = Object<ClusterTrustBundleSpec, NotUsed>;

/// ClusterTrustBundle in one of [`VERSIONS`].
#[must_use]
pub fn resource(version: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(CERTIFICATES_GROUP, version, "ClusterTrustBundle");
    ApiResource::from_gvk_with_plural(&kind, CLUSTER_TRUST_BUNDLES)
}

/// The hub's ClusterTrustBundle with these anchors.
#[must_use]
pub fn body(version: &str, anchors: &str) -> ClusterTrustBundle {
    let signer_name = Some(GATEWAY_SERVING_SIGNER.to_owned());
    let spec = ClusterTrustBundleSpec { signer_name, trust_bundle: anchors.to_owned() };
    Object::new(TRUST_BUNDLE, &resource(version), spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_name_begins_with_that_of_its_signer() {
        assert_eq!(TRUST_BUNDLE, format!("{}:trust", GATEWAY_SERVING_SIGNER.replace('/', ":")));
        let bundle = serde_json::to_value(body("v1beta1", "PEM")).unwrap();
        let expected = serde_json::json!({
            "apiVersion": "certificates.k8s.io/v1beta1",
            "kind": "ClusterTrustBundle",
            "metadata": { "name": "addon-signer.io:gateway-serving:trust" },
            "spec": { "signerName": "addon-signer.io/gateway-serving", "trustBundle": "PEM" },
        });
        assert_eq!(bundle, expected);
    }
}
