//! OCM's own work agent brings the trust bundle to a managed cluster, beside OCM's registration agent and its
//! addon-manager.

use std::time::Duration;

use addon_signer_api::AddOnSigner;
use addon_signer_api::ocm::ADDON_GROUP;
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::gateway::backend;
use crate::hub::distribution::APPLIED_FOR;
use crate::whole::{Whole, prepare, serving_anchors};
use addon_signer_core::names::ANNOTATION_ROTATE;
use test_kit::deploy::{apply, part};
use test_kit::hub::change_signer;
use test_kit::objects::{create_namespace, managed_cluster_addons};
use test_kit::ocm::{ADDON_NAMESPACE, OcmAgent, Spoke};
use test_kit::programs::start_addon_manager;
use test_kit::wait::wait_or_explain;
use test_kit::{TestHub, install_addon, wait_until};

/// The longest name of an addon, from which hub and OCM derive longer names.
const LONGEST: &str = "the-addon-whose-name-is-as-long-as-a-label-of-kubernetes-may-be";
const TIMEOUT: Duration = Duration::from_secs(120);

/// What the hub says of the distribution.
async fn reported(admin: &Client) -> Option<Condition> {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let conditions = signers.get("telemetry").await.unwrap().status?.conditions;
    conditions.into_iter().find(|condition| condition.type_ == "TrustDistributed")
}

async fn wait_reported(admin: &Client, sentence: &str) -> Condition {
    wait_until(TIMEOUT, sentence, async || reported(admin).await.filter(|reported| reported.message.contains(sentence)))
        .await
}

/// A cluster without the namespace of one addon, and with another addon whose agent runs elsewhere. Its work agent goes
/// away before the gateway's authority is replaced, as if the cluster was off for long, and comes back.
#[tokio::test]
async fn unready_or_absent_cluster_is_named_until_it_has_anchors() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let admin = prepare(&hub, backend::start().await, "24h").await;
    change_signer(&admin, json!({ "spec": { "addOns": ["telemetry", "elsewhere", "hosted"] } })).await;
    apply(&admin, &part("manifest-works")).await;
    let clock = Clock::default();
    let whole = Whole::start(&hub, clock.clone()).await;
    let server = real.server("127.0.0.1");
    let spoke = Spoke { hub: real, own: real, cluster: "spoke1", agent_id: "a1", server };
    let agent = OcmAgent::join(&spoke).await;
    let work_agent = agent.start_work_agent(&spoke);
    install_addon(&admin, "spoke1", "telemetry").await;
    let addons = managed_cluster_addons(&admin, "spoke1").await;
    let elsewhere = json!({ "metadata": { "name": "elsewhere" }, "spec": { "installNamespace": "not-there" } });
    let hosting = json!({ "addon.open-cluster-management.io/hosting-cluster-name": "another" });
    let hosted = json!({ "metadata": { "name": "hosted", "annotations": hosting }, "spec": {} });
    for mut addon in [elsewhere, hosted] {
        (addon["apiVersion"], addon["kind"]) = (format!("{ADDON_GROUP}/v1alpha1").into(), "ManagedClusterAddOn".into());
        addons.create(&PostParams::default(), &serde_json::from_value(addon).unwrap()).await.unwrap();
    }
    let text =
        wait_reported(&admin, "1 of 3 addons on clusters have the present bundle. Not yet: spoke1/elsewhere,").await;
    assert!(text.reason == "Distributing", "{text:?}");
    assert!(text.message.contains("1 get none, because"), "{text:?}");
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    assert!(namespaces.get_opt("not-there").await.unwrap().is_none(), "nobody makes it");
    create_namespace(&admin, "not-there").await;
    let text =
        wait_reported(&admin, "2 of 3 addons on clusters have the present bundle. Not yet: spoke1/hosted.").await;
    assert_eq!(text.reason, "Placeless");
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "not-there");
    assert!(maps.get_opt("elsewhere-hub-trust").await.unwrap().is_some());

    drop(work_agent);
    let rotate = Patch::Merge(json!({ "metadata": { "annotations": { ANNOTATION_ROTATE: "a test" } } }));
    let hubs: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    hubs.patch("addon-signer-trust", &PatchParams::default(), &rotate).await.unwrap();
    let report = async || hubs.get("addon-signer-trust").await.unwrap().data.unwrap()["status.json"].clone();
    let waits = "0 of 3 addons have it, and not yet: spoke1/elsewhere, spoke1/telemetry";
    wait_until(TIMEOUT, "the rotation to wait", async || report().await.contains(waits).then_some(())).await;
    clock.advance(APPLIED_FOR);
    wait_reported(&admin, "0 of 3 addons on clusters have the present bundle").await;
    assert!(report().await.contains("\"Next\""), "time alone is no evidence");
    let _back = agent.start_work_agent(&spoke);
    wait_reported(&admin, "2 of 3 addons on clusters have the present bundle").await;
    let data = maps.get("elsewhere-hub-trust").await.unwrap().data.unwrap();
    assert_eq!(data["ca.crt"].matches("BEGIN CERTIFICATE").count(), 2);
    clock.advance(APPLIED_FOR);
    // Nobody knows what the agent has that runs elsewhere.
    let waits = "because no ManifestWork brings it to spoke1/hosted";
    let alone = async || Some(report().await).filter(|report| report.contains(waits) && !report.contains("elsewhere"));
    wait_until(TIMEOUT, "the rotation to wait for that agent alone", alone).await;
    whole.stop().await.unwrap();
}

