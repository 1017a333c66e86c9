//! Tests of the hub that every other test starts: the stand-in or a real one.

use std::env;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;

use test_kit::needed::{Needed, has};
use test_kit::objects::managed_clusters;
use test_kit::{TestHub, accept_cluster, install_addon, real};

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
async fn real_hub_is_the_kubernetes_that_was_built() {
    if !has(Needed::ApiServer, real::assets().is_some()) {
        return;
    }
    let version = TestHub::start().await.admin().await.apiserver_version().await.unwrap();
    // tests/real/versions.sh names the one that it built.
    let built = env::var("ADDON_SIGNER_TESTS_KUBERNETES").unwrap_or_else(|_| "v1.36.1".to_owned());
    assert_eq!(version.git_version, built);
}
