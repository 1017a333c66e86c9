//! A program that signs CSRs of our signers, as OCM's addon-manager does where the Secret of an AddOnTemplate's
//! `signingCA` exists: the AddOnSigner says so.

use std::time::Duration;

use addon_signer_api::AddOnSigner;
use addon_signer_core::encoding::pem;
use addon_signer_platform::clock::Clock;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

use super::{mk_csr, mk_served, submit};
use test_kit::hub::{RunningHub, TIMEOUT, certificate, telemetry, wait_csr, wait_ready};
use test_kit::issue::Ca;
use test_kit::{TestHub, wait_until};

/// Submits a CSR that another program signs at once. No hub of ours may sign it meanwhile.
async fn submit_foreign(hub: &TestHub, admin: &Client) -> String {
    let mut spec = mk_csr("spoke1", "telemetry");
    let name = submit(hub, "spoke1", &spec).await;
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    spec = api.get(&name).await.unwrap();
    let now = Clock::default().now();
    let leaf = Ca::new("addon-manager's CA", now).client("spoke1", "telemetry", now, Duration::from_secs(3_600));
    let chain = pem::encode("CERTIFICATE", &leaf.certificate);
    spec.status.get_or_insert_default().certificate = Some(ByteString(chain.into_bytes()));
    api.replace_subresource("status", &name, &PostParams::default(), &spec).await.unwrap();
    name
}

async fn foreign(admin: &Client) -> Option<Condition> {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let status = signers.get("telemetry").await.unwrap().status.unwrap();
    status.conditions.into_iter().find(|condition| condition.type_ == "ForeignCertificates")
}

/// The hub's number of such CSRs.
async fn wait_metric(running: &RunningHub, requests: usize) {
    let wanted = format!("addon_signer_foreign_certificates{{signer=\"telemetry\"}} {requests}\n");
    wait_until(TIMEOUT, "the metric", async || running.metrics.render().unwrap().contains(&wanted).then_some(())).await;
}

#[tokio::test]
async fn foreign_certificates_are_reported_until_requests_are_gone() {
    let hub = TestHub::start().await;
    let mut spec = telemetry();
    spec["approval"] = "External".into();
    let admin = mk_served(&hub, spec).await;
    let running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    wait_metric(&running, 0).await;
    let name = submit_foreign(&hub, &admin).await;
    let text = wait_until(TIMEOUT, "the condition", async || foreign(&admin).await).await;
    let example = format!("{name} (issuer \"CN=addon-manager's CA ");
    assert!(text.status == "True", "{text:?}");
    assert!(text.message.contains(&example), "{text:?}");
    assert!(text.message.starts_with("1 CSRs of this signer"), "{text:?}");
    wait_metric(&running, 1).await;
    running.stop().await;

    let running = RunningHub::start(&hub).await;
    wait_metric(&running, 1).await;
    let kept = foreign(&admin).await.unwrap();
    assert_eq!(kept.last_transition_time, text.last_transition_time, "a hub that starts knows it from the first list");
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    wait_until(TIMEOUT, "the condition to end", async || foreign(&admin).await.is_none().then_some(())).await;
    wait_metric(&running, 0).await;
}

#[tokio::test]
async fn our_own_certificates_are_not_another_programs() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let running = RunningHub::start(&hub).await;
    issue(&hub, &admin).await;
    running.stop().await;
    let name = submit_foreign(&hub, &admin).await;
    let running = RunningHub::start(&hub).await;
    wait_metric(&running, 1).await;
    issue(&hub, &admin).await;
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    wait_metric(&running, 0).await;
}

async fn issue(hub: &TestHub, admin: &Client) {
    let name = submit(hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(admin, &name, "issued", certificate).await;
}