#[tokio::test]
async fn work_agent_brings_bundle_and_removes_it_with_the_addon() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let admin = prepare(&hub, backend::start().await, "24h").await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    change_signer(&admin, json!({ "spec": { "addOns": ["telemetry", LONGEST] } })).await;
    apply(&admin, &part("manifest-works")).await;
    let whole = Whole::start(&hub, Clock::default()).await;
    let server = real.server("127.0.0.1");
    let spoke = Spoke { hub: real, own: real, cluster: "spoke1", agent_id: "a1", server };
    let agent = OcmAgent::join(&spoke).await;
    let work_agent = agent.start_work_agent(&spoke);
    let _addon_manager = start_addon_manager(real).await;
    for addon in ["telemetry", LONGEST] {
        install_addon(&admin, "spoke1", addon).await;
    }

    let bundle = serving_anchors(&admin).await;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    let has_bundle = async |addon: &str| {
        let data = maps.get_opt(&format!("{addon}-hub-trust")).await.unwrap()?.data?;
        (data.len() == 1 && data.get("ca.crt") == Some(&bundle)).then_some(())
    };
    for addon in ["telemetry", LONGEST] {
        let what = format!("the ConfigMap of {addon} on the cluster");
        wait_or_explain(TIMEOUT, &what, async || has_bundle(addon).await, || work_agent.tail()).await;
        wait_until(TIMEOUT, &format!("the Secret of {addon}"), async || {
            let secret = secrets.get_opt(&format!("{addon}-example.com-telemetry-client-cert")).await.unwrap()?;
            secret.data?.get("tls.crt").map(drop)
        })
        .await;
    }
    wait_until(TIMEOUT, "the condition", async || {
        let conditions = signers.get("telemetry").await.unwrap().status?.conditions;
        let reported = conditions.into_iter().find(|condition| condition.type_ == "TrustDistributed")?;
        (reported.status == "True").then_some(())
    })
    .await;

    let other = Patch::Merge(json!({ "data": { "ca.crt": "x" } }));
    maps.patch("telemetry-hub-trust", &PatchParams::default(), &other).await.unwrap();
    maps.delete(&format!("{LONGEST}-hub-trust"), &DeleteParams::default()).await.unwrap();
    // OCM's work agent looks at what it has applied when it starts, and then every four to six minutes (its
    // `manifestcontroller`).
    drop(work_agent);
    let _work_agent = agent.start_work_agent(&spoke);
    for addon in ["telemetry", LONGEST] {
        wait_until(TIMEOUT, &format!("the ConfigMap of {addon} to come back"), async || has_bundle(addon).await).await;
    }

    managed_cluster_addons(&admin, "spoke1").await.delete("telemetry", &DeleteParams::default()).await.unwrap();
    wait_until(TIMEOUT, "the ConfigMap to go with the addon", async || {
        maps.get_opt("telemetry-hub-trust").await.unwrap().is_none().then_some(())
    })
    .await;
    whole.stop().await.unwrap();
}
