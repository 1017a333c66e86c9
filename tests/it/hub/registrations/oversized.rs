//! An addon whose status is larger than the hub reads.

use addon_signer_core::registry::NotRegistered;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::hub::{MOMENT, mk_csr, mk_ready, submit};
use crate::support::hub::{PATIENCE, addon, certificate, condition, wait_csr};
use crate::support::objects::managed_cluster_addons;
use crate::support::{accept_cluster, install_addon, wait_until};

async fn change(admin: &Client, cluster: &str, status: bool, change: Value) {
    let addons = managed_cluster_addons(admin, cluster).await;
    let (params, change) = (PatchParams::default(), Patch::Merge(change));
    let changed = if status {
        addons.patch_status("telemetry", &params, &change).await
    } else {
        addons.patch("telemetry", &params, &change).await
    };
    changed.unwrap();
}

async fn registrations(admin: &Client, cluster: &str) -> Value {
    addon(admin, cluster, "telemetry").await.data["status"]["registrations"].clone()
}

#[tokio::test]
async fn an_oversized_status_is_left_alone_and_standing_does_not_depend_on_it() {
    let (hub, admin, running) = mk_ready().await;
    wait_until(PATIENCE, "the entry", async || registrations(&admin, "spoke1").await.get(0).map(drop)).await;
    let entry = registrations(&admin, "spoke1").await[0].clone();
    let mut padded = entry.clone();
    let subject = if padded.get("customSigner").is_some() { &mut padded["customSigner"] } else { &mut padded };
    subject["subject"]["groups"] = json!(vec!["a"; 50_000]);
    change(&admin, "spoke1", true, json!({ "status": { "registrations": [padded] } })).await;
    // Another addon, which the hub sees after that one, gets its entry.
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "telemetry").await;
    wait_until(PATIENCE, "another entry", async || registrations(&admin, "spoke2").await.get(0).map(drop)).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(registrations(&admin, "spoke1").await, json!([padded]));
    for cluster in ["spoke1", "spoke2"] {
        let name = submit(&hub, cluster, &mk_csr(cluster, "telemetry")).await;
        wait_csr(&admin, &name, "issued", certificate).await;
    }
    let suspended = json!({ "metadata": { "annotations": { "addon-signer.io/suspended": "true" } } });
    change(&admin, "spoke1", false, suspended).await;
    let (cluster, addon) = ("spoke1".parse().unwrap(), "telemetry".parse().unwrap());
    wait_until(PATIENCE, "the suspension", async || {
        let found = running.registry.read(|registry| registry.check(&cluster, &addon));
        (found == Err(NotRegistered::AddOnSuspended)).then_some(())
    })
    .await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let (reason, _) = wait_csr(&admin, &name, "denied", |csr| condition(csr, "Denied")).await;
    assert_eq!(reason, "AddOnSuspended");
    change(&admin, "spoke1", true, json!({ "status": { "registrations": [] } })).await;
    wait_until(PATIENCE, "the entry again", async || {
        (registrations(&admin, "spoke1").await == json!([entry])).then_some(())
    })
    .await;
}
