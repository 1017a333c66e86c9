//! Objects of OCM, which tests create as OCM's own controllers and administrators do.

use std::fmt::Debug;

use addon_signer_api::manifest_work;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::deploy::{of_kind, part};
use crate::wait::TIMEOUT;
use crate::wait_until;

const ADDON_GROUP: &str = "addon.open-cluster-management.io";
const CLUSTER_GROUP: &str = "cluster.open-cluster-management.io";

/// ManagedClusters.
pub fn managed_clusters(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(CLUSTER_GROUP, "v1", "ManagedCluster");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "managedclusters"))
}

/// ManagedClusterAddOns of `cluster`, in the version that the hub prefers.
pub async fn managed_cluster_addons(client: &Client, cluster: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), cluster, &addon_resource(client).await)
}

async fn addon_resource(client: &Client) -> ApiResource {
    let groups = client.list_api_groups().await.unwrap().groups;
    let group = groups.into_iter().find(|g| g.name == ADDON_GROUP).expect("the hub serves OCM's addon API");
    let version = group.preferred_version.expect("a served group prefers a version").version;
    let kind = GroupVersionKind::gvk(ADDON_GROUP, &version, "ManagedClusterAddOn");
    ApiResource::from_gvk_with_plural(&kind, "managedclusteraddons")
}

/// ManifestWorks in the namespace of a cluster.
pub fn manifest_works(client: &Client, cluster: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), cluster, &manifest_work::resource())
}

/// Makes the stand-in serve ManifestWorks, of which the hub's account may write its own.
pub async fn serve_manifest_works(admin: &Client) {
    serve(admin, "manifestworks.work.open-cluster-management.io").await;
    bind_policy(admin, "manifest-works").await;
}

/// Makes the policy of a part of the chart be in force on the stand-in.
pub async fn bind_policy(admin: &Client, component: &str) {
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        for object in of_kind(&part(component), kind) {
            create(&policy_objects(admin, kind), object.clone()).await;
        }
    }
}

/// ValidatingAdmissionPolicyBindings.
pub fn policy_bindings(admin: &Client) -> Api<DynamicObject> {
    policy_objects(admin, "ValidatingAdmissionPolicyBinding")
}

/// Policies, or their bindings, by kind.
pub fn policy_objects(admin: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(admin.clone(), &ApiResource::from_gvk(&kind))
}

/// Makes the stand-in serve what it has on demand.
pub async fn serve(admin: &Client, resource: &str) {
    let crds = ApiResource::erase::<CustomResourceDefinition>(&());
    let crd = DynamicObject::new(resource, &crds);
    let crds: Api<DynamicObject> = Api::all_with(admin.clone(), &crds);
    crds.create(&PostParams::default(), &crd).await.unwrap();
}

/// Accepts the cluster: its ManagedCluster says `hubAcceptsClient`, and its namespace exists. Creates the
/// ManagedCluster if no agent has done so.
pub async fn accept_cluster(client: &Client, name: &str) {
    let clusters = managed_clusters(client);
    let accepted = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": { "name": name },
        "spec": { "hubAcceptsClient": true, "leaseDurationSeconds": 60 },
    });
    if !create(&clusters, accepted.clone()).await {
        let merge = Patch::Merge(&accepted);
        clusters.patch(name, &PatchParams::default(), &merge).await.unwrap();
    }
    create_namespace(client, name).await;
}

/// Deletes the ManagedCluster and makes another one of its name, in a later second. All else stays.
pub async fn remake_cluster(client: &Client, name: &str) {
    let clusters = managed_clusters(client);
    let remake = async || {
        clusters.delete(name, &Default::default()).await.unwrap();
        accept_cluster(client, name).await;
        clusters.get(name).await.unwrap().metadata.creation_timestamp
    };
    // A certificate that began in the second of the new object would be one of the new cluster.
    let now = remake().await;
    wait_until(TIMEOUT, "the next second", async || (remake().await > now).then_some(())).await;
}

/// Installs the addon on the cluster.
pub async fn install_addon(client: &Client, cluster: &str, addon: &str) {
    let resource = addon_resource(client).await;
    let addons = Api::namespaced_with(client.clone(), cluster, &resource);
    let object = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": addon, "namespace": cluster },
        "spec": {},
    });
    create::<DynamicObject>(&addons, object).await;
}

/// Creates the namespace unless it exists.
pub async fn create_namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({ "metadata": { "name": name } })).await;
}

/// Creates a Service of this name.
pub async fn create_service(client: &Client, namespace: &str, name: &str) {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    create(&services, json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } })).await;
}

/// Creates the object; returns `false` if one with its name exists. An API server that has just started may give no
/// answer in time on a loaded machine; then the next try finds what the last one has made.
pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> bool
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    let mut unanswered = false;
    wait_until(TIMEOUT, "an answer to the creation of an object", async || {
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Some(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Some(unanswered),
            Err(kube::Error::Service(_)) => {
                unanswered = true;
                None
            }
            Err(error) => panic!("cannot create the object: {error}"),
        }
    })
    .await
}

/// serde_json gives up at 128 levels, and there are seven around it.
const DEPTH: usize = 120;

/// Reads an object as the API server shows it, whatever somebody has written into it.
pub async fn read_as_is(admin: &Client, path: &str) -> Value {
    admin.request(hyper::Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
}

/// Changes an object and poisons it as its writer may: with an entry of `managedFields` whose time no program needs to
/// know, and with fields that are nested as deeply as a reader of this object alone can follow, but not one of a list.
/// Returns the entries that it has then.
pub async fn poison(admin: &Client, path: &str, change: impl Fn(&mut Value)) -> String {
    loop {
        let mut object = read_as_is(admin, path).await;
        let deep = (0..DEPTH).fold(json!({}), |inner, _| json!({ "f:a": inner }));
        let entry = json!({
            "manager": "agent", "operation": "Update", "apiVersion": object["apiVersion"],
            "time": "9999-12-31T23:59:59Z", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:metadata": { "f:labels": { "f:poisoned": {} }, "f:annotations": deep } },
        });
        let others = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        object["metadata"]["managedFields"] = others.into_iter().chain([entry]).collect();
        object["metadata"]["labels"]["poisoned"] = "yes".into();
        change(&mut object);
        let put = hyper::Request::put(path).header("content-type", "application/json");
        match admin.request::<Value>(put.body(object.to_string().into_bytes()).unwrap()).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {} // the hub wrote in between
            written => return written.unwrap()["metadata"]["managedFields"].to_string(),
        }
    }
}
