//! What the chart's roles for people may do, and what they may not.

use std::path::Path;

use addon_signer_platform::clock::Clock;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cli::write;
use crate::whole::{Whole, prepare, serving_anchors};
use test_kit::deploy::apply;
use test_kit::hub::PATIENCE;
use test_kit::{TestHub, wait_until};

/// Makes a kubeconfig of a person with the roles for people, bound as the comment there describes.
pub(crate) async fn ca_admin(hub: &TestHub, home: &Path) -> String {
    if hub.is_real() {
        let subjects = json!([{ "kind": "Group", "name": "ca-admins", "apiGroup": "rbac.authorization.k8s.io" }]);
        let role =
            |kind: &str| json!({ "kind": kind, "name": "addon-signer-admin", "apiGroup": "rbac.authorization.k8s.io" });
        let binding = |kind: &str, metadata: Value, role: Value| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "roleRef": role,
                "subjects": subjects,
            })
        };
        let namespaced = json!({ "name": "ca-admins", "namespace": "addon-signer" });
        let bindings = [
            binding("ClusterRoleBinding", json!({ "name": "ca-admins" }), role("ClusterRole")),
            binding("RoleBinding", namespaced, role("Role")),
        ];
        apply(&hub.admin().await, &bindings).await;
    }
    write(home, &hub.kubeconfig("carol", &["ca-admins"])).display().to_string()
}

/// The role may patch the ConfigMaps of the gateway's anchors, because a rotation is asked for by an annotation.
#[tokio::test]
async fn an_administrator_of_rotations_changes_no_anchor() {
    let hub = TestHub::start().await;
    if hub.real_or_skip().is_none() {
        return;
    }
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let _whole = Whole::start(&hub, Clock::default()).await;
    let before = serving_anchors(&admin).await;
    let home = tempfile::tempdir().unwrap();
    ca_admin(&hub, home.path()).await;
    let maps: Api<ConfigMap> = Api::namespaced(hub.client_as("carol", &["ca-admins"]).await, "addon-signer");
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = async |map: &str, change: &Value| maps.patch(map, &dry_run, &Patch::Merge(change)).await;
    let evil = json!({ "data": { "ca.crt": "evil" } });
    let said = "only annotations and labels may be changed without the right to write the Secrets";
    wait_until(PATIENCE, "the policy to be in force", async || {
        patch("addon-signer-trust", &evil).await.err().filter(|error| error.to_string().contains(said))
    })
    .await;
    // The garbage collector deletes what only a missing object owns.
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0" });
    for change in [
        evil,
        json!({ "data": { "ca.crt": null } }),
        json!({ "data": null }),
        json!({ "data": { "another": "key" } }),
        json!({ "binaryData": { "another": "a2V5" } }),
        json!({ "immutable": true }),
        json!({ "immutable": false }),
        json!({ "metadata": { "ownerReferences": [owner] } }),
        json!({ "metadata": { "finalizers": ["example.com/kept"] } }),
    ] {
        let error = patch("addon-signer-trust", &change).await.unwrap_err();
        assert!(error.to_string().contains(said), "{change}: {error}");
    }
    let annotate = json!({ "metadata": { "annotations": { "a": "b" }, "labels": { "a": "b" } } });
    patch("addon-signer-trust", &annotate).await.unwrap();
    // Who may write the Secrets may, as somebody who restores a backup.
    let all: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let restored = json!({ "data": { "ca.crt": before } });
    all.patch("addon-signer-trust", &dry_run, &Patch::Merge(restored)).await.unwrap();
}
