//! How the hub answers CSRs.

use std::time::Duration;

use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_core::rate::Rate;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::{MOMENT, mk_csr, mk_ready, mk_ready_with, mk_served, submit};
use test_kit::accounts::HUB_USER;
use test_kit::audit_log::Write;
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, certificate, change_signer, condition, create_signer, telemetry, wait_csr,
    wait_ready,
};
use test_kit::objects::{managed_cluster_addons, read_as_is, remake_cluster};
use test_kit::quick::pass;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

#[tokio::test]
async fn an_accepted_clusters_addon_gets_its_certificate() {
    let (hub, admin, running) = mk_ready().await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let csr = wait_csr(&admin, &name, "issued", |csr| certificate(csr).map(|_| csr.clone())).await;
    let (reason, _) = condition(&csr, "Approved").unwrap();
    assert_eq!(reason, "PolicyAllows");
    let leaf = CertificateDer::from_pem_slice(certificate(&csr).unwrap().as_bytes()).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let published = maps.get("telemetry-client-ca").await.unwrap().data.unwrap();
    let bundle = Bundle::from_pem(published["ca.crt"].as_bytes()).unwrap();
    assert!(bundle.verify(&leaf, Purpose::Client, running.clock.now()).is_ok());
    let trust = &csr.metadata.annotations.as_ref().unwrap()["addon-signer.io/trust-bundle"];
    let serving = maps.get("addon-signer-trust").await.unwrap().data.unwrap();
    assert_eq!(*trust, serving["ca.crt"], "the serving anchors come with the certificate");
    assert!(running.metrics.render().unwrap().contains("certificates_issued_total{signer=\"telemetry\"} 1"));
}

#[tokio::test]
async fn a_valid_request_costs_two_writes() {
    let (hub, admin, _running) = mk_ready().await;
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let created = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &created, "issued", certificate).await;
    pass(MOMENT).await;
    let csr = api.get(&created).await.unwrap();
    if let Some(real) = hub.real() {
        let object = format!("certificatesigningrequests//{created}");
        let writes = real.writes();
        let by_hub = |write: &&Write| write.object.as_ref() == Some(&object) && write.user == HUB_USER;
        let by_hub: Vec<_> = writes.iter().filter(by_hub).collect();
        // A write that the API server refused, such as a conflict on a busy machine, is tried again.
        let done: Vec<_> = by_hub.iter().filter(|write| write.code == 200).map(|write| &*write.subresource).collect();
        assert_eq!(done, ["approval", "status"], "{by_hub:#?}");
    }
    assert_eq!(csr.status.unwrap().conditions.unwrap().len(), 1);
}

/// Whoever had the cluster's name before may have left requests.
#[tokio::test]
async fn a_request_older_than_its_cluster_is_denied() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let [cluster, addon] = ["spoke1", "spoke2"];
    accept_cluster(&admin, addon).await;
    install_addon(&admin, addon, "telemetry").await;
    let mut left = Vec::new();
    for name in [cluster, addon] {
        left.push(submit(&hub, name, &mk_csr(name, "telemetry")).await);
    }
    remake_cluster(&admin, cluster).await;
    let addons = managed_cluster_addons(&admin, addon).await;
    addons.delete("telemetry", &Default::default()).await.unwrap();
    install_addon(&admin, addon, "telemetry").await;
    let _running = RunningHub::start(&hub).await;
    for name in left {
        let (reason, _) = wait_csr(&admin, &name, "denied", |csr| condition(csr, "Denied")).await;
        assert_eq!(reason, "RequestTooOld");
    }
    let name = submit(&hub, cluster, &mk_csr(cluster, "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
}

#[tokio::test]
async fn an_approved_request_that_policy_refuses_fails() {
    let (hub, admin, _running) = mk_ready().await;
    // An administrator approves the CSR before the hub can deny it: no AddOnSigner has this signer name yet.
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let mut csr = mk_csr("spoke1", "telemetry");
    csr.spec.signer_name = "example.com/other".to_owned();
    let name = submit(&hub, "spoke1", &csr).await;
    let mut approved = api.get(&name).await.unwrap();
    approved.status.get_or_insert_default().conditions = Some(vec![approval()]);
    api.replace_subresource("approval", &name, &PostParams::default(), &approved).await.unwrap();
    // Now there is a signer with this name, and it serves another addon.
    create_signer(&admin, "other", serde_json::json!({"signerName": "example.com/other", "addOns": ["other"]})).await;
    if hub.is_real() {
        // The administrator has not granted this signer name: the hub can write nothing, and signs nothing.
        pass(MOMENT).await;
        assert!(certificate(&api.get(&name).await.unwrap()).is_none());
        grant_other(&hub).await;
    }
    let (reason, _) = wait_csr(&admin, &name, "failed", |csr| condition(csr, "Failed")).await;
    assert_eq!(reason, "AddOnNotOfSigner");
    assert!(certificate(&api.get(&name).await.unwrap()).is_none());
}

pub(crate) async fn grant_other(hub: &TestHub) {
    let mut rights = test_kit::deploy::part("signers");
    for object in &mut rights {
        object["metadata"]["name"] = "addon-signer-other".into();
        if object["kind"] == "ClusterRole" {
            object["rules"][0]["resourceNames"][0] = "example.com/other".into();
        } else {
            object["roleRef"]["name"] = "addon-signer-other".into();
        }
    }
    test_kit::deploy::apply(&hub.admin().await, &rights).await;
}

fn approval() -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some("Test".to_owned()),
        ..CertificateSigningRequestCondition::default()
    }
}

