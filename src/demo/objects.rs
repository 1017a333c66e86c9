//! What the demonstration creates on the stand-in, and finds in the ledger at its end, as an auditor would.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, PostParams};
use kube::{Api, Client, CustomResourceExt};
use serde_json::{Value, json};

use super::{ADDON, BACKENDS, SIGNER};
use addon_signer_api::ocm::{AddOnApi, managed_cluster_resource};
use addon_signer_api::{AddOnRoute, AddOnSigner};
use addon_signer_core::journal::CertificateState;
use addon_signer_core::query::{Filter, Query, StateFilter};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::verify::{Check, verify};
use addon_signer_ledger::{Location, Reader};

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

/// Creates the chart's policy for the trust bundle on CSRs.
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

/// Creates the CustomResourceDefinitions, by which the stand-in refuses what a real API server refuses.
pub(super) async fn define_resources(admin: &Client) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for definition in [AddOnSigner::crd(), AddOnRoute::crd()] {
        definitions.create(&PostParams::default(), &definition).await?;
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

/// The longest the hub takes to note a publication.
const NOTED: Duration = Duration::from_secs(2);

/// Checks the whole chain and the index, and that every certificate was published.
pub(super) async fn check_ledger(location: &Location) -> anyhow::Result<String> {
    tokio::time::sleep(NOTED).await;
    let check = Check { location: location.clone(), checkpoint: None, archives: Vec::new() };
    let report = verify(check, |_| {}).await?;
    let reader = Reader::open(location.clone()).await?;
    let filter = Filter { state: Some(StateFilter::Recorded(CertificateState::Published)), ..Filter::default() };
    let published = reader.list(&Query { filter, ..Query::default() }, Timestamp::from_unix(0)).await?.len();
    ensure!(
        u64::try_from(published)? == report.certificates,
        "{} certificates were signed, but {published} were published",
        report.certificates
    );
    Ok(format!(
        "{} entries in one chain, {published} certificates, each recorded before it was given out",
        report.tip.seq
    ))
}
