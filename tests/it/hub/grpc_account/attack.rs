//! Somebody who may only update the status of CSRs rewrites for whom one of them is.

use kube::Client;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use super::{CSR_USER, allow, ask, guard_annotation, mk_proxied, options, proxy, requests, rule, user};
use crate::hub::{MOMENT, mk_served};
use addon_signer_core::rate::Rate;
use std::time::Duration;
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, certificate, condition, telemetry, wait_ready};
use test_kit::quick::pass;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

/// The controller of another signer: it may sign for its own signer name alone, and update any CSR's status.
pub(in crate::hub) async fn accomplice(hub: &TestHub) -> Client {
    let group = "system:serviceaccounts:other";
    let rules = json!([
        rule("certificatesigningrequests", &[], &["get"]),
        rule("certificatesigningrequests/status", &[], &["update"]),
        rule("signers", &["other.example.com/x"], &["sign"]),
    ]);
    allow(hub, "other-signer", group, rules).await;
    hub.client_as("system:serviceaccount:other:controller", &[group]).await
}

/// Rewrites for whom a CSR is.
pub(super) async fn rewrite(client: &Client, name: &str, csr_user: &str, subresource: &str) -> kube::Result<()> {
    let mut csr = requests(client).get(name).await?;
    csr.metadata.annotations.get_or_insert_default().insert(CSR_USER.to_owned(), csr_user.to_owned());
    requests(client).replace_subresource(subresource, name, &PostParams::default(), &csr).await.map(drop)
}

#[tokio::test]
async fn without_policy_rewritten_annotation_yields_no_certificate() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    accept_cluster(&admin, "attacker").await;
    install_addon(&admin, "attacker", "telemetry").await;
    let (proxy, accomplice) = (proxy(&hub).await, accomplice(&hub).await);
    let rate = Rate { burst: 1, interval: Duration::from_secs(3_600) };
    let _running = RunningHub::start_with(&hub, RunningHubOptions { rate, ..options() }).await;
    wait_ready(&admin, "telemetry", "True").await;
    // More than the hub answers: the last ones stay as they are.
    let mut names = Vec::new();
    for _ in 0..8 {
        names.push(ask(&proxy, &mk_proxied("spoke1", &user("attacker"))).await);
    }
    for name in &names {
        // The hub writes on some of them at the same time.
        let rewritten = async || rewrite(&accomplice, name, &user("spoke1"), "status").await.ok();
        wait_until(TIMEOUT, "the annotation to be rewritten", rewritten).await;
    }
    let csrs = async || requests(&admin).list(&ListParams::default()).await.unwrap().items;
    wait_until(TIMEOUT, "a CSR to be told why it waits", async || {
        csrs().await.iter().find_map(|csr| condition(csr, "ProxyUnproven"))
    })
    .await;
    pass(MOMENT).await; // a certificate would come now
    let signed = async || csrs().await.iter().filter_map(certificate).collect::<Vec<_>>();
    assert_eq!(signed().await, [""; 0]);
    let reported: Vec<_> = csrs().await.iter().filter_map(|csr| condition(csr, "ProxyUnproven")).collect();
    assert!(!reported.is_empty(), "{reported:?}");
    assert!(reported.iter().all(|(reason, _)| reason == "PolicyMissing"), "{reported:?}");

    // The policy comes too late for them.
    guard_annotation(&hub, &admin).await;
    // The hub asks with growing pauses, of a minute at most.
    wait_until(3 * TIMEOUT, "a CSR to be denied", async || {
        let denied: Vec<_> = csrs().await.iter().filter_map(|csr| condition(csr, "Denied")).collect();
        assert!(denied.iter().all(|(reason, _)| reason == "ProxiedUserUnproven"), "{denied:?}");
        (!denied.is_empty()).then_some(())
    })
    .await;
    assert_eq!(signed().await, [""; 0]);
}
