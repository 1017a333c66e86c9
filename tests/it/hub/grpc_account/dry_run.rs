//! What the hub does where the policy covers less than it should, or cannot be tried.

use std::time::Duration;

use addon_signer_platform::clock::Clock;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::policy::wait_policy;
use super::{CSR_USER, ask, guard_annotation, mk_proxied, options, proxy, requests, user, wait_believed};
use crate::hub::{MOMENT, mk_served};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::deploy::{apply, of_kind, part};
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, certificate, change_signer_seen, condition, telemetry, wait_csr, wait_ready,
};
use test_kit::quick::pass;
use test_kit::{TestHub, wait_until};

async fn real() -> Option<(TestHub, Client)> {
    let hub = TestHub::start().await;
    hub.real_or_skip()?;
    let admin = mk_served(&hub, telemetry()).await;
    Some((hub, admin))
}

/// Waits until a CSR of the gRPC server waits for the policy; returns the reason and the sentence.
async fn wait_unproven(admin: &Client, name: &str) -> (String, String) {
    wait_csr(admin, name, "told why it waits", |csr| condition(csr, "ProxyUnproven")).await
}

#[tokio::test]
async fn policy_that_fails_to_protect_requests_lets_nobody_in() {
    let Some((hub, admin)) = real().await else { return };
    let proxy = proxy(&hub).await;
    let mut witness = mk_proxied("spoke1", "nobody");
    witness.spec.signer_name = "example.com/nobody".to_owned();
    let witness = ask(&proxy, &witness).await;
    for covered in [&[][..], &["status"], &["approval"]] {
        let subresources = covered.iter().map(|it| format!("certificatesigningrequests/{it}"));
        let resources: Vec<String> =
            ["certificatesigningrequests".to_owned()].into_iter().chain(subresources).collect();
        let mut policy = of_kind(&part("grpc-account"), "ValidatingAdmissionPolicy")[0].clone();
        policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!(resources);
        let binding = of_kind(&part("grpc-account"), "ValidatingAdmissionPolicyBinding")[0].clone();
        apply(&admin, &[policy, binding]).await;
        wait_policy(&admin).await;
        wait_until(TIMEOUT, "the policy to cover what it should", async || {
            for subresource in ["status", "approval"] {
                let mut csr = requests(&admin).get(&witness).await.unwrap();
                csr.metadata.annotations.get_or_insert_default().insert(CSR_USER.to_owned(), "x".to_owned());
                let dry_run = PostParams { dry_run: true, field_manager: None };
                let tried = requests(&admin).replace_subresource(subresource, &witness, &dry_run, &csr).await;
                if tried.is_err() != covered.contains(&subresource) {
                    return None;
                }
            }
            Some(())
        })
        .await;
        let running = RunningHub::start_with(&hub, options()).await;
        wait_ready(&admin, "telemetry", "True").await;
        let name = ask(&proxy, &mk_proxied("spoke1", &user("spoke1"))).await;
        let (reason, sentence) = wait_unproven(&admin, &name).await;
        assert_eq!(reason, "PolicyMissing", "{covered:?}: {sentence}");
        assert!(
            sentence.contains("is not in force, so anyone could change whom the CSR is for. Install the chart again")
        );
        pass(MOMENT).await; // a certificate would come now
        assert_eq!(certificate(&requests(&admin).get(&name).await.unwrap()), None);

        guard_annotation(&hub, &admin).await;
        // The hub asks with growing pauses, of a minute at most.
        let (reason, _) = wait_until(3 * TIMEOUT, "the CSR to be denied", async || {
            condition(&requests(&admin).get(&name).await.unwrap(), "Denied")
        })
        .await;
        assert_eq!(reason, "ProxiedUserUnproven", "{covered:?}");
        wait_believed(&hub, &admin).await;
        running.stop().await;
    }
}

/// Kubernetes asks for the right to approve before it asks the policies.
#[tokio::test]
async fn with_external_approval_dry_run_needs_the_approve_right() {
    let Some((hub, admin)) = real().await else { return };
    let proxy = proxy(&hub).await;
    guard_annotation(&hub, &admin).await;
    wait_policy(&admin).await;
    let _running = RunningHub::start_with(&hub, options()).await;
    wait_ready(&admin, "telemetry", "True").await;
    wait_believed(&hub, &admin).await;
    change_signer_seen(&admin, json!({ "spec": { "approval": "External" } })).await;
    verbs(&admin, json!(["sign"])).await;
    wait_until(TIMEOUT, "the right to go", async || (!may_approve(&hub).await).then_some(())).await;
    let name = ask(&proxy, &mk_proxied("spoke1", &user("spoke1"))).await;
    approve(&admin, &name).await;
    let (reason, sentence) = wait_unproven(&admin, &name).await;
    assert!(reason == "PolicyUnknown", "{sentence}");
    assert!(sentence.contains("lacks the right `approve` for this signer"), "{sentence}");
    assert!(sentence.contains("user not permitted to approve requests with signerName"), "{sentence}");
    assert_eq!(certificate(&requests(&admin).get(&name).await.unwrap()), None);
    verbs(&admin, json!(["approve", "sign"])).await;
    wait_until(3 * TIMEOUT, "the certificate", async || certificate(&requests(&admin).get(&name).await.unwrap())).await;
}

/// Gives the hub's account these verbs for the signer name of the tests.
async fn verbs(admin: &Client, verbs: Value) {
    let mut role = of_kind(&part("signers"), "ClusterRole")[0].clone();
    role["rules"][0]["verbs"] = verbs;
    apply(admin, &[role]).await;
}

async fn may_approve(hub: &TestHub) -> bool {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(hub.client_as(HUB_USER, &HUB_GROUPS).await);
    let attributes = json!({ "group": "certificates.k8s.io", "resource": "signers", "name": "example.com/telemetry",
                             "verb": "approve" });
    let review = json!({ "metadata": {}, "spec": { "resourceAttributes": attributes } });
    let review = reviews.create(&Default::default(), &serde_json::from_value(review).unwrap()).await;
    review.unwrap().status.unwrap().allowed
}

/// The creation time of a CSR and the time since which the hub has seen the policy are both the API server's.
#[tokio::test]
async fn request_older_than_dry_run_is_denied_whatever_the_clock_says() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let proxy = proxy(&hub).await;
    guard_annotation(&hub, &admin).await;
    let name = ask(&proxy, &mk_proxied("spoke1", &user("spoke1"))).await;
    let clock = Clock::default();
    clock.set_back(Duration::from_secs(3_600));
    let date = Some(Clock::default());
    let _running = RunningHub::start_with(&hub, RunningHubOptions { clock, date, ..options() }).await;
    let (reason, sentence) = wait_csr(&admin, &name, "denied", |csr| condition(csr, "Denied")).await;
    assert_eq!(reason, "ProxiedUserUnproven");
    assert!(sentence.ends_with("make a new CSR."), "{sentence}");
}

async fn approve(admin: &Client, name: &str) {
    let mut csr = requests(admin).get(name).await.unwrap();
    let approved = json!([{ "type": "Approved", "status": "True", "reason": "Test" }]);
    csr.status.get_or_insert_default().conditions = serde_json::from_value(approved).unwrap();
    requests(admin).replace_subresource("approval", name, &Default::default(), &csr).await.unwrap();
}
