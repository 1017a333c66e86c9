//! The CSR object that the agent creates on the hub, and the hub's decision on it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::ObjectMeta;
use serde_json::Value;

use addon_signer_core::bounded::Keep;
use addon_signer_core::credentials::Wanted;
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::identity::{AddOnKey, AddOnName, ClusterName, addon_group, cluster_group};
use addon_signer_core::names::{ANNOTATION_TRUST_BUNDLE, LABEL_ADDON_NAME, LABEL_CLUSTER_NAME};

/// OCM's own agent stops at this many CSRs of one cluster and addon.
pub(crate) const MAX_REQUESTS: usize = 10;
/// How many CSRs the agent reads at once.
pub(crate) const PAGE: u32 = 2;
/// The maximum size of such a page in bytes: any client can forge the labels by which the agent lists CSRs, and a CSR
/// may have 1.5 MB, which is up to 9 MB as JSON.
pub(crate) const MAX_PAGE_BYTES: u64 = 1 << 20;
/// How many pages the agent reads at most.
pub(crate) const MAX_PAGES: usize = 10;

/// What all CSRs of the agent have in common.
#[derive(Debug, Clone)]
pub(crate) struct CsrTemplate {
    pub(crate) cluster: ClusterName,
    pub(crate) addon: AddOnName,
    pub(crate) signer_name: String,
    pub(crate) expiration_seconds: Option<i32>,
    pub(crate) wanted: Wanted,
}

impl CsrTemplate {
    pub(crate) fn wish(&self) -> CsrParams {
        let list = |set: &BTreeSet<String>| set.iter().cloned().collect();
        CsrParams {
            common_name: self.wanted.user.clone(),
            organizations: list(&self.wanted.groups),
            dns_names: list(&self.wanted.dns_names),
            ip_addresses: Vec::new(),
        }
    }

