//! Objects with a time in `managedFields` that this program cannot read. The API server keeps what their writers put
//! there.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{allow, wait_trust};
use crate::hub::protected::mk_pod;
use crate::hub::registrations::templates::{mk_management_addon, mk_template};
use crate::hub::registrations::wait_registered;
use crate::hub::{mk_csr, mk_ready, submit};
use test_kit::hub::{RunningHub, TIMEOUT, certificate, create_signer, wait_csr, wait_ready};
use test_kit::objects::{poison, read_as_is};
use test_kit::wait_until;

const ALPHA: &str = "/apis/addon-signer.io/v1alpha1/addonsigners/alpha";

/// Changes the addons of alpha, and waits until the hub serves and reports them.
async fn wait_change(admin: &Client, running: &RunningHub, addons: &[&str]) {
    poison(admin, ALPHA, |object| object["spec"]["addOns"] = json!(addons)).await;
    wait_until(TIMEOUT, &format!("{addons:?} to be served"), async || {
        let trust = running.trust.borrow().clone();
        let served = trust.signer("alpha")?.addons.len();
        let object = read_as_is(admin, ALPHA).await;
        let is_reported = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        (served == addons.len() && is_reported).then_some(())
    })
    .await;
}

#[tokio::test]
async fn poisoned_signer_stops_no_other_and_its_changes_count() {
    let (hub, admin, running) = mk_ready().await;
    allow(&hub, &admin, "example.com/alpha").await;
    create_signer(&admin, "alpha", json!({ "signerName": "example.com/alpha", "addOns": ["search"] })).await;
    wait_ready(&admin, "alpha", "True").await;
    hub.spoil(&admin, ALPHA).await;
    wait_change(&admin, &running, &["search", "logs"]).await;
    running.stop().await;
    let again = RunningHub::start(&hub).await;
    wait_trust(&again, &["alpha", "telemetry"]).await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
    wait_change(&admin, &again, &["search"]).await;
    let deletion = hyper::Request::delete(ALPHA).body(Vec::new()).unwrap();
    admin.request::<Value>(deletion).await.unwrap();
    wait_trust(&again, &["telemetry"]).await;
}

#[tokio::test]
async fn hub_starts_beside_poisoned_objects_of_other_kinds() {
    let (hub, admin, running) = mk_ready().await;
    mk_template(&admin, "one", &["example.com/telemetry"]).await;
    mk_management_addon(&admin, "telemetry", "one").await;
    let services: Api<Service> = Api::namespaced(admin.clone(), "addon-signer");
    let service: Value = json!({ "metadata": { "name": "beside" }, "spec": { "ports": [{ "port": 80 }] } });
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "addon-signer");
    pods.create(&PostParams::default(), &mk_pod()).await.unwrap();
    running.stop().await;
    let addon = "/apis/addon.open-cluster-management.io/v1alpha1";
    for path in [
        "/api/v1/namespaces/addon-signer/configmaps/addon-signer-trust",
        "/api/v1/namespaces/addon-signer/configmaps/telemetry-client-ca",
        "/api/v1/namespaces/addon-signer/services/beside",
        "/api/v1/namespaces/addon-signer",
        "/api/v1/namespaces/addon-signer/pods/beside",
        &format!("{addon}/addontemplates/one"),
        &format!("{addon}/clustermanagementaddons/telemetry"),
    ] {
        hub.spoil(&admin, path).await;
    }
    let again = RunningHub::start(&hub).await;
    wait_trust(&again, &["telemetry"]).await;
    assert_eq!(wait_registered(&admin, "NamedByTemplate").await.0, "True");
    wait_until(TIMEOUT, "the routes", async || again.routes.borrow().is_complete().then_some(())).await;
    wait_until(TIMEOUT, "the gateway to have an authority", async || {
        (again.trust.borrow().serving_active.is_some()).then_some(())
    })
    .await;
    wait_until(TIMEOUT, "the pods and Services", async || {
        let known = again.protected.borrow().clone();
        (known.pods?.contains_key("beside") && known.services?.contains_key("beside")).then_some(())
    })
    .await;
}
