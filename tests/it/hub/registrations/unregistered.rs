//! What the condition `Registered` says where OCM's addon-manager registers something by which no agent gets a
//! certificate.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::templates::{create, mk_management_addon, patch, registration};
use super::{change, wait_registered, wait_registered_of};
use crate::hub::mk_served;
use test_kit::TestHub;
use test_kit::deploy::example;
use test_kit::hub::{RunningHub, create_signer, telemetry};

/// The AddOnSigner, ClusterManagementAddOns and AddOnTemplates of examples/telemetry.
async fn mk_example(admin: &Client) {
    let find = |kind: &str| {
        let objects = example().into_iter();
        objects.filter(|object| object["kind"] == kind).collect::<Vec<Value>>()
    };
    for kind in ["AddOnTemplate", "ClusterManagementAddOn"] {
        for object in find(kind) {
            create(admin, kind, object["metadata"]["name"].as_str().unwrap(), object["spec"].clone()).await;
        }
    }
    change(admin, "telemetry", find("AddOnSigner")[0]["spec"].clone()).await;
}

#[tokio::test]
async fn in_the_example_one_addon_asks_itself_and_ocm_for_the_other() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    mk_example(&admin).await;
    let _running = RunningHub::start(&hub).await;
    let (status, message) = wait_registered(&admin, "NamedByTemplate").await;
    assert_eq!(status, "True");
    for sentence in ["the addon telemetry-plain and names this signer", "the agents of the addon telemetry must make"] {
        assert!(message.contains(sentence), "{message}");
    }
    patch(&admin, "AddOnTemplate", "telemetry-plain", json!({ "registration": [] })).await;
    let (_, message) = wait_registered(&admin, "TemplateLacksSigner").await;
    assert!(message.contains("AddOnTemplate telemetry-plain neither names this signer nor"), "{message}");
}

/// A pod with the volume that OCM's addon-manager makes of a signer name.
fn mk_pod(signer: &str) -> Pod {
    let volume = format!("cert-{}", signer.replace(['/', '.'], "-"));
    let spec = json!({
        "containers": [{ "name": "agent", "image": "agent" }],
        "volumes": [{ "name": volume, "emptyDir": {} }],
    });
    serde_json::from_value(json!({ "metadata": { "name": "agent" }, "spec": spec })).unwrap()
}

#[tokio::test]
async fn signer_name_too_long_for_pod_volume_is_reported() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let signers = [58, 59].map(|length| format!("example.com/{}", "a".repeat(length - "example.com/".len())));
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "agent" } });
    for (name, signer) in ["short", "long"].into_iter().zip(&signers) {
        let spec = json!({
            "addonName": name,
            "agentSpec": { "workload": { "manifests": [deployment] } },
            "registration": registration(&[signer.as_str()]),
        });
        create(&admin, "AddOnTemplate", name, spec).await;
        mk_management_addon(&admin, name, name).await;
        create_signer(&admin, name, json!({ "signerName": signer, "addOns": [name] })).await;
    }
    let _running = RunningHub::start(&hub).await;
    assert_eq!(wait_registered_of(&admin, "short", "NamedByTemplate").await.0, "True");
    let (status, message) = wait_registered_of(&admin, "long", "SignerNameTooLong").await;
    assert_eq!(status, "False");
    assert!(message.contains("AddOnTemplate long are refused on every cluster"), "{message}");
    assert!(message.contains("has 59 characters instead of at most 58"), "{message}");
    if hub.is_real() {
        let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
        let dry_run = PostParams { dry_run: true, field_manager: None };
        pods.create(&dry_run, &mk_pod(&signers[0])).await.unwrap();
        let error = pods.create(&dry_run, &mk_pod(&signers[1])).await.unwrap_err().to_string();
        assert!(error.contains("must be no more than 63"), "{error}");
    }
}