    /// The object as OCM's registration agent makes it, without `key encipherment`, which EC keys cannot do.
    pub(crate) fn object(&self, request_pem: String) -> CertificateSigningRequest {
        let labels = BTreeMap::from([
            (LABEL_CLUSTER_NAME.to_owned(), self.cluster.to_string()),
            (LABEL_ADDON_NAME.to_owned(), self.addon.to_string()),
        ]);
        CertificateSigningRequest {
            metadata: ObjectMeta {
                generate_name: Some(format!("addon-{}-{}-", self.cluster, self.addon)),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                signer_name: self.signer_name.clone(),
                usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
                expiration_seconds: self.expiration_seconds,
                request: ByteString(request_pem.into_bytes()),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        }
    }

    pub(crate) fn label_selector(&self) -> String {
        format!("{LABEL_CLUSTER_NAME}={},{LABEL_ADDON_NAME}={}", self.cluster, self.addon)
    }

    /// How many CSRs of a page ([`LISTED`]) the cluster itself made, or the addon on it. Any client can set labels, but
    /// the API server sets the groups.
    pub(crate) fn ours(&self, page: &Value) -> usize {
        let addon = AddOnKey { cluster: self.cluster.clone(), addon: self.addon.clone() };
        let ours = [cluster_group(&self.cluster), addon_group(&addon)];
        let listed = page.get("items").and_then(Value::as_array).into_iter().flatten();
        let groups = listed.filter_map(|request| request.pointer("/spec/groups").and_then(Value::as_array));
        groups.filter(|groups| groups.iter().any(|found| ours.iter().any(|group| found == group))).count()
    }
}

/// What the agent reads of a page of CSRs.
pub(crate) static LISTED: Keep = Keep::Fields(&[
    ("metadata", Keep::Fields(&[("continue", Keep::Scalar(16 << 10))])),
    ("items", Keep::Each(PAGE as usize, &Keep::Fields(&[("spec", Keep::Fields(&[("groups", Keep::All(16 << 10))]))]))),
]);

/// The hub's decision on a CSR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CsrDecision {
    /// No decision yet.
    Pending,
    /// A certificate, and the anchors if the hub sent any.
    Issued { certificate: Vec<u8>, bundle: Option<String> },
    /// Denied or failed; this is final.
    Refused { verdict: &'static str, reason: String, message: String },
}

impl CsrDecision {
    pub(crate) fn of(request: &CertificateSigningRequest) -> Self {
        let status = request.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let final_word = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
        for (kind, verdict) in [("Denied", "denied"), ("Failed", "failed")] {
            if let Some(condition) = final_word(kind) {
                return Self::Refused {
                    verdict,
                    reason: condition.reason.clone().unwrap_or_default(),
                    message: condition.message.clone().unwrap_or_default(),
                };
            }
        }
        let certificate = status.and_then(|status| status.certificate.as_ref()).filter(|bytes| !bytes.0.is_empty());
        let annotations = request.metadata.annotations.as_ref();
        certificate.map_or(Self::Pending, |certificate| Self::Issued {
            certificate: certificate.0.clone(),
            bundle: annotations.and_then(|all| all.get(ANNOTATION_TRUST_BUNDLE)).cloned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::bounded;
    use addon_signer_core::identity::Convention;
    use k8s_openapi::api::certificates::v1::{CertificateSigningRequestCondition, CertificateSigningRequestStatus};
    use serde_json::json;

    fn order() -> CsrTemplate {
        let identity = addon_signer_core::identity::PeerIdentity {
            cluster: "cluster1".parse().unwrap(),
            addon: "telemetry".parse().unwrap(),
            agent: "telemetry".parse().unwrap(),
        };
        CsrTemplate {
            wanted: Wanted::new(&Convention::default(), &identity),
            cluster: identity.cluster,
            addon: identity.addon,
            signer_name: "example.com/telemetry".to_owned(),
            expiration_seconds: None,
        }
    }

    #[test]
    fn the_object_is_what_ocms_agent_makes() {
        let object = serde_json::to_value(order().object("PEM".to_owned())).unwrap();
        assert_eq!(
            object,
            json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {
                    "generateName": "addon-cluster1-telemetry-",
                    "labels": {
                        "open-cluster-management.io/addon-name": "telemetry",
                        "open-cluster-management.io/cluster-name": "cluster1",
                    },
                },
                "spec": {
                    "request": "UEVN",
                    "signerName": "example.com/telemetry",
                    "usages": ["digital signature", "client auth"],
                },
            })
        );
    }

    #[test]
    fn requests_that_others_labelled_are_not_ours() {
        let ours = |groups: &[Value]| {
            let items: Vec<Value> = groups.iter().map(|groups| json!({ "spec": { "groups": groups } })).collect();
            order().ours(&json!({ "items": items }))
        };
        assert_eq!(ours(&[Value::Null]), 0);
        let others = json!(["system:open-cluster-management:cluster10"]);
        let own = json!(["a", "system:open-cluster-management:cluster1"]);
        let addons = json!(["system:open-cluster-management:cluster:cluster1:addon:telemetry"]);
        let another_addons = json!(["system:open-cluster-management:cluster:cluster1:addon:logging"]);
        assert_eq!(ours(&[others.clone(), own, addons, another_addons, others]), 2);
    }

    #[test]
    fn of_a_page_only_what_is_counted_is_kept() {
        let item =
            json!({ "metadata": { "finalizers": vec!["a/a"; 100_000] }, "spec": { "groups": ["g"], "uid": "u" } });
        let page = json!({ "metadata": { "continue": "c", "resourceVersion": "1" }, "items": [item, item] });
        let kept = bounded::read(page, &LISTED).unwrap();
        let item = json!({ "spec": { "groups": ["g"] } });
        assert_eq!(kept.value, json!({ "metadata": { "continue": "c" }, "items": [item, item] }));
    }

    #[test]
    fn a_refusal_counts_even_beside_a_certificate() {
        let mut object = order().object(String::new());
        assert_eq!(CsrDecision::of(&object), CsrDecision::Pending);
        let mut status = CertificateSigningRequestStatus {
            certificate: Some(ByteString(b"x".to_vec())),
            ..CertificateSigningRequestStatus::default()
        };
        object.status = Some(status.clone());
        assert_eq!(CsrDecision::of(&object), CsrDecision::Issued { certificate: b"x".to_vec(), bundle: None });
        status.conditions = Some(vec![CertificateSigningRequestCondition {
            type_: "Failed".to_owned(),
            reason: Some("AddOnNotFound".to_owned()),
            ..CertificateSigningRequestCondition::default()
        }]);
        object.status = Some(status);
        assert!(matches!(CsrDecision::of(&object), CsrDecision::Refused { verdict: "failed", .. }));
    }
}
