//! OCM's own CRDs accept our `status.registrations`: what is written is read back unchanged, in both versions.

use std::collections::BTreeMap;

use addon_signer_api::ocm::AddOnApi;
use addon_signer_api::registrations::{Registration, WantedEntries, apply_registrations, is_left, say_left};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use test_kit::needed::{Needed, has};
use test_kit::real::assets;
use test_kit::{TestHub, accept_cluster, install_addon};

const NOW: &str = "2026-01-01T00:00:00Z";

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_survives_ocms_schema_v1alpha1() {
    registration_round_trip(AddOnApi::V1Alpha1, test_kit::AddOnApi::V1alpha1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_survives_ocms_schema_v1beta1() {
    registration_round_trip(AddOnApi::V1Beta1, test_kit::AddOnApi::V1beta1).await;
}

async fn registration_round_trip(version: AddOnApi, served: test_kit::AddOnApi) {
    if !has(Needed::ApiServer, assets().is_some()) {
        return;
    }
    let hub = TestHub::start_with(served).await;
    let admin = hub.admin().await;
    accept_cluster(&admin, "cluster1").await;
    install_addon(&admin, "cluster1", "telemetry").await;
    let addons: Api<DynamicObject> = Api::namespaced_with(admin, "cluster1", &version.resource());

    let ours = mk_registration("example.com/telemetry", &["ou"]);
    let other = mk_registration("example.com/other", &[]);
    for entry in [&other, &ours] {
        let patch = patch(&status(&addons).await, version, entry, WantedEntries::One(entry.clone()));
        write(&addons, &patch.expect("the entry is new")).await;
    }
    for entry in [&other, &ours] {
        let none = patch(&status(&addons).await, version, entry, WantedEntries::One(entry.clone()));
        assert_eq!(none, None);
    }
    assert_eq!(status(&addons).await["registrations"], json!([other.render(version), ours.render(version)]));

    let patch = patch(&status(&addons).await, version, &ours, WantedEntries::Without(ours.clone()));
    write(&addons, &patch.expect("the entry is there")).await;
    assert_eq!(status(&addons).await["registrations"], json!([other.render(version)]));

    write(&addons, &say_left(&status(&addons).await, true, NOW)).await;
    assert!(is_left(&status(&addons).await));
    write(&addons, &say_left(&status(&addons).await, false, NOW)).await;
    assert!(!is_left(&status(&addons).await));
}

/// The patch for the entries of that entry's signer.
fn patch(status: &Value, version: AddOnApi, of: &Registration, entries: WantedEntries) -> Option<Value> {
    let wanted = BTreeMap::from([(of.signer_name.as_str(), entries)]);
    apply_registrations(status, version, &wanted, |_| false, NOW)
}

fn mk_registration(signer_name: &str, organizational_units: &[&str]) -> Registration {
    Registration {
        signer_name: signer_name.to_owned(),
        user: "system:open-cluster-management:cluster:cluster1:addon:telemetry:agent:telemetry".to_owned(),
        groups: vec!["g1".to_owned(), "g2".to_owned()],
        organizational_units: organizational_units.iter().map(|&unit| unit.to_owned()).collect(),
    }
}

async fn status(addons: &Api<DynamicObject>) -> Value {
    let addon = addons.get("telemetry").await.unwrap();
    addon.data.get("status").cloned().unwrap_or_default()
}

async fn write(addons: &Api<DynamicObject>, status: &Value) {
    let strict = PatchParams { field_validation: Some(kube::api::ValidationDirective::Strict), ..Default::default() };
    let patch = Patch::Merge(json!({ "status": status }));
    addons.patch_status("telemetry", &strict, &patch).await.unwrap();
}
