//! Installs what OCM itself installs on a hub: its CRDs and the rights of its agents. Also cert-manager's CRDs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
use kube::api::PostParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::AddOnApi;
use super::pki::base64;
use super::wait::wait_until;

const ESTABLISHED: Duration = Duration::from_secs(30);
/// The group of every accepted cluster's agent.
pub const MANAGED_CLUSTERS: &str = "system:open-cluster-management:managed-clusters";

/// Applies OCM's CRDs, with ManagedClusterAddOn in `api`, from the folder that `tests/real/build.sh` made, and waits
/// until they are served.
pub async fn install(admin: &Client, assets: &Path, api: AddOnApi) {
    let folders: &[_] = match api {
        AddOnApi::V1alpha1 => &["cluster-v1", "cluster-v1beta1", "addon-v1alpha1", "work-v1"],
        AddOnApi::V1beta1 => &["cluster-v1", "addon-v1beta1", "work-v1"],
    };
    let all = folders.iter().flat_map(|folder| files(&assets.join("crds").join(folder)));
    create(admin, all.map(|file| read(&file, api)).collect()).await;
}

/// Applies all CRDs of OCM's hub, with the addon API in both versions and this webhook that converts between them.
pub async fn install_whole(admin: &Client, assets: &Path, webhook: &str, webhook_ca: &str) {
    let folder = |name: &&str| files(&assets.join("crds").join(name));
    let plain = ["cluster-v1", "cluster-v1beta1", "cluster-v1beta2", "cluster-v1alpha1", "work-v1", "work-v1alpha1"];
    let stored = folder(&"addon-v1alpha1").into_iter().filter(|file| stored_only(file));
    let mut crds: Vec<_> =
        plain.iter().flat_map(folder).chain(stored).map(|file| read(&file, AddOnApi::V1alpha1)).collect();
    crds.extend(converted(assets, webhook, webhook_ca));
    create(admin, crds).await;
}

/// Applies the CRDs that OCM's controllers need besides [`install`] to place addons on clusters.
pub async fn install_placements(admin: &Client, assets: &Path) {
    let folders = ["cluster-v1beta2", "cluster-v1alpha1", "work-v1alpha1"];
    let all = folders.iter().flat_map(|folder| files(&assets.join("crds").join(folder)));
    create(admin, all.map(|file| read(&file, AddOnApi::V1alpha1)).collect()).await;
}

/// The CRDs of the addon API that have both versions.
fn converted(assets: &Path, webhook: &str, webhook_ca: &str) -> Vec<CustomResourceDefinition> {
    let conversion: CustomResourceConversion = parse(json!({ "strategy": "Webhook", "webhook": {
        "clientConfig": { "url": webhook, "caBundle": base64(webhook_ca.as_bytes()) },
        "conversionReviewVersions": ["v1"],
    } }));
    let all = files(&assets.join("crds/addon-v1beta1")).into_iter().filter(|file| !stored_only(file));
    all.map(|file| {
        let mut crd = read(&file, AddOnApi::V1alpha1);
        crd.spec.conversion = Some(conversion.clone());
        crd
    })
    .collect()
}

/// Brings the addon API from v1alpha1 to both versions, as an upgrade of OCM does, and waits until they are served.
pub async fn upgrade(admin: &Client, assets: &Path, webhook: &str, webhook_ca: &str) {
    change_converted(admin, converted(assets, webhook, webhook_ca)).await;
    wait_served(admin, &["v1beta1", "v1alpha1"]).await;
}

/// Ends v1alpha1 of what has two versions, and waits until it is not served any more.
pub async fn end_v1alpha1(admin: &Client, assets: &Path, webhook: &str, webhook_ca: &str) {
    let mut crds = converted(assets, webhook, webhook_ca);
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        version.served = version.name != "v1alpha1";
    }
    change_converted(admin, crds).await;
    wait_served(admin, &["v1beta1"]).await;
}

async fn change_converted(admin: &Client, crds: Vec<CustomResourceDefinition>) {
    let api: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for mut crd in crds {
        let name = crd.metadata.name.clone().unwrap();
        crd.metadata.resource_version = api.get(&name).await.unwrap().metadata.resource_version;
        api.replace(&name, &PostParams::default(), &crd).await.unwrap();
    }
}

