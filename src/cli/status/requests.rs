//! The newest CSR without a certificate of each addon on each cluster, and what it waits for.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::jiff::Timestamp as Made;
use kube::{Api, Client, ResourceExt};

use super::row::Request;
use super::signers::Answerer;
use addon_signer_api::request::BoundedCsr;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::names::{ANNOTATION_CSR_USER, LABEL_ADDON_NAME, LABEL_CLUSTER_NAME};
use addon_signer_core::policy::{tenant, tenant_of_cluster};
use addon_signer_hub::csrs::action::{self, WAITS};
use addon_signer_platform::listing::{self, Selector};

/// The account of OCM's gRPC server, which makes CSRs for agents (ocm `pkg/server/services/csr/csr.go`). If other
/// accounts counted, any of them could claim to act for a cluster.
const GRPC_SERVER: &str = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa";

/// Keyed by creation time.
#[derive(Default)]
struct NewestCsrs {
    open: BTreeMap<AddOnKey, (Option<Made>, Request)>,
    issued: BTreeMap<AddOnKey, Option<Made>>,
}

/// Lists the CSRs of these signer names, and keeps what is worth reporting about the `wanted` addons: a cluster may
/// also make CSRs for addons that it does not have.
pub(super) async fn newest(
    client: &Client,
    answerers: &BTreeMap<String, Answerer>,
    wanted: impl Fn(&AddOnKey) -> bool,
) -> anyhow::Result<BTreeMap<AddOnKey, Request>> {
    let api: Api<BoundedCsr> = Api::all(client.clone());
    let mut newest = NewestCsrs::default();
    for (name, answerer) in answerers {
        let of_signer = Selector::fields(&format!("spec.signerName={name}"));
        let listed =
            listing::each(api.clone(), of_signer, |request| newest.take(&request.csr, answerer, &wanted)).await;
        listed.context("CertificateSigningRequests cannot be listed")?;
    }
    Ok(newest.left())
}

impl NewestCsrs {
    fn take(&mut self, csr: &CertificateSigningRequest, answerer: &Answerer, wanted: impl Fn(&AddOnKey) -> bool) {
        let Some(key) = asked_for(csr).filter(wanted) else { return };
        let made = csr.metadata.creation_timestamp.as_ref().map(|time| time.0);
        match request(csr, answerer) {
            Some(request) if self.open.get(&key).is_none_or(|(known, _)| *known < made) => {
                self.open.insert(key, (made, request));
            }
            Some(_) => {}
            None => {
                let known = self.issued.entry(key).or_default();
                *known = made.max(*known);
            }
        }
    }

    /// The CSRs after which none was issued. The order of two in the same second is unknown; then an open one counts as
    /// the later.
    fn left(self) -> BTreeMap<AddOnKey, Request> {
        let Self { open, issued } = self;
        let left = open.into_iter().filter(|(key, (made, request))| {
            let is_open = matches!(request, Request::Open { .. });
            issued.get(key).is_none_or(|issued| issued < made || (issued == made && is_open))
        });
        left.map(|(key, (_, request))| (key, request)).collect()
    }
}

/// The addon that the CSR is for, if that addon's cluster made it: requesters choose labels freely.
fn asked_for(csr: &CertificateSigningRequest) -> Option<AddOnKey> {
    let label = |name| csr.metadata.labels.as_ref()?.get(name);
    let key =
        AddOnKey { cluster: label(LABEL_CLUSTER_NAME)?.parse().ok()?, addon: label(LABEL_ADDON_NAME)?.parse().ok()? };
    let username = csr.spec.username.as_deref()?;
    let csr_user = csr.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_CSR_USER)).map(String::as_str);
    (tenant(username, csr_user, Some(GRPC_SERVER)) == tenant_of_cluster(&key.cluster)).then_some(key)
}

/// The state of the CSR; `None` if it has a certificate.
fn request(csr: &CertificateSigningRequest, answerer: &Answerer) -> Option<Request> {
    let name = csr.name_any();
    let conditions = csr.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if let Some(refused) = conditions.iter().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed")) {
        let reason = refused.reason.as_deref().unwrap_or_default();
        let message = refused.message.as_deref().unwrap_or_default();
        return Some(Request::Refused { name, why: format!("{reason}: {message}") });
    }
    (!action::is_issued(csr)).then(|| Request::Open { waits_for: waits_for(&name, conditions, answerer) })
}

