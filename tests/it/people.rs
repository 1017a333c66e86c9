//! What the chart's roles for people may do, and what they may not.

use std::path::Path;

use addon_signer_platform::clock::Clock;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cli::write;
use crate::whole::{Whole, prepare, serving_anchors};
use test_kit::deploy::apply;
use test_kit::hub::TIMEOUT;
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
    let message = "only the annotations that ask for steps may be changed without the right to write the Secrets";
    wait_until(TIMEOUT, "the policy to be in force", async || {
        patch("addon-signer-trust", &evil).await.err().filter(|error| error.to_string().contains(message))
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
        json!({ "metadata": { "labels": { "filled": "up" } } }),
        json!({ "metadata": { "annotations": { "filled": "up" } } }),
        json!({ "metadata": { "annotations": { "addon-signer.io/rotate-more": "" } } }),
    ] {
        let error = patch("addon-signer-trust", &change).await.unwrap_err();
        assert!(error.to_string().contains(message), "{change}: {error}");
    }
    for name in ["rotate", "advance-without", "roll-back", "import-authority", "taint", "revoke-authority"] {
        let asked = json!({ "metadata": { "annotations": { format!("addon-signer.io/{name}"): "x" } } });
        patch("addon-signer-trust", &asked).await.unwrap();
    }
    // Who may write the Secrets may, as somebody who restores a backup.
    let all: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let restored = json!({ "data": { "ca.crt": before } });
    all.patch("addon-signer-trust", &dry_run, &Patch::Merge(restored)).await.unwrap();
}

/// A tool that writes ConfigMaps in the hub's namespace has no say in what the hub publishes.
#[tokio::test]
async fn a_writer_of_config_maps_writes_none_of_the_hubs() {
    let hub = TestHub::start().await;
    if hub.real_or_skip().is_none() {
        return;
    }
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let _whole = Whole::start(&hub, Clock::default()).await;
    serving_anchors(&admin).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "maps", "namespace": "addon-signer" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "maps", "namespace": "addon-signer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dave" }],
    });
    apply(&admin, &[role, binding]).await;
    let maps: Api<ConfigMap> = Api::namespaced(hub.client_as("dave", &[]).await, "addon-signer");
    let all: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    wait_until(TIMEOUT, "the signer's anchors", async || all.get_opt("telemetry-client-ca").await.unwrap()).await;
    let message = "only the annotations that ask for steps may be changed without the right to write the Secrets";
    let is_refused = |error: kube::Error| error.to_string().contains(message).then_some(());
    let mk = |metadata: Value| serde_json::from_value::<ConfigMap>(json!({ "metadata": metadata })).unwrap();
    let (post, delete) = (PostParams::default(), DeleteParams::default());
    let frozen = Patch::Merge(json!({ "immutable": true }));
    wait_until(TIMEOUT, "the policy to be in force", async || {
        is_refused(maps.create(&post, &mk(json!({ "name": "any-client-ca" }))).await.err()?)
    })
    .await;
    for name in [
        "addon-signer-trust",
        "addon-signer-backend-trust",
        "addon-signer-ledger",
        "addon-signer-roots",
        "new-client-ca",
    ] {
        is_refused(maps.create(&post, &mk(json!({ "name": name }))).await.unwrap_err()).unwrap();
    }
    for name in ["addon-signer-trust", "telemetry-client-ca"] {
        is_refused(maps.delete(name, &delete).await.unwrap_err()).unwrap();
        is_refused(maps.patch(name, &PatchParams::default(), &frozen).await.unwrap_err()).unwrap();
    }
    is_refused(maps.delete_collection(&delete, &ListParams::default()).await.unwrap_err()).unwrap();
    let own = maps.create(&post, &mk(json!({ "generateName": "own-" }))).await.unwrap().metadata.name.unwrap();
    maps.patch(&own, &PatchParams::default(), &frozen).await.unwrap();
    maps.delete(&own, &delete).await.unwrap();
    Api::<Namespace>::all(admin.clone()).delete("addon-signer", &delete).await.unwrap();
    wait_until(TIMEOUT, "the namespace to take them along", async || {
        maps.delete("telemetry-client-ca", &delete).await.ok().map(drop)
    })
    .await;
}