#[tokio::test]
async fn external_approval_is_waited_for_and_then_signed() {
    let mut spec = telemetry();
    spec["approval"] = "External".into();
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, spec).await;
    let _running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    pass(MOMENT).await;
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let mut csr = api.get(&name).await.unwrap();
    assert!(csr.status.as_ref().is_none_or(|status| status.conditions.is_none()));
    csr.status.get_or_insert_default().conditions = Some(vec![approval()]);
    api.replace_subresource("approval", &name, &PostParams::default(), &csr).await.unwrap();
    wait_csr(&admin, &name, "issued", certificate).await;
}

#[tokio::test]
async fn request_awaiting_approver_proceeds_once_hub_may_approve() {
    let mut spec = telemetry();
    spec["approval"] = "External".into();
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, spec).await;
    let running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let waits = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    // A refusal comes only after the CSR before it was looked at.
    let bad = submit(&hub, "spoke1", &mk_csr("spoke2", "telemetry")).await;
    wait_csr(&admin, &bad, "denied", |csr| condition(csr, "Denied")).await;
    change_signer(&admin, json!({"spec": {"approval": "Automatic"}})).await;
    wait_csr(&admin, &waits, "issued", certificate).await;
    wait_until(TIMEOUT, "the certificate to be counted", async || {
        let metrics = running.metrics.render().unwrap();
        metrics.contains("certificates_issued_total{signer=\"telemetry\"} 1").then_some(())
    })
    .await;
}

#[tokio::test]
async fn over_its_rate_an_identity_waits_and_is_told() {
    let rate = Rate { burst: 1, interval: Duration::from_secs(5) };
    let (hub, admin, _running) = mk_ready_with(RunningHubOptions { rate, ..RunningHubOptions::default() }).await;
    let first = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &first, "issued", certificate).await;
    let second = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let (reason, message) = wait_csr(&admin, &second, "limited", |csr| condition(csr, "RateLimited")).await;
    assert_eq!(reason, "TooManyRequests");
    assert!(message.contains("waits"));
    let csr = wait_csr(&admin, &second, "issued", |csr| certificate(csr).map(|_| csr.clone())).await;
    assert!(condition(&csr, "RateLimited").is_none(), "said only as long as it is true");
}

#[tokio::test]
async fn a_request_takes_one_certificate_of_its_identitys_rate() {
    let rate = Rate { burst: 8, interval: Duration::from_secs(3_600) };
    let (hub, admin, _running) = mk_ready_with(RunningHubOptions { rate, ..RunningHubOptions::default() }).await;
    // The watch shows each CSR again between its approval and its certificate: the hub must not sign it again then.
    let mut names = Vec::new();
    for _ in 0..8 {
        names.push(submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await);
    }
    for name in names {
        wait_csr(&admin, &name, "issued", certificate).await;
    }
}

#[tokio::test]
async fn an_addon_without_eligibility_is_denied_on_fresh_evidence() {
    let (hub, admin, _running) = mk_ready().await;
    accept_cluster(&admin, "spoke2").await;
    let name = submit(&hub, "spoke2", &mk_csr("spoke2", "telemetry")).await;
    let (reason, message) = wait_csr(&admin, &name, "denied", |csr| condition(csr, "Denied")).await;
    assert_eq!(reason, "AddOnNotInstalled");
    assert_eq!(message, "The addon is not installed on that cluster (no ManagedClusterAddOn).");
    managed_cluster_addons(&admin, "spoke1").await.delete("telemetry", &Default::default()).await.unwrap();
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let (reason, _) = wait_csr(&admin, &name, "denied", |csr| condition(csr, "Denied")).await;
    assert_eq!(reason, "AddOnNotInstalled");
}

/// Approves a CSR with times that our libraries cannot read, where the API server takes them.
async fn approve_late(hub: &TestHub, admin: &Client, path: &str) {
    let at = if hub.is_real() { "9999-12-31T23:59:59Z" } else { "2026-11-30T00:00:00Z" };
    wait_until(TIMEOUT, "the approval", async || {
        let mut object = read_as_is(admin, path).await;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let approval = json!({ "type": "Approved", "status": "True", "reason": "r", "message": "m",
                               "lastUpdateTime": at, "lastTransitionTime": at });
        object["status"]["conditions"] = conditions.into_iter().chain([approval]).collect();
        let put = hyper::Request::put(format!("{path}/approval")).header("content-type", "application/json");
        match admin.request::<Value>(put.body(object.to_string().into_bytes()).unwrap()).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => None, // the hub wrote in between
            written => {
                assert!(written.unwrap()["status"]["conditions"].to_string().contains(at));
                Some(())
            }
        }
    })
    .await;
}

/// Whoever may approve the CSRs of any signer may write such times.
#[tokio::test]
async fn a_csr_with_a_time_that_cannot_be_read_hides_nobody() {
    let hub = TestHub::start().await;
    let mut spec = telemetry();
    spec["approval"] = "External".into();
    let admin = mk_served(&hub, spec).await;
    let path = |name: String| format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
    let mut other = mk_csr("spoke1", "telemetry");
    other.spec.signer_name = "example.com/another".to_owned();
    approve_late(&hub, &admin, &path(submit(&hub, "spoke1", &other).await)).await;
    let _running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let path = path(submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await);
    approve_late(&hub, &admin, &path).await;
    let is_issued = async || read_as_is(&admin, &path).await["status"]["certificate"].as_str().map(drop);
    wait_until(TIMEOUT, "the certificate", is_issued).await;
}
