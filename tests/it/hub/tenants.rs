//! What one cluster can make the hub do, and that the others do not notice.

use std::time::Duration;

use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::rate::Rate;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::{MOMENT, mk_csr, mk_csr_of, mk_ready, mk_ready_with, submit};
use test_kit::hub::{RunningHubOptions, TIMEOUT, certificate, condition, create_signer, telemetry, wait_csr};
use test_kit::quick::pass;
use test_kit::{accept_cluster, wait_until};

#[tokio::test]
async fn names_that_a_cluster_chooses_give_it_no_more_certificates() {
    let rate = Rate { burst: 10, interval: Duration::from_secs(3_600) };
    let (hub, admin, running) = mk_ready_with(RunningHubOptions { rate, ..RunningHubOptions::default() }).await;
    let mut names = Vec::new();
    // On a slow machine one that was told to wait may get its certificate after all: fewer than may be told.
    for n in 0..55 {
        let addon = "system:open-cluster-management:cluster:spoke1:addon:telemetry";
        let wish = CsrParams {
            common_name: format!("{addon}:agent:agent-{n}"),
            organizations: vec![addon.to_owned()],
            dns_names: vec![],
            ip_addresses: vec![],
        };
        names.push(submit(&hub, "spoke1", &mk_csr_of("spoke1", "telemetry", &wish)).await);
    }
    let issued_or_reported = |csr: &CertificateSigningRequest| {
        certificate(csr).map(|_| true).or_else(|| condition(csr, "RateLimited").map(|_| false))
    };
    let mut issued = 0;
    for name in &names {
        issued += usize::from(wait_csr(&admin, name, "issued, or told to wait", issued_or_reported).await);
    }
    assert_eq!(issued, 10);
    assert!(running.metrics.render().unwrap().contains("certificates_issued_total{signer=\"telemetry\"} 10"));
}

#[tokio::test]
async fn cluster_with_many_bad_requests_delays_nobody_else() {
    let rate = Rate { burst: 4, interval: Duration::from_secs(3_600) };
    let (hub, admin, _running) = mk_ready_with(RunningHubOptions { rate, ..RunningHubOptions::default() }).await;
    accept_cluster(&admin, "spoke2").await;
    let mut bad = Vec::new();
    for _ in 0..60 {
        bad.push(submit(&hub, "spoke2", &mk_csr("spoke1", "telemetry")).await);
    }
    let good = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &good, "issued", certificate).await;
    for name in &bad[..20] {
        wait_csr(&admin, name, "denied", |csr| condition(csr, "Denied")).await;
    }
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let all = api.list(&ListParams::default()).await.unwrap();
    let denied = all.items.iter().filter(|csr| condition(csr, "Denied").is_some()).count();
    assert!((20..30).contains(&denied), "{denied} answers, and the others wait");
}

#[tokio::test]
async fn a_request_with_large_labels_is_refused_by_its_size() {
    let (hub, admin, _running) = mk_ready().await;
    let mut csr = mk_csr("spoke1", "telemetry");
    let annotations = csr.metadata.annotations.get_or_insert_default();
    annotations.insert("example.com/padding".to_owned(), "x".repeat(100_000));
    let name = submit(&hub, "spoke1", &csr).await;
    let (reason, _) = wait_csr(&admin, &name, "denied", |csr| condition(csr, "Denied")).await;
    assert_eq!(reason, "RequestTooLarge");
}

#[tokio::test]
async fn refused_request_with_finalizers_does_not_linger() {
    let options = RunningHubOptions { retention: Duration::ZERO, ..RunningHubOptions::default() };
    let (hub, admin, _running) = mk_ready_with(options).await;
    accept_cluster(&admin, "spoke2").await;
    let mut padded = Vec::new();
    for count in [1, 20_000] {
        let mut csr = mk_csr("spoke1", "telemetry");
        csr.metadata.finalizers = Some((0..count).map(|n| format!("example.com/{n}")).collect());
        padded.push(submit(&hub, "spoke2", &csr).await);
    }
    let good = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &good, "issued", certificate).await;
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    for name in padded {
        wait_until(TIMEOUT, "the CSR to be gone", async || api.get_opt(&name).await.unwrap().is_none().then_some(()))
            .await;
    }
}

#[tokio::test]
async fn a_refused_request_that_others_keep_is_left_to_them() {
    let options = RunningHubOptions { retention: Duration::ZERO, ..RunningHubOptions::default() };
    let (hub, admin, _running) = mk_ready_with(options).await;
    let mut csr = mk_csr("spoke1", "telemetry");
    csr.spec.signer_name = "example.com/another".to_owned();
    csr.metadata.finalizers = Some(vec!["example.com/keep".to_owned()]);
    let name = submit(&hub, "spoke1", &csr).await;
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let denied = json!({ "status": { "conditions": [{ "type": "Denied", "status": "True", "reason": "No" }] } });
    api.patch_approval(&name, &PatchParams::default(), &Patch::Merge(&denied)).await.unwrap();
    let mut spec = telemetry();
    spec["signerName"] = "example.com/another".into();
    spec["addOns"] = json!(["another"]);
    create_signer(&admin, "another", spec).await;
    let kept = wait_csr(&admin, &name, "being deleted", |csr| {
        csr.metadata.deletion_timestamp.as_ref()?;
        Some(csr.clone())
    })
    .await;
    pass(MOMENT).await;
    let later = api.get(&name).await.unwrap();
    assert_eq!(later.metadata.finalizers, csr.metadata.finalizers);
    assert_eq!(later, kept, "nothing writes on it");
}
