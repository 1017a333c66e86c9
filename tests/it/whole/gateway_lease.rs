//! The Lease of a gateway apart: it has one holder, it ends with the gateway, and it shows a restore of etcd.

use addon_signer::process::HubOptions;
use addon_signer::process::registry_age::AgeBounds;
use addon_signer_platform::clock::Clock;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::silence::OUTDATED;
use super::split::{gateway_options, ready, report, start_gateway, start_signer};
use super::{Whole, prepare};
use test_kit::gateways::{deploy_gateways, gateway_pod};
use test_kit::hub::TIMEOUT;
use test_kit::lease::leases;
use test_kit::{TestHub, wait_until};

#[tokio::test]
async fn second_gateway_of_one_name_ends_the_first() {
    let hub = TestHub::start().await;
    let _admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    deploy_gateways(&hub).await;
    let signer = start_signer(&hub, "signer-1").await;
    let pod = gateway_pod(&hub, "gateway-1").await;
    let client = pod.client().await;
    let start = || Whole::start_with(client.clone(), gateway_options("gateway-1", &pod), Clock::default());
    let first = start().await;
    ready(&first).await;
    let second = start().await;
    ready(&second).await;
    let ended = format!("{:#}", first.ended().await.unwrap_err());
    assert!(ended.contains("holds the Lease gateway-1 now: each gateway needs a --replica of its own"), "{ended}");
    second.stop().await.unwrap();
    signer.stop().await.unwrap();
}

/// Its watches see nothing of what a restore has undone.
#[tokio::test]
async fn gateway_whose_etcd_was_restored_under_it_ends() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    if hub.back_up().is_none() {
        return; // a real etcd is shared with other tests
    }
    let signer = start_signer(&hub, "signer-1").await;
    let pod = gateway_pod(&hub, "gateway-1").await;
    // It renews its Lease three times in this bound.
    let registry_age = AgeBounds { outdated: Some(OUTDATED), ..AgeBounds::default() };
    let options = HubOptions { registry_age, ..gateway_options("gateway-1", &pod) };
    let gateway = Whole::start_with(pod.client().await, options, Clock::default()).await;
    let version = async || leases(&admin).get_opt("gateway-1").await.unwrap()?.metadata.resource_version;
    wait_until(TIMEOUT, "the Lease", version).await;
    let backup = hub.back_up().unwrap();
    let before = version().await.unwrap();
    wait_until(TIMEOUT, "a renewal", async || (version().await? != before).then_some(())).await;
    signer.stop().await.unwrap();
    hub.restore(backup);
    let ended = format!("{:#}", gateway.ended().await.unwrap_err());
    assert!(ended.contains("the gateway must read everything again"), "{ended}");
}

/// A renewal that the stop has interrupted may have arrived.
#[tokio::test]
async fn farewell_counts_although_the_lease_has_changed() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    deploy_gateways(&hub).await;
    let signer = start_signer(&hub, "signer-1").await;
    let gateway = start_gateway(&hub, "gateway-1").await;
    let change = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/changed": "meanwhile" } } }));
    leases(&admin).patch("gateway-1", &PatchParams::default(), &change).await.unwrap();
    gateway.stop().await.unwrap();
    assert_eq!(report(&admin, "gateway-1").await.unwrap().0, "", "it says that it has ended");
    signer.stop().await.unwrap();
}
