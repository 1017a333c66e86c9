//! The hub writes `status.registrations` where that is its task, in the version that the API server serves, and removes
//! its entries.

mod approved_by_ocm;
mod disputed;
mod missed;
mod oversized;
pub(crate) mod templates;
mod unregistered;

use addon_signer_api::AddOnSigner;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::hub::{mk_csr, mk_ready, mk_served, submit};
use test_kit::hub::{RunningHub, TIMEOUT, addon, certificate, telemetry, wait_csr, wait_ready};
use test_kit::{AddOnApi, TestHub, install_addon, wait_until};

const USER: &str = "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:telemetry";
const GROUPS: [&str; 2] =
    ["system:open-cluster-management:cluster:spoke1:addon:telemetry", "system:open-cluster-management:addon:telemetry"];

async fn change(admin: &kube::Client, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    Api::<AddOnSigner>::all(admin.clone()).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until the condition `Registered` of the AddOnSigner telemetry has this reason; returns its status and message.
pub(crate) async fn wait_registered(admin: &kube::Client, reason: &str) -> (String, String) {
    wait_registered_of(admin, "telemetry", reason).await
}

async fn wait_registered_of(admin: &kube::Client, name: &str, reason: &str) -> (String, String) {
    let api: Api<AddOnSigner> = Api::all(admin.clone());
    let mut last = None;
    wait_until(TIMEOUT, &format!("Registered to be {reason}"), async || {
        let conditions = api.get(name).await.ok()?.status?.conditions;
        let found = conditions.into_iter().find(|condition| condition.type_ == "Registered")?;
        if last.as_ref() != Some(&found) {
            eprintln!("Registered={} {}: {}", found.status, found.reason, found.message);
            last = Some(found.clone());
        }
        (found.reason == reason).then_some((found.status, found.message))
    })
    .await
}

async fn registrations(admin: &kube::Client, name: &str) -> Value {
    addon(admin, "spoke1", name).await.data["status"]["registrations"].clone()
}

#[tokio::test]
async fn external_registration_is_left_to_others() {
    let mut spec = telemetry();
    spec["registration"] = "External".into();
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, spec).await;
    let _running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
    // Whatever else the hub reports in this status.
    wait_until(TIMEOUT, "the condition about the certificate", async || {
        let addon = addon(&admin, "spoke1", "telemetry").await;
        addon.data["status"]["conditions"].as_array()?.iter().find(|it| it["reason"] == "Issued").cloned()
    })
    .await;
    assert_eq!(registrations(&admin, "telemetry").await, Value::Null);
}

#[tokio::test]
async fn an_addon_that_is_taken_out_of_a_signer_loses_its_entry() {
    let (_hub, admin, _running) = mk_ready().await;
    install_addon(&admin, "spoke1", "logging").await;
    change(&admin, "telemetry", json!({"addOns": ["telemetry", "logging"]})).await;
    for name in ["telemetry", "logging"] {
        wait_until(TIMEOUT, "the registration", async || {
            registrations(&admin, name).await.get(0).is_some().then_some(())
        })
        .await;
    }
    change(&admin, "telemetry", json!({"addOns": ["telemetry"]})).await;
    wait_until(TIMEOUT, "the entry to go", async || {
        (registrations(&admin, "logging").await == json!([])).then_some(())
    })
    .await;
    assert_eq!(registrations(&admin, "telemetry").await[0]["signerName"].is_null(), is_v1beta1(&admin).await);
}

async fn is_v1beta1(admin: &kube::Client) -> bool {
    addon(admin, "spoke1", "telemetry").await.types.unwrap().api_version.ends_with("v1beta1")
}

#[tokio::test]
async fn registrations_have_the_shape_of_the_version_that_is_served() {
    for api in [AddOnApi::V1alpha1, AddOnApi::V1beta1] {
        let hub = TestHub::start_with(api).await;
        let admin = mk_served(&hub, telemetry()).await;
        let _running = RunningHub::start(&hub).await;
        let found = wait_until(TIMEOUT, "the registration", async || {
            let found = registrations(&admin, "telemetry").await;
            found.get(0).is_some().then_some(found)
        })
        .await;
        let signer = json!({"signerName": "example.com/telemetry", "subject": {"user": USER, "groups": GROUPS}});
        let beta = is_v1beta1(&admin).await;
        assert!(!hub.is_real() || beta == (api == AddOnApi::V1beta1));
        let expected = if beta { json!([{"type": "customSigner", "customSigner": signer}]) } else { json!([signer]) };
        assert_eq!(found, expected);
        let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
        wait_csr(&admin, &name, "issued", certificate).await;
        let conditions = addon(&admin, "spoke1", "telemetry").await.data["status"]["conditions"].clone();
        assert_eq!(conditions[0]["type"], "RegistrationApplied");
        assert_eq!(conditions[0]["status"], "True");
    }
}
