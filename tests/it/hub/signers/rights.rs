//! A hub without the rights of deploy/ says which one is missing. Only a real API server has RBAC.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{ListParams, PostParams};

use crate::hub::lineages::OnServer;
use crate::hub::{mk_csr, submit};
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, certificate, create_signer, deploy, telemetry, wait_csr, wait_ready,
};
use test_kit::{TestHub, accept_cluster, install_addon, log, wait_until};

#[tokio::test]
async fn an_account_without_rights_is_told_what_it_lacks() {
    let hub = TestHub::start().await;
    if !hub.is_real() {
        return;
    }
    let (log, _guard) = log::capture("addon_signer=info");
    deploy(&hub).await;
    let nobody = || RunningHubOptions { user: "nobody", ..RunningHubOptions::default() };
    let _waiting = RunningHub::start_with(&hub, nobody()).await;
    let _leading = RunningHub::start_with(&hub, RunningHubOptions { lease: None, ..nobody() }).await;
    for resource in ["leases", "managedclusters", "managedclusteraddons", "addonsigners", "secrets"] {
        wait_until(TIMEOUT, &format!("the log to say that {resource} cannot be read"), async || {
            let text = log.text();
            let reported = |lineage: &str| {
                lineage.contains("User \"nobody\" cannot") && lineage.contains(&format!("resource \"{resource}\""))
            };
            text.replace("\\\"", "\"").lines().any(reported).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_signer_whose_authorities_may_not_be_read_says_so() {
    let hub = TestHub::start().await;
    if !hub.is_real() {
        return;
    }
    deploy(&hub).await;
    let admin = hub.admin().await;
    accept_cluster(&admin, "spoke1").await;
    install_addon(&admin, "spoke1", "telemetry").await;
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), "addon-signer");
    let taken = bindings.list(&ListParams::default()).await.unwrap().items;
    assert!(!taken.is_empty());
    for binding in &taken {
        bindings.delete(binding.metadata.name.as_ref().unwrap(), &Default::default()).await.unwrap();
    }
    create_signer(&admin, "telemetry", telemetry()).await;
    let _running =
        RunningHub::start_with(&hub, RunningHubOptions { lease: None, ..RunningHubOptions::default() }).await;
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    assert_eq!(reason, "AuthorityUnavailable");
    assert!(message.contains("secrets \"telemetry-client-authorities\" is forbidden"), "{message}");
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    for mut binding in taken {
        binding.metadata.resource_version = None;
        binding.metadata.uid = None;
        bindings.create(&PostParams::default(), &binding).await.unwrap();
    }
    wait_ready(&admin, "telemetry", "True").await;
    wait_csr(&admin, &name, "issued", certificate).await;
}

#[tokio::test]
async fn a_signer_that_the_hub_may_not_sign_for_says_so() {
    let hub = TestHub::start().await;
    if !hub.is_real() {
        return;
    }
    deploy(&hub).await;
    let admin = hub.admin().await;
    let _running = RunningHub::start(&hub).await;
    create_signer(&admin, "other", serde_json::json!({"signerName": "example.com/other", "addOns": ["other"]})).await;
    let (reason, message) = wait_ready(&admin, "other", "False").await;
    assert_eq!(reason, "NotPermitted");
    assert!(message.starts_with("The hub may not sign for example.com/other: add it to `signers`"), "{message}");
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    let serving = async || secrets.get_opt("addon-signer-serving-authorities").await.unwrap();
    wait_until(TIMEOUT, "the gateway's authority", serving).await;
    assert!(secrets.get_opt("other-client-authorities").await.unwrap().is_none(), "it has none before that");
    // So it has given out no certificate that a rotation of the gateway's authority would wait for.
    let lineage = OnServer::serving(&admin);
    let first = lineage.wait(&["Active"]).await;
    lineage.wait_bundle(&first).await;
    lineage.rotate_by_map("r1").await;
    wait_until(TIMEOUT, "another authority to sign", async || {
        let active = lineage.members().await?.into_iter().find(|member| member["state"] == "Active")?;
        (active["id"] != first[0].as_str()).then_some(())
    })
    .await;
    crate::hub::requests::grant_other(&hub).await;
    wait_ready(&admin, "other", "True").await;
    assert!(secrets.get_opt("other-client-authorities").await.unwrap().is_some());
}
