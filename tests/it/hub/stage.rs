//! Sets up a hub as a fixture of the corpus describes it.

use addon_signer_core::registry::NotRegistered;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::requests::Fixture;
use test_kit::hub::{RunningHub, TIMEOUT, change_signer_seen};
use test_kit::objects::{create_namespace, managed_cluster_addons, managed_clusters};
use test_kit::{accept_cluster, install_addon, wait_until};

/// Why a fixture cannot be made on an API server.
pub(super) fn unstageable(fixture: Fixture) -> Option<&'static str> {
    match fixture {
        Fixture::AddonUnreadable => Some("nothing that an API server stores is read as unreadable"),
        Fixture::ClusterRemade => Some("the CSR comes after the cluster here; `hub::requests` has the reverse"),
        Fixture::NotReady => Some("lasts milliseconds, and then the CSR gets another answer"),
        _ => None,
    }
}

/// Sets up cluster, addon and signer, and waits until the hub has seen them.
pub(super) async fn stage(admin: &Client, running: &RunningHub, fixture: Fixture) {
    let clusters = managed_clusters(admin);
    let addons = managed_cluster_addons(admin, "spoke1").await;
    create_namespace(admin, "spoke1").await;
    remove(&clusters, "spoke1").await;
    remove(&addons, "telemetry").await;
    accept_cluster(admin, "spoke1").await;
    install_addon(admin, "spoke1", "telemetry").await;
    let expected = match fixture {
        Fixture::ClusterUnknown => {
            remove(&clusters, "spoke1").await;
            Err(NotRegistered::ClusterUnknown)
        }
        Fixture::ClusterNotAccepted => {
            merge(&clusters, "spoke1", json!({"spec": {"hubAcceptsClient": false}})).await;
            Err(NotRegistered::ClusterNotAccepted)
        }
        Fixture::ClusterDeleting => {
            linger(&clusters, "spoke1").await;
            Err(NotRegistered::ClusterDeleting)
        }
        Fixture::AddonNotInstalled => {
            remove(&addons, "telemetry").await;
            Err(NotRegistered::AddOnUnknown)
        }
        Fixture::AddonDeleting => {
            linger(&addons, "telemetry").await;
            Err(NotRegistered::AddOnDeleting)
        }
        Fixture::AddonSuspended => {
            let suspended = json!({"metadata": {"annotations": {"addon-signer.io/suspended": "true"}}});
            merge(&addons, "telemetry", suspended).await;
            Err(NotRegistered::AddOnSuspended)
        }
        _ => Ok(()),
    };
    configure(admin, fixture).await;
    let cluster = "spoke1".parse().unwrap();
    let addon = "telemetry".parse().unwrap();
    wait_until(TIMEOUT, &format!("the hub to see {fixture:?}"), async || {
        running.registry.read(|registry| (registry.check(&cluster, &addon) == expected).then_some(()))
    })
    .await;
}

/// Configures the signer as the fixture wants it, and waits until that is in effect.
async fn configure(admin: &Client, fixture: Fixture) {
    let keys = match fixture {
        Fixture::EcdsaP256Only => json!(["ECDSA-P256"]),
        _ => json!(["ECDSA-P256", "ECDSA-P384", "Ed25519", "RSA-2048", "RSA-3072", "RSA-4096"]),
    };
    let units = if fixture == Fixture::UnitEdge { json!(["edge"]) } else { json!([]) };
    let requesters = if fixture == Fixture::AddonRequester { json!(["Cluster", "AddOn"]) } else { json!(["Cluster"]) };
    let identity = json!({"organizationalUnits": units, "requesters": requesters});
    let spec = json!({"spec": {"certificate": {"keys": keys}, "identity": identity}});
    change_signer_seen(admin, spec).await;
}

async fn merge(api: &Api<DynamicObject>, name: &str, change: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}

/// Deletes the object, which stays because of a finalizer.
async fn linger(api: &Api<DynamicObject>, name: &str) {
    merge(api, name, json!({"metadata": {"finalizers": ["example.com/stay"]}})).await;
    api.delete(name, &Default::default()).await.unwrap();
}

/// Deletes the object and its finalizers.
async fn remove(api: &Api<DynamicObject>, name: &str) {
    if api.get_opt(name).await.unwrap().is_none() {
        return;
    }
    merge(api, name, json!({"metadata": {"finalizers": null}})).await;
    if api.get_opt(name).await.unwrap().is_some() {
        api.delete(name, &Default::default()).await.unwrap();
    }
}
