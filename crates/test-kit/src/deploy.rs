//! The objects of deploy/ and of the example, and how a test applies them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::wait_until;

/// How long an API server may take to serve a new CRD.
const ESTABLISHED: Duration = Duration::from_secs(30);

/// The root of the checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the chart makes of its default values.
pub fn installed() -> Vec<Value> {
    documents(&checkout().join("deploy/install.yaml"))
}

/// What the chart makes of deploy/chart/ci/everything.yaml.
pub fn everything() -> Vec<Value> {
    documents(&checkout().join("tests/golden/chart/everything.yaml"))
}

/// The objects of an optional part of the chart, by the label app.kubernetes.io/component.
pub fn part(component: &str) -> Vec<Value> {
    let mut objects = everything();
    objects.retain(|object| object["metadata"]["labels"]["app.kubernetes.io/component"] == component);
    assert!(!objects.is_empty(), "the chart has no part {component}");
    objects
}

/// The objects of a file that is applied by itself.
pub fn file(path: &str) -> Vec<Value> {
    documents(&checkout().join(path))
}

/// What examples/telemetry installs on the hub, in the order of its kustomization.
pub fn example() -> Vec<Value> {
    let dir = checkout().join("examples/telemetry/hub");
    let kustomization = documents(&dir.join("kustomization.yaml"));
    let files: Vec<String> = serde_json::from_value(kustomization[0]["resources"].clone()).unwrap();
    files.iter().flat_map(|file| documents(&dir.join(file))).collect()
}

/// The objects in a file. It is parsed once, because a debug build takes long for the whole chart.
pub fn documents(file: &Path) -> Vec<Value> {
    static READ: Mutex<BTreeMap<PathBuf, Vec<Value>>> = Mutex::new(BTreeMap::new());
    READ.lock().entry(file.to_owned()).or_insert_with(|| read(file)).clone()
}

fn read(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    objects.into_iter().filter(|object| !object.is_null()).collect()
}

/// The YAML with these words that a document shows.
pub fn documented(document: &str, words: &str) -> String {
    let text = std::fs::read_to_string(checkout().join(document)).unwrap();
    let mut blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.contains(words)).unwrap().to_owned()
}

pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Applies objects as `kubectl apply --server-side` does and waits until their CRDs are served.
pub async fn apply(admin: &Client, objects: &[Value]) {
    for object in objects {
        patch(admin, object, &params()).await.unwrap_or_else(|e| panic!("{}: {e}", name(object)));
        if object["kind"] == "CustomResourceDefinition" {
            wait_until_served(admin, name(object)).await;
        }
    }
}

/// Unknown fields are errors, so that a misspelt field is found.
pub fn params() -> PatchParams {
    PatchParams::apply("deploy-tests").force().validation_strict()
}

pub async fn patch(admin: &Client, object: &Value, params: &PatchParams) -> kube::Result<DynamicObject> {
    let api = api(admin, object).await?;
    api.patch(name(object), params, &Patch::Apply(object)).await
}

pub async fn api(admin: &Client, object: &Value) -> kube::Result<Api<DynamicObject>> {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let (resource, capabilities) = pinned_kind(admin, &kind).await?;
    Ok(match (capabilities.scope, object["metadata"]["namespace"].as_str()) {
        (Scope::Namespaced, namespace) => Api::namespaced_with(admin.clone(), namespace.unwrap(), &resource),
        (Scope::Cluster, None) => Api::all_with(admin.clone(), &resource),
        (Scope::Cluster, Some(_)) => panic!("{} is cluster-scoped", name(object)),
    })
}

async fn wait_until_served(admin: &Client, crd: &str) {
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    wait_until(ESTABLISHED, &format!("the CRD {crd} to be served"), async || {
        let conditions = crds.get(crd).await.unwrap().status.unwrap_or_default().conditions;
        let established = |c: &_| is_true(c, "Established");
        conditions.into_iter().flatten().any(|c| established(&json!(c))).then_some(())
    })
    .await;
}

fn is_true(condition: &Value, kind: &str) -> bool {
    condition["type"] == kind && condition["status"] == "True"
}
