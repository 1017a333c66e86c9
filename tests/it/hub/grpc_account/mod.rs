//! CSRs that OCM's gRPC server makes for agents: who says for whom they are, and what becomes of them where nothing
//! keeps others from changing that.

pub(super) mod attack;
mod dry_run;
mod good;
pub(super) mod policy;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::mk_csr;
use test_kit::accounts::GRPC_PROXY;
use test_kit::crds::grant;
use test_kit::deploy::{apply, part};
use test_kit::hub::{RunningHubOptions, TIMEOUT, certificate, condition, wait_csr};
use test_kit::objects::bind_policy;
use test_kit::{TestHub, wait_until};

const CSR_USER: &str = "open-cluster-management.io/csr-user";
/// The groups that Kubernetes gives to OCM's gRPC server.
const GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:open-cluster-management-hub"];

/// A hub that believes OCM's gRPC server.
pub(super) fn options() -> RunningHubOptions {
    RunningHubOptions { grpc_proxy: Some(GRPC_PROXY.to_owned()), ..RunningHubOptions::default() }
}

/// The hub identity of a cluster's registration agent.
fn user(cluster: &str) -> String {
    format!("system:open-cluster-management:{cluster}:a1")
}

pub(super) fn requests(client: &Client) -> Api<CertificateSigningRequest> {
    Api::all(client.clone())
}

/// The gRPC server's account with the right to make CSRs.
async fn proxy(hub: &TestHub) -> Client {
    allow(hub, "grpc-server", GROUPS[1], json!([rule("certificatesigningrequests", &[], &["create", "get"])])).await;
    hub.client_as(GRPC_PROXY, &GROUPS).await
}

/// A rule of a role: these verbs on a resource of certificates, or on the signer of this name.
fn rule(resource: &str, name: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": ["certificates.k8s.io"], "resources": [resource], "resourceNames": name, "verbs": verbs })
}

/// Gives rights to a group on a real API server; the stand-in lets everybody do everything.
async fn allow(hub: &TestHub, name: &str, group: &str, rules: Value) {
    if hub.is_real() {
        grant(&hub.admin().await, name, group, rules).await;
    }
}

/// A CSR for the addon telemetry on the cluster `subject`, which says that it is for `csr_user`.
fn mk_proxied(subject: &str, csr_user: &str) -> CertificateSigningRequest {
    let mut csr = mk_csr(subject, "telemetry");
    csr.metadata.annotations = Some([(CSR_USER.to_owned(), csr_user.to_owned())].into());
    csr
}

/// Makes the CSR as this account; returns its name.
async fn ask(client: &Client, csr: &CertificateSigningRequest) -> String {
    requests(client).create(&PostParams::default(), csr).await.unwrap().metadata.name.unwrap()
}

/// Applies the policy for the gRPC account.
pub(super) async fn guard_annotation(hub: &TestHub, admin: &Client) {
    if hub.is_real() {
        apply(admin, &part("grpc-account")).await;
    } else {
        bind_policy(admin, "grpc-account").await;
    }
}

/// Waits until the hub believes new CSRs for the addon telemetry on spoke1, which only the gRPC server may make.
pub(super) async fn wait_believed(hub: &TestHub, admin: &Client) {
    let proxy = hub.client_as(GRPC_PROXY, &GROUPS).await;
    wait_until(2 * TIMEOUT, "the hub to believe new CSRs", async || {
        let name = ask(&proxy, &mk_proxied("spoke1", &user("spoke1"))).await;
        let is_answered = |csr: &CertificateSigningRequest| {
            let is_issued = certificate(csr).is_some();
            (is_issued || condition(csr, "Denied").is_some()).then_some(is_issued)
        };
        let is_issued = wait_csr(admin, &name, "answered", is_answered).await;
        requests(admin).delete(&name, &Default::default()).await.unwrap();
        is_issued.then_some(())
    })
    .await;
}
