//! A cluster that goes silent has its addons removed and made again by OCM. That undoes no revocation.

use std::time::Duration;

use addon_signer_platform::clock::Clock;
use hyper::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::agent::{SECRET, pair, revoke};
use crate::gateway::backend;
use crate::whole::{Whole, prepare, serving_anchors};
use test_kit::deploy::apply;
use test_kit::objects::{create_namespace, managed_cluster_addons, managed_clusters};
use test_kit::ocm::{ADDON_NAMESPACE, OcmAgent};
use test_kit::programs::start_controller;
use test_kit::real::assets;
use test_kit::{TestHub, crds, wait_until};

const SETTINGS: &str = "open-cluster-management";
const TIMEOUT: Duration = Duration::from_secs(180);
/// The agent renews its Lease as often, and OCM takes the cluster for unreachable after five times as long.
const LEASE: u32 = 3;

/// Places the addon telemetry on every cluster that can be reached.
async fn place(admin: &Client) {
    create_namespace(admin, SETTINGS).await;
    let addon = json!({
        "apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ClusterManagementAddOn",
        "metadata": {
            "name": "telemetry", "annotations": { "addon.open-cluster-management.io/lifecycle": "addon-manager" },
        },
        "spec": { "installStrategy": {
            "type": "Placements", "placements": [{ "name": "all", "namespace": SETTINGS }],
        } },
    });
    let placement = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": { "name": "all", "namespace": SETTINGS }, "spec": { "clusterSets": ["global"] },
    });
    let binding = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
        "metadata": { "name": "global", "namespace": SETTINGS }, "spec": { "clusterSet": "global" },
    });
    apply(admin, &[addon, placement, binding]).await;
}

fn is_unreachable(cluster: &Value) -> bool {
    let taints = cluster["spec"]["taints"].as_array();
    taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == "cluster.open-cluster-management.io/unreachable"))
}

#[tokio::test]
async fn silent_cluster_whose_addon_is_recreated_stays_revoked() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let admin = prepare(&hub, backend::start().await, "24h").await;
    crds::install_placements(&admin, &assets().unwrap()).await;
    let whole = Whole::start(&hub, Clock::default()).await;
    let mut programs = Vec::new();
    for name in ["registration-controller", "placement-controller", "addon-manager"] {
        programs.push(start_controller(real, name).await);
    }
    let agent = OcmAgent::start(real, "spoke1", "a1").await;
    let clusters = managed_clusters(&admin);
    let often = Patch::Merge(json!({ "spec": { "leaseDurationSeconds": LEASE } }));
    clusters.patch("spoke1", &PatchParams::default(), &often).await.unwrap();
    place(&admin).await;

    let anchors = serving_anchors(&admin).await;
    let revoked = agent.wait_until(TIMEOUT, "the agent's Secret", async || pair(&admin, &anchors).await).await;
    let call =
        async || revoked.call(whole.gateway, Method::GET, "/v1/whoami").await.ok().map(|(status, _)| status.as_u16());
    assert_eq!(call().await, Some(200));
    revoke(&admin, Clock::default().now().plus(Duration::from_secs(1))).await;
    wait_until(TIMEOUT, "the gateway to refuse it", async || (call().await? == 403).then_some(())).await;

    let addons = managed_cluster_addons(&admin, "spoke1").await;
    let first = addons.get("telemetry").await.unwrap().uid();
    drop(agent);
    wait_until(TIMEOUT, "OCM to take the addon away", async || {
        let silent = is_unreachable(&serde_json::to_value(clusters.get("spoke1").await.unwrap()).unwrap());
        (silent && addons.get_opt("telemetry").await.unwrap().is_none()).then_some(())
    })
    .await;
    let agent = OcmAgent::restart(real, "spoke1", "a1");
    let anew = async || addons.get_opt("telemetry").await.unwrap().filter(|addon| addon.uid() != first);
    let anew = agent.wait_until(TIMEOUT, "OCM to make it anew", anew).await;
    assert!(!anew.annotations().contains_key("addon-signer.io/revoke-before"), "{anew:?}");
    let registered = async || {
        let addon = addons.get("telemetry").await.unwrap();
        (addon.data["status"]["registrations"][0]["signerName"] == "example.com/telemetry").then_some(())
    };
    agent.wait_until(TIMEOUT, "the hub to have seen it", registered).await;
    assert_eq!(call().await, Some(403));

    // OCM's agent did not see that its addon was away, so it keeps its Secret until somebody deletes that.
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    assert_eq!(pair(&admin, &anchors).await.unwrap().certificate, revoked.certificate);
    secrets.delete(SECRET, &Default::default()).await.unwrap();
    let another = async || pair(&admin, &anchors).await.filter(|pair| pair.certificate != revoked.certificate);
    let another = agent.wait_until(TIMEOUT, "another certificate", another).await;
    assert_eq!(another.call(whole.gateway, Method::GET, "/v1/whoami").await.unwrap().0, 200);
    assert_eq!(call().await, Some(403));
    whole.stop().await.unwrap();
}