/// What a CSR that is neither refused nor issued waits for.
fn waits_for(name: &str, conditions: &[CertificateSigningRequestCondition], answerer: &Answerer) -> String {
    let is = |kind: &str| conditions.iter().any(|condition| condition.type_ == kind);
    let step = if is("Approved") { "sign" } else { "answer" };
    // The hub adds a condition whenever the CSR begins to wait for something else, so the last one is the newest.
    let told = conditions.iter().rev().find(|condition| WAITS.contains(&condition.type_.as_str()));
    if let Some(message) = told.and_then(|told| told.message.as_deref()) {
        return format!("the hub to {step} its CSR {name}: {message}");
    }
    if answerer.leaves_approval && !is("Approved") {
        return format!("an approval of its CSR {name}");
    }
    match &answerer.problem {
        Some(problem) => format!("the hub to {step} its CSR {name}, but {problem}"),
        None => format!("the hub to {step} its CSR {name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mk_condition(kind: &str) -> CertificateSigningRequestCondition {
        CertificateSigningRequestCondition {
            type_: kind.to_owned(),
            message: Some(format!("{kind} says why.")),
            ..CertificateSigningRequestCondition::default()
        }
    }

    fn mk_request(cluster: &str, second: i64, certificate: Option<&str>) -> CertificateSigningRequest {
        let labels = json!({ LABEL_CLUSTER_NAME: cluster, LABEL_ADDON_NAME: "t" });
        let made = Made::from_second(second).unwrap().to_string();
        let request = json!({
            "metadata": { "name": format!("r{second}"), "labels": labels, "creationTimestamp": made },
            "spec": { "request": "", "signerName": "a.b/c", "username": "system:open-cluster-management:c1:x" },
            "status": { "certificate": certificate },
        });
        serde_json::from_value(request).unwrap()
    }

    #[test]
    fn newest_request_counts_for_addons_its_cluster_has() {
        let left = |requests: &[CertificateSigningRequest], wanted: &str| {
            let mut newest = NewestCsrs::default();
            let wanted = |key: &AddOnKey| key.cluster.as_str() == wanted;
            requests.iter().for_each(|csr| newest.take(csr, &Answerer::default(), wanted));
            newest.left().into_values().collect::<Vec<_>>()
        };
        let open = |second| mk_request("c1", second, None);
        let waits_for = "the hub to answer its CSR r2".to_owned();
        let expected = [Request::Open { waits_for }];
        assert_eq!(left(&[open(1), open(2)], "c1"), expected);
        assert_eq!(left(&[open(2), open(1), mk_request("c1", 1, Some("YQ=="))], "c1"), expected);
        assert_eq!(left(&[open(2), mk_request("c1", 2, Some("YQ=="))], "c1"), expected);
        assert_eq!(left(&[open(2), mk_request("c1", 3, Some("YQ=="))], "c1"), []);
        assert_eq!(left(&[open(2)], "c2"), [], "an addon that is not there");
        assert_eq!(left(&[mk_request("c2", 2, None)], "c2"), [], "made by another cluster");
    }

    #[test]
    fn ocms_grpc_server_alone_says_for_whom_it_asks() {
        let is_believed = |account: &str| {
            let mut csr = mk_request("c1", 1, None);
            csr.spec.username = Some(account.to_owned());
            let user = "system:open-cluster-management:c1:x".to_owned();
            csr.metadata.annotations = Some([(ANNOTATION_CSR_USER.to_owned(), user)].into());
            asked_for(&csr).is_some()
        };
        assert!(is_believed(GRPC_SERVER));
        assert!(!is_believed("system:serviceaccount:open-cluster-management-hub:grpc-server-sb"));
        assert!(!is_believed("system:open-cluster-management:c2:x"));
    }

    #[test]
    fn somebody_else_is_to_approve_only_where_approval_is_external() {
        let automatic = Answerer::default();
        let external = Answerer { leaves_approval: true, ..Answerer::default() };
        let problem = Some("the AddOnSigner t says NotPermitted: No.".to_owned());
        let broken = Answerer { problem: problem.clone(), ..Answerer::default() };
        let both = Answerer { leaves_approval: true, problem };
        let cases: [(&[&str], &Answerer, &str); 9] = [
            (&[], &automatic, "the hub to answer its CSR r"),
            (&[], &external, "an approval of its CSR r"),
            (&[], &both, "an approval of its CSR r"),
            (&[], &broken, "the hub to answer its CSR r, but the AddOnSigner t says NotPermitted: No."),
            (&["Approved"], &both, "the hub to sign its CSR r, but the AddOnSigner t says NotPermitted: No."),
            (&["Approved"], &external, "the hub to sign its CSR r"),
            (&["RateLimited"], &broken, "the hub to answer its CSR r: RateLimited says why."),
            (&["Approved", "Revoked"], &external, "the hub to sign its CSR r: Revoked says why."),
            (&["RateLimited", "RecordUnusable"], &automatic, "the hub to answer its CSR r: RecordUnusable says why."),
        ];
        for (kinds, answerer, expected) in cases {
            let conditions: Vec<_> = kinds.iter().map(|kind| mk_condition(kind)).collect();
            assert_eq!(waits_for("r", &conditions, answerer), expected, "{kinds:?}");
        }
    }
}
