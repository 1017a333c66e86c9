//! The trust bundle reaches every cluster by a ManifestWork. The test plays the clusters' work agents here;
//! `beside_ocm::hub_trust` has OCM's own.

mod policy;
mod spoilt;

use std::time::Duration;

use addon_signer_api::AddOnSigner;
use addon_signer_core::names::LABEL_HUB_TRUST;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::mk_served;
use crate::hub::{mk_csr, submit};
use test_kit::deploy::{apply, part};
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, certificate, change_signer, fresh_ledger, telemetry, wait_csr,
};
use test_kit::objects::{managed_cluster_addons, manifest_works, serve_manifest_works};
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

/// How long a kubelet may take to show pods a changed ConfigMap.
pub(crate) const APPLIED_FOR: Duration = Duration::from_secs(900);
const NAME: &str = "addon-signer-telemetry-trust";

/// Like [`mk_served`], with another cluster, and the right to write ManifestWorks.
pub(super) async fn mk_world(hub: &TestHub, signer: Value) -> Client {
    let admin = mk_served(hub, signer).await;
    if hub.is_real() {
        apply(&admin, &part("manifest-works")).await;
    } else {
        serve_manifest_works(&admin).await;
    }
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "telemetry").await;
    admin
}

/// The only manifest of a cluster's work, once it satisfies this.
pub(super) async fn wait_manifest(admin: &Client, cluster: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    wait_until(TIMEOUT, what, async || {
        let work = manifest_works(admin, cluster).get_opt(NAME).await.unwrap()?;
        let manifests = work.data["spec"]["workload"]["manifests"].as_array()?.clone();
        manifests.into_iter().next().filter(&is_it)
    })
    .await
}

/// The bundle that the hub has published.
pub(super) async fn published(admin: &Client) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    wait_until(TIMEOUT, "the published bundle", async || {
        maps.get_opt("addon-signer-trust").await.unwrap()?.data?.remove("ca.crt")
    })
    .await
}

/// Asks for a rotation of the gateway's authority.
async fn rotate(admin: &Client) {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let rotate = json!({ "metadata": { "annotations": { "addon-signer.io/rotate": "now" } } });
    maps.patch("addon-signer-trust", &PatchParams::default(), &Patch::Merge(&rotate)).await.unwrap();
}

/// What the hub reports about that rotation.
pub(super) async fn rotation(admin: &Client) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    maps.get("addon-signer-trust").await.unwrap().data.unwrap()["status.json"].clone()
}

