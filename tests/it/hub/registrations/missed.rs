//! What happened to AddOnSigners while no hub looked is made good when one looks again.

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::registrations;
use crate::hub::crash::books::entries;
use crate::hub::mk_served;
use addon_signer_api::AddOnSigner;
use addon_signer_ledger::Location;
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, addon, change_signer, create_signer, fresh_ledger, telemetry, wait_ready,
};
use test_kit::objects::managed_cluster_addons;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

async fn start(hub: &TestHub, ledger: &Location) -> RunningHub {
    RunningHub::start_with(hub, RunningHubOptions { ledger: Some(ledger.clone()), ..RunningHubOptions::default() })
        .await
}

/// Writes the registrations of the addon telemetry as another program does.
async fn register(admin: &kube::Client, cluster: &str, manager: &str, entries: &Value) {
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let status = json!({ "status": { "registrations": entries } });
    let addons = managed_cluster_addons(admin, cluster).await;
    addons.patch_status("telemetry", &params, &Patch::Merge(&status)).await.unwrap();
}

async fn of(admin: &kube::Client, cluster: &str) -> Value {
    addon(admin, cluster, "telemetry").await.data["status"]["registrations"].clone()
}

async fn delete(admin: &kube::Client, signer: &str) {
    Api::<AddOnSigner>::all(admin.clone()).delete(signer, &DeleteParams::default()).await.unwrap();
}

/// Waits until the ledger knows an AddOnSigner.
async fn wait_recorded(ledger: &Location) {
    wait_until(TIMEOUT, "the ledger to know the AddOnSigner", async || {
        let known = entries(&ledger.to_string()).await;
        known.iter().any(|entry| entry.contains("\"kind\":\"signer\"")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn signer_deleted_unseen_loses_its_entries_and_no_others() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "telemetry").await;
    let foreign = json!([{ "signerName": "other.example/x", "subject": { "user": "u" } }]);
    register(&admin, "spoke1", "rival", &foreign).await;
    let user = "system:open-cluster-management:cluster:spoke2:addon:telemetry:agent:theirs";
    let theirs = json!([{ "signerName": "example.com/telemetry", "subject": { "user": user } }]);
    register(&admin, "spoke2", "rival", &theirs).await;
    let (_dir, ledger) = fresh_ledger();
    let first = start(&hub, &ledger).await;
    let both = wait_until(TIMEOUT, "the entry", async || {
        let found = of(&admin, "spoke1").await;
        (found.as_array()?.len() == 2).then_some(found)
    })
    .await;
    wait_ready(&admin, "telemetry", "True").await;
    wait_recorded(&ledger).await;
    first.stop().await;
    delete(&admin, "telemetry").await;
    let second = start(&hub, &ledger).await;
    let entry_goes = async || {
        wait_until(TIMEOUT, "the entry to go", async || (of(&admin, "spoke1").await == foreign).then_some(())).await;
    };
    entry_goes().await;
    assert_eq!(of(&admin, "spoke2").await, theirs, "another program wrote it");
    // The same if the hub that saw the deletion had ended before it took the entry away.
    second.stop().await;
    register(&admin, "spoke1", "addon-signer", &both).await;
    let _third = start(&hub, &ledger).await;
    entry_goes().await;
    assert_eq!(of(&admin, "spoke2").await, theirs, "another program wrote it");
}

#[tokio::test]
async fn signer_name_moved_unseen_keeps_its_entries() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let (_dir, ledger) = fresh_ledger();
    let first = start(&hub, &ledger).await;
    let before = wait_until(TIMEOUT, "the entry", async || {
        let found = registrations(&admin, "telemetry").await;
        found.get(0).is_some().then_some(found)
    })
    .await;
    wait_ready(&admin, "telemetry", "True").await;
    wait_recorded(&ledger).await;
    first.stop().await;
    delete(&admin, "telemetry").await;
    create_signer(&admin, "moved", telemetry()).await;
    let second = start(&hub, &ledger).await;
    wait_ready(&admin, "moved", "True").await;
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "telemetry").await;
    wait_until(TIMEOUT, "the entry of a new addon", async || of(&admin, "spoke2").await.get(0).map(drop)).await;
    assert_eq!(registrations(&admin, "telemetry").await, before);
    let metrics = second.metrics.render().unwrap();
    assert!(metrics.contains("addon_signer_registrations_written_total 1"), "{metrics}");
}

/// The ledger knows the specification of the hub's start; the hub itself knows a later one.
#[tokio::test]
async fn signer_changed_before_its_deletion_loses_its_entries() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let (_dir, ledger) = fresh_ledger();
    let first = start(&hub, &ledger).await;
    let user = async || of(&admin, "spoke1").await[0]["subject"]["user"].as_str().map(str::to_owned);
    let before = wait_until(TIMEOUT, "the entry", user).await;
    wait_ready(&admin, "telemetry", "True").await;
    wait_recorded(&ledger).await;
    first.stop().await;
    let _second = start(&hub, &ledger).await;
    let identity = json!({ "spec": { "identity": { "user": "example.com/telemetry:{cluster}:{addon}:{agent}" } } });
    change_signer(&admin, identity).await;
    wait_until(TIMEOUT, "the entry to change", async || user().await.filter(|user| *user != before)).await;
    delete(&admin, "telemetry").await;
    wait_until(TIMEOUT, "the entry to go", async || of(&admin, "spoke1").await.as_array()?.is_empty().then_some(()))
        .await;
}