/// Waits until ManagedClusterAddOn has these versions.
async fn wait_served(admin: &Client, versions: &[&str]) {
    wait_until(ESTABLISHED, "the versions of ManagedClusterAddOn", async || {
        for version in ["v1beta1", "v1alpha1"] {
            let group = format!("addon.open-cluster-management.io/{version}");
            let found = admin.list_api_group_resources(&group).await;
            let is_served = found.is_ok_and(|list| list.resources.iter().any(|it| it.name == "managedclusteraddons"));
            if is_served != versions.contains(&version) {
                return None;
            }
        }
        Some(())
    })
    .await;
}

/// Applies the CRDs that OCM's work agent needs on a managed cluster.
pub async fn install_applied_works(own: &Client, assets: &Path) {
    let all = files(&assets.join("crds/work-v1")).into_iter();
    let applied = all.filter(|file| file.display().to_string().contains("applied"));
    create(own, applied.map(|file| read(&file, AddOnApi::V1alpha1)).collect()).await;
}

/// Applies the CRDs of cert-manager's own API.
pub async fn install_cert_manager(admin: &Client, assets: &Path) {
    let all = files(&assets.join("crds/cert-manager")).into_iter();
    create(admin, all.map(|file| read(&file, AddOnApi::V1alpha1)).collect()).await;
}

/// Whether the addon API has this kind in its stored version alone, as OCM's hub serves it.
fn stored_only(file: &Path) -> bool {
    let name = file.file_name().unwrap().to_string_lossy();
    name.contains("addontemplates") || name.contains("addondeploymentconfigs")
}

/// Creates the CRDs and waits until they are served.
async fn create(admin: &Client, all: Vec<CustomResourceDefinition>) {
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let mut names = Vec::new();
    for crd in all {
        match crds.create(&PostParams::default(), &crd).await {
            // Another test in the same cluster has left it.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.unwrap()),
        }
        names.push(crd.metadata.name.unwrap());
    }
    for name in names {
        wait_until(ESTABLISHED, &format!("the CRD {name} to be served"), async || {
            is_established(&crds.get(&name).await.unwrap()).then_some(())
        })
        .await;
    }
}

/// Grants the rights that OCM gives to an accepted cluster's agent (registration/hub/manifests/rbac). OCM binds them
/// for each cluster; here they are bound for all clusters at once.
pub async fn grant_agent_rights(admin: &Client) {
    grant(
        admin,
        "open-cluster-management:managedcluster",
        MANAGED_CLUSTERS,
        json!([
            { "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
              "verbs": ["create", "get", "list", "watch"] },
            { "apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters"],
              "verbs": ["get", "list", "update", "watch"] },
            { "apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters/status"],
              "verbs": ["patch", "update"] },
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
              "verbs": ["get", "list", "watch", "update"] },
            { "apiGroups": ["addon.open-cluster-management.io"], "resources": ["managedclusteraddons"],
              "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["addon.open-cluster-management.io"], "resources": ["managedclusteraddons/status"],
              "verbs": ["patch", "update"] },
            { "apiGroups": ["work.open-cluster-management.io"], "resources": ["manifestworks"],
              "verbs": ["get", "list", "watch", "update", "patch"] },
            { "apiGroups": ["work.open-cluster-management.io"], "resources": ["manifestworks/status"],
              "verbs": ["patch", "update"] },
            { "apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] },
        ]),
    )
    .await;
}

/// Gives `rules` to `group` by a ClusterRole and a ClusterRoleBinding called `name`.
pub async fn grant(admin: &Client, name: &str, group: &str, rules: serde_json::Value) {
    let role: ClusterRole = parse(json!({ "metadata": { "name": name }, "rules": rules }));
    let binding: ClusterRoleBinding = parse(json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }],
    }));
    let create = PostParams::default();
    Api::all(admin.clone()).create(&create, &role).await.unwrap();
    Api::all(admin.clone()).create(&create, &binding).await.unwrap();
}

fn parse<T: DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Reads a CRD. The v1beta1 files declare both versions and need OCM's conversion webhook; without it only v1beta1 can
/// be served and stored.
fn read(file: &Path, api: AddOnApi) -> CustomResourceDefinition {
    let mut crd: CustomResourceDefinition = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let versions = &mut crd.spec.versions;
    if api == AddOnApi::V1beta1 && versions.iter().any(|v| v.name == "v1beta1") {
        versions.retain(|v| v.name == "v1beta1");
        versions.iter_mut().for_each(|v| v.storage = true);
    }
    crd
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Established" && c.status == "True")
}