/// Says as the work agent of a cluster that its work is applied.
pub(crate) async fn say_applied(admin: &Client, cluster: &str) {
    let api = manifest_works(admin, cluster);
    let made = wait_until(TIMEOUT, "the work", async || api.get_opt(NAME).await.unwrap()).await;
    let generation = made.metadata.generation;
    let condition = json!({
        "type": "Applied", "status": "True", "reason": "AppliedManifestWorkComplete", "message": "",
        "observedGeneration": generation, "lastTransitionTime": "2026-11-23T00:00:00Z",
    });
    let status = json!({ "status": { "conditions": [condition] } });
    api.patch_status(NAME, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

pub(super) async fn wait_condition(admin: &Client, what: &str, is_it: impl Fn(Option<&Condition>) -> bool) {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    wait_until(TIMEOUT, what, async || {
        let conditions = signers.get("telemetry").await.unwrap().status?.conditions;
        is_it(conditions.iter().find(|condition| condition.type_ == "TrustDistributed")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn every_cluster_keeps_its_bundle_until_the_addon_goes() {
    let hub = TestHub::start().await;
    let admin = mk_world(&hub, telemetry()).await;
    let running = RunningHub::start(&hub).await;
    let bundle = published(&admin).await;
    let expected = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "telemetry-hub-trust", "namespace": "open-cluster-management-agent-addon" },
        "data": { "ca.crt": bundle },
    });
    for cluster in ["spoke1", "spoke2"] {
        wait_manifest(&admin, cluster, "the work", |manifest| *manifest == expected).await;
    }
    let api = manifest_works(&admin, "spoke1");
    let made = api.get(NAME).await.unwrap();
    let owner = &made.metadata.owner_references.unwrap()[0];
    let addon = managed_cluster_addons(&admin, "spoke1").await.get("telemetry").await.unwrap();
    assert_eq!((&*owner.kind, Some(&owner.uid)), ("ManagedClusterAddOn", addon.metadata.uid.as_ref()));
    assert_eq!(made.metadata.labels.unwrap()[LABEL_HUB_TRUST], "telemetry");

    let waits = "1 of 2 addons on clusters have the present bundle. Not yet: spoke2/telemetry.";
    say_applied(&admin, "spoke1").await;
    wait_condition(&admin, "one cluster to be there", |it| {
        it.is_some_and(|it| it.reason == "Distributing" && it.message.contains(waits))
    })
    .await;
    say_applied(&admin, "spoke2").await;
    wait_condition(&admin, "all clusters to be there", |it| it.is_some_and(|it| it.status == "True")).await;
    assert!(running.metrics.render().unwrap().contains("addon_signer_trust_missing{signer=\"telemetry\"} 0\n"));

    let edit = json!({ "spec": { "workload": { "manifests": [] } } });
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    wait_manifest(&admin, "spoke1", "an edit to be undone", |manifest| *manifest == expected).await;
    let otherwise = json!({ "spec": { "deleteOption": { "propagationPolicy": "Orphan" } } });
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(&otherwise)).await.unwrap();
    wait_until(TIMEOUT, "what the hub does not write to go", async || {
        api.get(NAME).await.unwrap().data["spec"].get("deleteOption").is_none().then_some(())
    })
    .await;
    api.delete(NAME, &DeleteParams::default()).await.unwrap();
    wait_manifest(&admin, "spoke1", "a deleted work to come back", |manifest| *manifest == expected).await;

    managed_cluster_addons(&admin, "spoke1").await.delete("telemetry", &DeleteParams::default()).await.unwrap();
    wait_until(TIMEOUT, "the work to go with its addon", async || {
        api.get_opt(NAME).await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(manifest_works(&admin, "spoke2").get_opt(NAME).await.unwrap().is_some());
    running.stop().await;
}

/// Asks for a rotation when both clusters have their works, and waits until these have both anchors.
async fn rotate_everywhere(admin: &Client) {
    let before = published(admin).await;
    for cluster in ["spoke1", "spoke2"] {
        wait_manifest(admin, cluster, "the work", |manifest| manifest["data"]["ca.crt"] == before.as_str()).await;
    }
    rotate(admin).await;
    for cluster in ["spoke1", "spoke2"] {
        let both = |manifest: &Value| {
            let anchors = manifest["data"]["ca.crt"].as_str().unwrap();
            anchors.contains(before.trim()) && anchors.matches("BEGIN CERTIFICATE").count() == 2
        };
        wait_manifest(admin, cluster, "both anchors", both).await;
    }
}

#[tokio::test]
async fn new_authority_awaits_all_clusters_and_restart_writes_nothing() {
    let hub = TestHub::start().await;
    let admin = mk_world(&hub, telemetry()).await;
    let (_dir, ledger) = fresh_ledger();
    let options = || RunningHubOptions { ledger: Some(ledger.clone()), ..RunningHubOptions::default() };
    let running = RunningHub::start_with(&hub, options()).await;
    let request = submit(&hub, "spoke2", &mk_csr("spoke2", "telemetry")).await;
    wait_csr(&admin, &request, "issued", certificate).await;
    rotate_everywhere(&admin).await;
    let before = manifest_works(&admin, "spoke2").get(NAME).await.unwrap().metadata.uid;
    manifest_works(&admin, "spoke2").delete(NAME, &DeleteParams::default()).await.unwrap();
    wait_until(TIMEOUT, "the work to come back", async || {
        manifest_works(&admin, "spoke2").get_opt(NAME).await.unwrap().filter(|made| made.metadata.uid != before)
    })
    .await;
    let report = async || rotation(&admin).await;
    let both = json!({ "ready": 0, "total": 2, "stragglers": ["spoke1/telemetry", "spoke2/telemetry"] });
    wait_until(TIMEOUT, "the report to name the clusters", async || {
        let rotation = serde_json::from_str::<Value>(&report().await).unwrap()["rotation"].take();
        let named = both.as_object().unwrap().iter().all(|(field, value)| rotation[field] == *value);
        (named && rotation["waitingFor"].as_str()?.contains("0 of 2 addons have it, and not yet: spoke1/"))
            .then_some(())
    })
    .await;
    running.stop().await;

    let versions = async || {
        let mut versions = Vec::new();
        for cluster in ["spoke1", "spoke2"] {
            versions.push(manifest_works(&admin, cluster).get(NAME).await.unwrap().metadata.resource_version);
        }
        versions
    };
    let known = versions().await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let forget = Patch::Merge(json!({ "status": { "conditions": [] } }));
    signers.patch_status("telemetry", &PatchParams::default(), &forget).await.unwrap();
    let running = RunningHub::start_with(&hub, options()).await;
    // It has looked at all when it reports, and has written what it would write when it reports a later change.
    wait_condition(&admin, "the report", |it| it.is_some_and(|it| it.message.contains("0 of 2"))).await;
    assert_eq!(versions().await, known);
    say_applied(&admin, "spoke1").await;
    wait_condition(&admin, "a later report", |it| it.is_some_and(|it| it.message.contains("1 of 2"))).await;
    let now = versions().await;
    assert_eq!(now[1], known[1]);
    assert!(report().await.contains("\"Next\""), "one cluster is missing");
    say_applied(&admin, "spoke2").await;
    wait_until(2 * TIMEOUT, "pods to be waited for", async || {
        report()
            .await
            .contains("pods and agents to use the new anchor: spoke1/telemetry, spoke2/telemetry")
            .then_some(())
    })
    .await;
    running.clock.advance(APPLIED_FOR);
    wait_until(2 * TIMEOUT, "the new authority to sign", async || (!report().await.contains("\"Next\"")).then_some(()))
        .await;
    running.stop().await;
}

#[tokio::test]
async fn unwanted_distribution_leaves_no_work_and_no_condition() {
    let hub = TestHub::start().await;
    let never = json!({ "signerName": "example.com/telemetry", "addOns": ["telemetry"],
                        "trust": { "manifestWork": "Never" } });
    let admin = mk_world(&hub, never).await;
    let running = RunningHub::start(&hub).await;
    published(&admin).await;
    change_signer(&admin, json!({ "spec": { "trust": { "manifestWork": "Auto" } } })).await;
    wait_manifest(&admin, "spoke1", "the work", |_| true).await;
    wait_condition(&admin, "the condition", |it| it.is_some()).await;
    change_signer(&admin, json!({ "spec": { "trust": { "manifestWork": "Never" } } })).await;
    wait_until(TIMEOUT, "all works to go", async || {
        let mut left = manifest_works(&admin, "spoke1").list(&ListParams::default()).await.unwrap().items.len();
        left += manifest_works(&admin, "spoke2").list(&ListParams::default()).await.unwrap().items.len();
        (left == 0).then_some(())
    })
    .await;
    wait_condition(&admin, "no condition", |it| it.is_none()).await;
    running.stop().await;
}

/// Somebody applies the ClusterRole again, or the API server has just started.
#[tokio::test]
async fn hub_starting_without_the_right_still_waits_for_clusters() {
    let hub = TestHub::start().await;
    let admin = mk_world(&hub, telemetry()).await;
    let running = RunningHub::start(&hub).await;
    published(&admin).await;
    wait_condition(&admin, "the condition", |it| it.is_some()).await;
    rotate(&admin).await;
    let waits = async |what: &str| {
        wait_until(TIMEOUT, what, async || rotation(&admin).await.contains(what).then_some(())).await;
    };
    waits("0 of 2 addons have it, and not yet: spoke1/telemetry, spoke2/telemetry").await;
    running.stop().await;
    if hub.is_real() {
        let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
        bindings.delete("addon-signer-manifest-works", &DeleteParams::default()).await.unwrap();
    } else {
        let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
        crds.delete("manifestworks.work.open-cluster-management.io", &DeleteParams::default()).await.unwrap();
    }
    let running = RunningHub::start(&hub).await;
    waits("the ManifestWorks to be read").await;
    wait_condition(&admin, "the condition to stay", |it| it.is_some()).await;
    running.stop().await;
}
