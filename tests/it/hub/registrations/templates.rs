//! OCM's addon-manager registers an addon that it runs from an AddOnTemplate: the hub only says what must be in the
//! template.

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{registrations, wait_registered};
use crate::cli::{run, write};
use crate::hub::{MOMENT, mk_served};
use test_kit::hub::{RunningHub, TIMEOUT, telemetry, wait_ready};
use test_kit::quick::pass;
use test_kit::{AddOnApi, TestHub, wait_until};

const GROUP: &str = "addon.open-cluster-management.io";

fn api(admin: &Client, kind: &str) -> Api<DynamicObject> {
    let plural = format!("{}s", kind.to_lowercase());
    let kind = GroupVersionKind::gvk(GROUP, "v1alpha1", kind);
    Api::all_with(admin.clone(), &ApiResource::from_gvk_with_plural(&kind, &plural))
}

pub(crate) async fn create(admin: &Client, kind: &str, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": kind, "metadata": { "name": name }, "spec": spec,
    });
    api(admin, kind).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

pub(crate) async fn patch(admin: &Client, kind: &str, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    api(admin, kind).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// An AddOnTemplate of the addon telemetry that deploys nothing and registers these signers.
pub(crate) async fn mk_template(admin: &Client, name: &str, signers: &[&str]) {
    let spec = json!({
        "addonName": "telemetry",
        "agentSpec": { "workload": { "manifests": [] } },
        "registration": registration(signers),
    });
    create(admin, "AddOnTemplate", name, spec).await;
}

pub(crate) fn registration(signers: &[&str]) -> Value {
    let custom = |name: &&str| {
        json!({
            "type": "CustomSigner", "customSigner": { "signerName": name, "signingCA": { "name": "not-used" } },
        })
    };
    signers.iter().map(custom).collect()
}

/// A ClusterManagementAddOn whose default configuration is that AddOnTemplate.
pub(crate) async fn mk_management_addon(admin: &Client, name: &str, template: &str) {
    let config = json!({ "group": GROUP, "resource": "addontemplates", "defaultConfig": { "name": template } });
    create(admin, "ClusterManagementAddOn", name, json!({ "supportedConfigs": [config] })).await;
}

/// A ClusterManagementAddOn without templates, as addons with a program of their own have it.
pub(crate) async fn mk_plain_management_addon(admin: &Client, name: &str, version: AddOnApi) -> DynamicObject {
    let version = match version {
        AddOnApi::V1alpha1 => "v1alpha1",
        AddOnApi::V1beta1 => "v1beta1",
    };
    let kind = GroupVersionKind::gvk(GROUP, version, "ClusterManagementAddOn");
    let resource = ApiResource::from_gvk_with_plural(&kind, "clustermanagementaddons");
    let object = DynamicObject::new(name, &resource).data(json!({ "spec": {} }));
    Api::all_with(admin.clone(), &resource).create(&PostParams::default(), &object).await.unwrap()
}

#[tokio::test]
async fn an_addon_with_a_template_is_left_to_the_addon_manager() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    mk_template(&admin, "one", &["example.com/other"]).await;
    mk_management_addon(&admin, "telemetry", "one").await;
    let _running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let (status, message) = wait_registered(&admin, "TemplateLacksSigner").await;
    assert_eq!(status, "False");
    assert!(message.contains("AddOnTemplate one does not name this signer"), "{message}");
    assert!(message.contains("signerName: example.com/telemetry"), "{message}");
    assert_eq!(registrations(&admin, "telemetry").await, Value::Null);
    // The template's author has to mend it, so the check of the installation alone does not fail by it.
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    for (flags, mark) in [(&[][..], "BAD"), (&["--installation"], "?  ")] {
        let found = run(home.path(), &[&["check", "--kubeconfig", &kubeconfig], flags].concat()).await.stdout;
        let line = format!("{mark}  AddOnSigner telemetry: Registered is False, TemplateLacksSigner: ");
        assert!(found.contains(&line), "{found}");
    }

    let named = registration(&["example.com/other", "example.com/telemetry"]);
    patch(&admin, "AddOnTemplate", "one", json!({ "registration": named })).await;
    assert_eq!(wait_registered(&admin, "NamedByTemplate").await.0, "True");
    pass(MOMENT).await;
    assert_eq!(registrations(&admin, "telemetry").await, Value::Null);

    patch(&admin, "ClusterManagementAddOn", "telemetry", json!({ "supportedConfigs": [] })).await;
    assert_eq!(wait_registered(&admin, "Written").await.0, "True");
    wait_until(TIMEOUT, "the entry", async || {
        (registrations(&admin, "telemetry").await[0]["signerName"] == "example.com/telemetry").then_some(())
    })
    .await;
}
