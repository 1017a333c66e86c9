//! The real parts behave as the other tests expect. These tests need `KUBEBUILDER_ASSETS` (tests/real/README.md) and
//! pass at once without it.

use std::env;
use std::time::{Duration, Instant};

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use test_kit::needed::{Needed, has};
use test_kit::objects::managed_cluster_addons;
use test_kit::ocm::{ADDON_NAMESPACE, OcmAgent};
use test_kit::{AddOnApi, TestHub, accept_cluster, install_addon, real};

const SIGNER: &str = "example.com/telemetry";

fn real_parts_are_there() -> bool {
    has(Needed::ApiServer, real::assets().is_some())
}

#[tokio::test]
async fn real_hub_is_the_kubernetes_that_was_built() {
    if !real_parts_are_there() {
        return;
    }
    let started = Instant::now();
    let hub = TestHub::start().await;
    eprintln!("hub ready after {:?}", started.elapsed());
    assert!(hub.is_real());
    let version = hub.admin().await.apiserver_version().await.unwrap();
    // tests/real/versions.sh names the one that it built.
    let built = env::var("ADDON_SIGNER_TESTS_KUBERNETES").unwrap_or_else(|_| "v1.36.1".to_owned());
    assert_eq!(version.git_version, built);
}

#[tokio::test]
async fn rights_of_a_cluster_agent_end_where_ocm_ends_them() {
    if !real_parts_are_there() {
        return;
    }
    let hub = TestHub::start_with(AddOnApi::V1beta1).await;
    let admin = hub.admin().await;
    accept_cluster(&admin, "cluster1").await;
    install_addon(&admin, "cluster1", "telemetry").await;

    let agent = hub.as_cluster_agent("cluster1", "a1").await;
    let addons = managed_cluster_addons(&admin, "cluster1").await;
    assert_eq!(
        addons.get("telemetry").await.unwrap().types.unwrap().api_version,
        "addon.open-cluster-management.io/v1beta1"
    );
    let requests: Api<CertificateSigningRequest> = Api::all(agent.clone());
    requests.list(&ListParams::default()).await.unwrap();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(agent, "cluster1");
    let refused = secrets.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
}

#[tokio::test]
async fn ocm_agent_joins_and_asks_for_the_registered_certificate() {
    if !real_parts_are_there() {
        return;
    }
    let hub = TestHub::start().await;
    let started = Instant::now();
    let agent = OcmAgent::start(hub.real().unwrap(), "cluster1", "a1").await;
    eprintln!("OCM agent joined after {:?}", started.elapsed());

    let admin = hub.admin().await;
    install_addon(&admin, "cluster1", "telemetry").await;
    let addons = managed_cluster_addons(&admin, "cluster1").await;
    let registered = json!({ "status": { "namespace": ADDON_NAMESPACE, "registrations": [{
        "signerName": SIGNER,
        "subject": {
            "user": "system:open-cluster-management:cluster:cluster1:addon:telemetry:agent:a1",
            "groups": ["system:open-cluster-management:cluster:cluster1:addon:telemetry",
                       "system:open-cluster-management:addon:telemetry"],
        },
    }]}});
    let merge = Patch::Merge(&registered);
    addons.patch_status("telemetry", &PatchParams::default(), &merge).await.unwrap();

    let registered_at = Instant::now();
    let requests: Api<CertificateSigningRequest> = Api::all(admin);
    let labels = "open-cluster-management.io/cluster-name=cluster1,open-cluster-management.io/addon-name=telemetry";
    let request = agent
        .wait_until(Duration::from_secs(30), "the agent's request for the addon", async || {
            requests.list(&ListParams::default().labels(labels)).await.unwrap().items.pop()
        })
        .await;
    eprintln!("addon request after {:?}", registered_at.elapsed());
    assert_eq!(request.spec.signer_name, SIGNER);
    assert_eq!(request.spec.usages.unwrap(), ["digital signature", "key encipherment", "client auth"]);
    assert_eq!(request.spec.username.unwrap(), "system:open-cluster-management:cluster1:a1");
}
