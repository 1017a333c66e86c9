//! Tests of the hub that every other test starts: the stand-in or a real one.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use test_kit::objects::{managed_cluster_addons, managed_clusters};
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

#[tokio::test]
async fn api_server_goes_away_and_comes_back_with_its_state() {
    let hub = TestHub::start().await;
    let admin = hub.admin().await;
    accept_cluster(&admin, "cluster1").await;
    install_addon(&admin, "cluster1", "telemetry").await;

    hub.pause().await;
    admin.apiserver_version().await.expect_err("the API server is gone");
    hub.resume().await;

    wait_until(Duration::from_secs(5), "the old client to get through", async || admin.apiserver_version().await.ok())
        .await;
    let clusters = managed_clusters(&admin);
    let cluster = clusters.get("cluster1").await.unwrap();
    assert_eq!(cluster.data["spec"]["hubAcceptsClient"], json!(true));
    let addons = managed_cluster_addons(&admin, "cluster1").await;
    addons.get("telemetry").await.unwrap();
}

/// A real API server may have been another test's before.
#[tokio::test]
async fn a_hub_has_nothing_of_the_test_before() {
    let _other = TestHub::start().await; // so that an API server which nobody uses is kept
    let before = TestHub::start().await;
    let admin = before.admin().await;
    accept_cluster(&admin, "cluster1").await;
    install_addon(&admin, "cluster1", "telemetry").await;
    drop(before);

    let hub = TestHub::start().await;
    let admin = hub.admin().await;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    assert!(namespaces.get_opt("cluster1").await.unwrap().is_none());
    assert!(managed_clusters(&admin).list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn api_server_recognises_the_user_of_a_kubeconfig() {
    let hub = TestHub::start().await;
    let agent = hub.as_cluster_agent("cluster1", "a1").await;
    let review = Api::<SelfSubjectReview>::all(agent)
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.unwrap(), "system:open-cluster-management:cluster1:a1");
    let expected = [
        "system:open-cluster-management:cluster1",
        "system:open-cluster-management:managed-clusters",
        "system:authenticated",
    ];
    assert_eq!(user.groups.unwrap(), expected);
}
