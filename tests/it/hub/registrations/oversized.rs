//! An addon whose status is larger than the hub reads.

use addon_signer_core::registry::NotRegistered;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::is_v1beta1;
use crate::hub::{MOMENT, mk_csr, mk_served, submit};
use test_kit::hub::{RunningHub, TIMEOUT, addon, certificate, condition, telemetry, wait_csr, wait_ready};
use test_kit::objects::{managed_cluster_addons, poison};
use test_kit::quick::pass;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

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
async fn oversized_status_is_left_alone_and_eligibility_still_counts() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let subject = json!({ "user": "u", "groups": vec!["a"; 50_000] });
    let signer = json!({ "signerName": "example.com/telemetry", "subject": subject });
    let padded =
        if is_v1beta1(&admin).await { json!({ "type": "customSigner", "customSigner": signer }) } else { signer };
    change(&admin, "spoke1", true, json!({ "status": { "registrations": [padded] } })).await;
    let running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    // Another addon, which the hub sees after that one, gets its entry.
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "telemetry").await;
    wait_until(TIMEOUT, "another entry", async || registrations(&admin, "spoke2").await.get(0).map(drop)).await;
    pass(MOMENT).await;
    assert!(registrations(&admin, "spoke1").await == json!([padded]), "the hub wrote into it");
    for cluster in ["spoke1", "spoke2"] {
        let name = submit(&hub, cluster, &mk_csr(cluster, "telemetry")).await;
        wait_csr(&admin, &name, "issued", certificate).await;
    }
    let suspended = json!({ "metadata": { "annotations": { "addon-signer.io/suspended": "true" } } });
    change(&admin, "spoke1", false, suspended).await;
    let (cluster, addon) = ("spoke1".parse().unwrap(), "telemetry".parse().unwrap());
    wait_until(TIMEOUT, "the suspension", async || {
        let found = running.registry.read(|registry| registry.check(&cluster, &addon));
        (found == Err(NotRegistered::AddOnSuspended)).then_some(())
    })
    .await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let (reason, _) = wait_csr(&admin, &name, "denied", |csr| condition(csr, "Denied")).await;
    assert_eq!(reason, "AddOnSuspended");
    change(&admin, "spoke1", true, json!({ "status": { "registrations": [] } })).await;
    wait_until(TIMEOUT, "the entry", async || registrations(&admin, "spoke1").await.get(0).map(drop)).await;
}

/// Writes a ManagedCluster as its agent may.
async fn poison_cluster(admin: &Client, cluster: &str, accepts: bool) -> String {
    let path = format!("/apis/cluster.open-cluster-management.io/v1/managedclusters/{cluster}");
    poison(admin, &path, |object| {
        object["metadata"]["labels"] = json!({ "poisoned": "yes", "accepts": accepts.to_string() });
        object["spec"]["hubAcceptsClient"] = accepts.into();
    })
    .await
}

/// The API server keeps times in `managedFields` that are later than any that our libraries read. One such object must
/// hide neither itself nor the others.
#[tokio::test]
async fn an_object_with_a_time_that_cannot_be_read_hides_nobody() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    poison_cluster(&admin, "spoke1", true).await;
    let written = poison_cluster(&admin, "spoke1", true).await;
    assert!(!hub.is_real() || written.contains("9999-12-31"), "{written}");
    let running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
    poison_cluster(&admin, "spoke1", false).await;
    let (cluster, addon) = ("spoke1".parse().unwrap(), "telemetry".parse().unwrap());
    wait_until(TIMEOUT, "the cluster to lose its eligibility", async || {
        let found = running.registry.read(|registry| registry.check(&cluster, &addon));
        (found == Err(NotRegistered::ClusterNotAccepted)).then_some(())
    })
    .await;
}
