//! The policy for the gRPC account: who may say for whom a CSR is, and that nobody changes it.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::attack::{accomplice, rewrite};
use super::{CSR_USER, allow, ask, guard_annotation, mk_proxied, proxy, requests, rule, user};
use crate::hub::mk_csr;
use test_kit::hub::TIMEOUT;
use test_kit::{TestHub, wait_until};

const ONLY: &str = "ValidatingAdmissionPolicy 'addon-signer-grpc-account' with binding 'addon-signer-grpc-account' \
                    denied request: only system:serviceaccount:open-cluster-management-hub:grpc-server-sa may create a \
                    CSR with the annotation open-cluster-management.io/csr-user";
const LATER: &str = "denied request: the annotation open-cluster-management.io/csr-user is set when the CSR is \
                     created, and nobody may add, change or remove it later";

/// Whoever approves for the signer of the tests.
pub(in crate::hub) async fn approver(hub: &TestHub) -> Client {
    let group = "system:serviceaccounts:approver";
    let rules = json!([
        rule("certificatesigningrequests", &[], &["get"]),
        rule("certificatesigningrequests/approval", &[], &["update"]),
        rule("signers", &["example.com/telemetry"], &["approve"]),
    ]);
    allow(hub, "approver", group, rules).await;
    hub.client_as("system:serviceaccount:approver:approver", &[group]).await
}

/// Waits until the API server refuses what the policy forbids.
pub(super) async fn wait_policy(admin: &Client) {
    let dry_run = PostParams { dry_run: true, field_manager: None };
    wait_until(TIMEOUT, "the policy to be in effect", async || {
        let made = requests(admin).create(&dry_run, &mk_proxied("spoke1", &user("spoke1"))).await;
        made.err().filter(|error| error.to_string().contains(ONLY))
    })
    .await;
}

pub(in crate::hub) fn refused<A>(answer: kube::Result<A>, expected: &str) {
    let Err(kube::Error::Api(status)) = answer else { panic!("it was not refused") };
    assert!(status.code == 422, "{}", status.message);
    assert!(status.message.contains(expected), "{}", status.message);
}

#[tokio::test]
async fn only_grpc_server_says_whom_it_asks_for_and_nobody_changes_it() {
    let hub = TestHub::start().await;
    let admin = hub.admin().await;
    let (proxy, other, approver) = (proxy(&hub).await, accomplice(&hub).await, approver(&hub).await);
    guard_annotation(&hub, &admin).await;
    wait_policy(&admin).await;
    let create = async |client: &Client, csr: Csr| requests(client).create(&PostParams::default(), &csr).await;
    let agent = hub.as_cluster_agent("spoke1", "a1").await;
    refused(create(&agent, mk_proxied("spoke1", &user("spoke1"))).await, ONLY);

    let proxied = ask(&proxy, &mk_proxied("spoke1", &user("attacker"))).await;
    let plain = ask(&agent, &mk_csr("spoke1", "telemetry")).await;
    for (who, client, subresource) in [("another signer", &other, "status"), ("an approver", &approver, "approval")] {
        for name in [&proxied, &plain] {
            let Err(error) = rewrite(client, name, &user("spoke1"), subresource).await else { panic!("{who}: {name}") };
            assert!(error.to_string().contains(LATER), "{who}: {error}");
        }
        let mut without = requests(&admin).get(&proxied).await.unwrap();
        without.metadata.annotations = None;
        refused(
            requests(client).replace_subresource(subresource, &proxied, &Default::default(), &without).await,
            LATER,
        );
    }
    for (name, annotation) in [(&proxied, json!(user("spoke1"))), (&proxied, Value::Null), (&plain, json!("x"))] {
        let patch = json!({ "metadata": { "annotations": { CSR_USER: annotation } } });
        refused(requests(&admin).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await, LATER);
    }
    assert_eq!(requests(&admin).get(&proxied).await.unwrap().metadata.annotations.unwrap()[CSR_USER], user("attacker"));
    everything_else_goes_on(&admin, &approver, &other, [&proxied, &plain]).await;
    if hub.is_real() {
        refused(create(&proxy, mk_proxied("spoke1", &"x".repeat(254))).await, "may have at most 253 characters");
    }
}

/// What does not touch the annotation is nobody's concern, with annotations and without.
async fn everything_else_goes_on(admin: &Client, approver: &Client, other: &Client, names: [&String; 2]) {
    for name in names {
        let label = json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } } });
        requests(admin).patch(name, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
        let mut csr = requests(admin).get(name).await.unwrap();
        let approved = json!([{ "type": "Approved", "status": "True", "reason": "Test" }]);
        csr.status.get_or_insert_default().conditions = serde_json::from_value(approved).unwrap();
        let approved = requests(approver).replace_subresource("approval", name, &Default::default(), &csr).await;
        requests(other).replace_subresource("status", name, &Default::default(), &approved.unwrap()).await.unwrap();
        requests(admin).delete(name, &DeleteParams::default()).await.unwrap();
    }
    let mut kubelets = mk_csr("spoke1", "telemetry");
    kubelets.metadata.labels = None;
    kubelets.spec.signer_name = "kubernetes.io/kube-apiserver-client-kubelet".to_owned();
    let made: Csr = requests(admin).create(&PostParams::default(), &kubelets).await.unwrap();
    assert_eq!(made.metadata.annotations, None);
    let name = made.metadata.name.as_ref().unwrap();
    requests(admin).replace_subresource("status", name, &Default::default(), &made).await.unwrap();
}
