//! The trust bundle reaches the pods of the hub cluster by a ClusterTrustBundle: v1 on the stand-in, v1beta1 on a real
//! API server of Kubernetes 1.36.

use addon_signer_api::AddOnSigner;
use addon_signer_api::cluster_trust_bundle::{ClusterTrustBundle, TRUST_BUNDLE, resource};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::watch_object;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::distribution::mk_world;
use test_kit::deploy::{apply, documented, part};
use test_kit::hub::{RunningHub, TIMEOUT, change_signer, create_signer, telemetry, wait_ready};
use test_kit::log::capture;
use test_kit::objects::serve;
use test_kit::{TestHub, wait_until};

/// Whether the API server has them in a version that the hub uses: not before Kubernetes 1.33.
pub(super) async fn are_served(hub: &TestHub, admin: &Client) -> bool {
    let served = admin.list_api_group_resources("certificates.k8s.io/v1beta1").await;
    let served = served.is_ok_and(|list| list.resources.iter().any(|served| served.name == "clustertrustbundles"));
    if hub.is_real() && !served {
        eprintln!("skipped: this API server has no ClusterTrustBundles");
    }
    !hub.is_real() || served
}

pub(super) fn bundles(hub: &TestHub, admin: &Client) -> Api<ClusterTrustBundle> {
    Api::all_with(admin.clone(), &resource(if hub.is_real() { "v1beta1" } else { "v1" }))
}

/// Waits until the ClusterTrustBundle has the anchors that the hub's ConfigMap has, and there are so many.
async fn wait_anchors(bundles: &Api<ClusterTrustBundle>, what: &str, count: usize) -> ClusterTrustBundle {
    let maps: Api<ConfigMap> = Api::namespaced(bundles.clone().into_client(), "addon-signer");
    wait_until(TIMEOUT, what, async || {
        let published = maps.get_opt("addon-signer-trust").await.unwrap()?.data?.remove("ca.crt")?;
        let bundle = bundles.get_opt(TRUST_BUNDLE).await.unwrap()?;
        let is_it = bundle.spec.trust_bundle == published && published.matches("BEGIN CERTIFICATE").count() == count;
        is_it.then_some(bundle)
    })
    .await
}

/// On a real API server only: the documented volume names it.
async fn check_documented_volume(hub: &TestHub, admin: &Client) {
    let mut spec: Value = serde_saphyr::from_str(&documented("docs/trust.md", "clusterTrustBundle:")).unwrap();
    assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["clusterTrustBundle"]["name"], TRUST_BUNDLE);
    if hub.is_real() {
        let volumes = spec["volumes"].clone();
        spec["containers"] = json!([{ "name": "agent", "image": "agent" }]);
        let pod = serde_json::from_value(json!({ "metadata": { "name": "agent" }, "spec": spec })).unwrap();
        let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
        let dry_run = PostParams { dry_run: true, field_manager: None };
        let made = pods.create(&dry_run, &pod).await.unwrap();
        let source = |volumes: &Value| volumes[0]["projected"]["sources"][0].clone();
        assert_eq!(source(&json!(made.spec.unwrap().volumes)), source(&volumes));
    }
}

/// The reason of the condition about it, if there is one; `None` while there are no conditions at all.
async fn reported(admin: &Client, signer: &str) -> Option<Option<String>> {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let conditions = signers.get(signer).await.unwrap().status?.conditions;
    let reported = conditions.iter().find(|condition| condition.type_ == "TrustPublished");
    (!conditions.is_empty()).then(|| reported.map(|reported| reported.reason.clone()))
}

async fn wait_condition(admin: &Client, what: &str, expected: Option<&str>) {
    wait_until(TIMEOUT, what, async || (reported(admin, "telemetry").await?.as_deref() == expected).then_some(()))
        .await;
}

/// Undoes each write of the hub at once, for ever.
async fn undo(bundles: Api<ClusterTrustBundle>) {
    let others = include_str!("../../../certs/profiles/client-ca.pem");
    let edit = Patch::Merge(json!({ "spec": { "trustBundle": others } }));
    let mut seen = watch_object(bundles.clone(), TRUST_BUNDLE).boxed();
    while let Some(event) = seen.next().await {
        if event.is_ok_and(|found| found.is_some_and(|found| found.spec.trust_bundle != others)) {
            bundles.patch(TRUST_BUNDLE, &PatchParams::default(), &edit).await.unwrap();
        }
    }
}

