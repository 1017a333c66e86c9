//! Another program removes our entry: the hub puts it back ever more rarely and reports it, for that addon only.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{registrations, wait_registered};
use crate::hub::mk_ready;
use test_kit::hub::{TIMEOUT, addon};
use test_kit::objects::managed_cluster_addons;
use test_kit::{accept_cluster, install_addon, wait_until};

/// The hub writes again a minute after its first write; once that is changed back too, the addon is left.
const LEFT: Duration = Duration::from_secs(120);

/// A program that replaces the whole list by its own whenever they differ, as programs of addon-framework do.
fn mk_rival(addons: Api<DynamicObject>, name: &'static str, own: Value) -> JoinHandle<()> {
    let rival = PatchParams { field_manager: Some("rival".to_owned()), ..PatchParams::default() };
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let Ok(object) = addons.get(name).await else { continue };
            if object.data["status"]["registrations"] == own {
                continue;
            }
            let version = object.metadata.resource_version;
            let body = json!({ "metadata": { "resourceVersion": version }, "status": { "registrations": own } });
            // A conflict with another write is no problem: the loop looks again.
            let _ = addons.patch_status(name, &rival, &Patch::Merge(&body)).await;
        }
    })
}

async fn wait_entry(admin: &Client, cluster: &str) {
    wait_until(TIMEOUT, &format!("the entry on {cluster}"), async || {
        let found = addon(admin, cluster, "telemetry").await.data["status"]["registrations"].clone();
        (found[0]["signerName"] == "example.com/telemetry").then_some(())
    })
    .await;
}

#[tokio::test]
async fn repeatedly_removed_entry_is_given_up_only_on_that_cluster() {
    let (_hub, admin, running) = mk_ready().await;
    accept_cluster(&admin, "spoke2").await;
    let own = json!([{ "signerName": "kubernetes.io/kube-apiserver-client", "subject": { "user": "u" } }]);
    let _rival = mk_rival(managed_cluster_addons(&admin, "spoke1").await, "telemetry", own.clone());
    wait_until(LEFT, "the hub to leave the addon", async || {
        let metrics = running.metrics.render().unwrap();
        metrics.contains("addon_signer_registrations_left{signer=\"telemetry\"} 1").then_some(())
    })
    .await;
    let (status, message) = wait_registered(&admin, "TakenAway").await;
    assert_eq!(status, "False");
    assert!(message.contains("of 1 ManagedClusterAddOns (spoke1/telemetry): name example.com/telemetry"), "{message}");
    let metrics = running.metrics.render().unwrap();
    assert!(metrics.contains("addon_signer_registrations_written_total 2\n"), "{metrics}");
    let events: Api<Event> = Api::namespaced(admin.clone(), "default");
    wait_until(TIMEOUT, "the event", async || {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let of_addon =
            |event: &Event| event.related.as_ref().is_some_and(|addon| addon.namespace.as_deref() == Some("spoke1"));
        events.into_iter().find(|event| event.reason.as_deref() == Some("TakenAway") && of_addon(event))
    })
    .await;
    wait_until(TIMEOUT, "the other program's list", async || {
        (registrations(&admin, "telemetry").await == own).then_some(())
    })
    .await;
    install_addon(&admin, "spoke2", "telemetry").await;
    wait_entry(&admin, "spoke2").await;
    assert_eq!(registrations(&admin, "telemetry").await, own);
}
