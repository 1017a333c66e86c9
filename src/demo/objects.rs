//! What the demonstration creates on the stand-in.

use std::net::SocketAddr;

use anyhow::Context;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{ADDON, BACKENDS, SIGNER};
use addon_signer_api::ocm::{AddOnApi, managed_cluster_resource};
use addon_signer_api::{AddOnRoute, AddOnSigner};

pub(super) async fn accept(admin: &Client, cluster: &str) -> anyhow::Result<()> {
    let clusters = Api::<DynamicObject>::all_with(admin.clone(), &managed_cluster_resource());
    let mut object = DynamicObject::new(cluster, &managed_cluster_resource());
    object.data = json!({ "spec": { "hubAcceptsClient": true } });
    clusters.create(&PostParams::default(), &object).await?;
    create_namespace(admin, cluster).await?;
    let resource = AddOnApi::V1Alpha1.resource();
    let addons = Api::<DynamicObject>::namespaced_with(admin.clone(), cluster, &resource);
    let mut addon = DynamicObject::new(ADDON, &resource).within(cluster);
    addon.data = json!({ "spec": {} });
    addons.create(&PostParams::default(), &addon).await?;
    Ok(())
}

pub(super) async fn create_namespace(admin: &Client, name: &str) -> anyhow::Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
    Ok(())
}

/// Puts the chart's policy for the trust bundle on CSRs in force.
pub(super) async fn protect_trust_bundle(admin: &Client) -> anyhow::Result<()> {
    let text = include_str!("../../deploy/chart/files/trust-bundle-policy.yaml");
    for object in serde_saphyr::from_multiple::<Value>(text)? {
        let object: DynamicObject = serde_json::from_value(object)?;
        let kind = object.types.as_ref().map(GroupVersionKind::try_from).context("no kind")??;
        let api: Api<DynamicObject> = Api::all_with(admin.clone(), &ApiResource::from_gvk(&kind));
        api.create(&PostParams::default(), &object).await?;
    }
    Ok(())
}

pub(super) async fn create_signer(admin: &Client) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "addon-signer.io/v1alpha1",
        "kind": "AddOnSigner",
        "metadata": { "name": ADDON },
        "spec": {
            "signerName": SIGNER,
            "addOns": [ADDON],
            "gateway": { "routesFrom": { "namespaces": [BACKENDS] } },
        },
    });
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    signers.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

pub(super) async fn create_route(
    admin: &Client,
    name: &str,
    matching: Value,
    backend: SocketAddr,
) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "addon-signer.io/v1alpha1",
        "kind": "AddOnRoute",
        "metadata": { "name": name, "namespace": BACKENDS },
        "spec": {
            "signer": ADDON,
            "match": matching,
            "backend": { "address": backend.to_string() },
        },
    });
    let routes: Api<AddOnRoute> = Api::namespaced(admin.clone(), BACKENDS);
    routes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}