#[tokio::test]
async fn somebody_who_keeps_changing_the_anchors_of_pods_is_said() {
    let hub = TestHub::start().await;
    let admin = mk_world(&hub, telemetry()).await;
    if !are_served(&hub, &admin).await {
        return;
    }
    if hub.is_real() {
        apply(&admin, &part("cluster-trust-bundle")).await;
    } else {
        serve(&admin, "clustertrustbundles.certificates.k8s.io").await;
    }
    let _running = RunningHub::start(&hub).await;
    let bundles = bundles(&hub, &admin);
    wait_anchors(&bundles, "the ClusterTrustBundle", 1).await;
    wait_condition(&admin, "the condition", Some("Published")).await;
    let is_reported = async || (reported(&admin, "telemetry").await?.as_deref() == Some("NotPublished")).then_some(());
    tokio::select! {
        () = undo(bundles) => panic!("the watch ended"),
        // The hub puts it back after 1, 2, 4 and 8 seconds before it believes that this is no single edit.
        () = wait_until(2 * TIMEOUT, "the condition to say that somebody changes it", is_reported) => {}
    }
}

/// A hub without the right, or without the API, says so and works. Then the hub gets what it lacks.
async fn allow(hub: &TestHub, admin: &Client) {
    let (log, capturing) = capture("addon_signer=info");
    let running = RunningHub::start(hub).await;
    let count = || log.text().matches("The hub publishes no ClusterTrustBundle").count();
    wait_until(TIMEOUT, "the hub to say what it lacks", async || (count() > 0).then_some(())).await;
    wait_ready(admin, "telemetry", "True").await;
    running.stop().await;
    assert_eq!(count(), 1);
    drop(capturing);
    if hub.is_real() {
        assert!(bundles(hub, admin).get_opt(TRUST_BUNDLE).await.unwrap().is_none()); // also where there are none
        apply(admin, &part("cluster-trust-bundle")).await;
    } else {
        serve(admin, "clustertrustbundles.certificates.k8s.io").await;
    }
}

#[tokio::test]
async fn pods_on_hub_cluster_get_current_anchors_while_wanted() {
    let hub = TestHub::start().await;
    let admin = mk_world(&hub, telemetry()).await;
    let other = json!({ "signerName": "example.com/other", "addOns": ["other"],
                        "trust": { "clusterTrustBundle": "Never" } });
    create_signer(&admin, "other", other).await;
    allow(&hub, &admin).await;
    if !are_served(&hub, &admin).await {
        return;
    }
    let running = RunningHub::start(&hub).await;
    let bundles = bundles(&hub, &admin);
    let before = wait_anchors(&bundles, "the ClusterTrustBundle", 1).await;
    assert_eq!(before.spec.signer_name.as_deref(), Some("addon-signer.io/gateway-serving"));
    wait_condition(&admin, "the condition", Some("Published")).await;
    assert_eq!(reported(&admin, "other").await, Some(None), "it does not want it");
    check_documented_volume(&hub, &admin).await;

    let rotate = json!({ "metadata": { "annotations": { "addon-signer.io/rotate": "now" } } });
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    maps.patch("addon-signer-trust", &PatchParams::default(), &Patch::Merge(&rotate)).await.unwrap();
    wait_anchors(&bundles, "both anchors while the next authority waits for the clusters", 2).await;

    let edit = json!({ "metadata": { "labels": { "a": "b" } }, "spec": before.spec });
    bundles.patch(TRUST_BUNDLE, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    let mended = wait_anchors(&bundles, "an edit to be undone", 2).await;
    assert_eq!(mended.labels()["a"], "b", "what others add stays");
    bundles.delete(TRUST_BUNDLE, &DeleteParams::default()).await.unwrap();
    let again = wait_anchors(&bundles, "a deleted one to come back", 2).await;
    assert_ne!(again.uid(), before.uid());
    running.stop().await;

    // When the next hub says it again, it has looked; what is right stays as it is.
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let forget = Patch::Merge(json!({ "status": { "conditions": [] } }));
    signers.patch_status("telemetry", &PatchParams::default(), &forget).await.unwrap();
    let running = RunningHub::start(&hub).await;
    wait_condition(&admin, "the condition of the next hub", Some("Published")).await;
    let known = bundles.get(TRUST_BUNDLE).await.unwrap();
    assert_eq!(known.resource_version(), again.resource_version());

    change_signer(&admin, json!({ "spec": { "trust": { "clusterTrustBundle": "Never" } } })).await;
    wait_until(TIMEOUT, "the ClusterTrustBundle to go", async || {
        bundles.get_opt(TRUST_BUNDLE).await.unwrap().is_none().then_some(())
    })
    .await;
    wait_condition(&admin, "no condition", None).await;
    running.stop().await;
}
