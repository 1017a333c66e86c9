//! The inventory through a real API server: kubeconfig, RBAC, front proxy, hub. The Service has the type ExternalName,
//! so that kube-aggregator (`ResolveCluster`) reaches a listener on loopback.

use std::time::Duration;

use addon_signer::cli::inventory_args::{QuestionError, ask};
use addon_signer::inventory::{API_SERVICE, BASE};
use addon_signer_platform::kubeconfig::Access;
use addon_signer_platform::kubernetes;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::process::Command;

use super::kit::Stage;
use crate::cli::{run, write};
use test_kit::hub::TIMEOUT;
use test_kit::log::capture_audit;
use test_kit::needed::{Needed, has};
use test_kit::quick::pass;
use test_kit::{TestHub, real, wait_until};

/// Starts a hub behind a real API server, with an inventory that alice may read; `None` if there is no real API server.
async fn start() -> Option<(TestHub, Stage)> {
    if !has(Needed::ApiServer, real::assets().is_some()) {
        return None;
    }
    let hub = TestHub::start().await;
    let stage = Stage::start(&hub).await;
    let services: Api<Service> = Api::namespaced(stage.admin.clone(), "addon-signer");
    services.delete("addon-signer-inventory", &DeleteParams::default()).await.unwrap();
    let service = json!({
        "metadata": { "name": "addon-signer-inventory" },
        "spec": { "type": "ExternalName", "externalName": "localhost" },
    });
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let port = json!({ "spec": { "service": { "port": stage.inventory.port() } } });
    stage.api_services().patch(API_SERVICE, &PatchParams::default(), &Patch::Merge(&port)).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(stage.admin.clone());
    let binding = json!({
        "metadata": { "name": "readers" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "addon-signer-ledger-reader",
        },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    Some((hub, stage))
}

/// Connects with a kubeconfig file, as `addon-signer` does.
async fn as_user(hub: &TestHub, user: &str) -> Client {
    let kubeconfig = Some(hub.real().unwrap().kubeconfig_file(user, user, &[]));
    kubernetes::client(&Access { kubeconfig, context: None }).await.unwrap()
}

fn serial(list: &Value) -> String {
    list["items"][0]["metadata"]["name"].as_str().unwrap().to_owned()
}

async fn wait_listed(client: &Client) -> Value {
    wait_until(TIMEOUT, "the list through the API server", async || ask(client, "certificates?limit=5").await.ok())
        .await
}

/// What `addon-signer check` prints.
async fn checked(hub: &TestHub) -> String {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("admin", &["system:masters"])).display().to_string();
    run(home.path(), &["check", "--kubeconfig", &kubeconfig]).await.stdout
}

#[tokio::test]
async fn a_kubeconfig_and_the_readers_role_are_enough() {
    let (log, _, _guard) = capture_audit();
    let Some((hub, stage)) = start().await else { return };
    let alice = as_user(&hub, "alice").await;
    let list = wait_listed(&alice).await;
    let serial = serial(&list);
    let one: Value = ask(&alice, &format!("certificates/{serial}")).await.unwrap();
    assert_eq!(
        (&one["metadata"]["name"], &one["signerName"]),
        (&json!(serial), &json!("addon-signer.io/gateway-serving"))
    );
    let entries: Value = ask(&alice, "entries?limit=1").await.unwrap();
    assert_eq!((&entries["items"][0]["entryKind"], &entries["metadata"]["continue"]), (&json!("opened"), &json!("1")));
    let missing = ask::<Value>(&alice, "certificates/0a1c").await.unwrap_err();
    assert_eq!(missing.to_string(), "the ledger has no certificate or CSR named \"0a1c\"; it may be in an archive");
    // The user is the one that Kubernetes has authenticated, whatever the CSR says.
    let forged = hyper::Request::get(format!("{BASE}/certificates")).header("x-remote-user", "root").body(Vec::new());
    let _: Value = alice.request(forged.unwrap()).await.unwrap();
    let users: Vec<_> =
        log.json().into_iter().filter(|line| line["event"] == "inventory").map(|line| line["user"].clone()).collect();
    assert!(users.iter().all(|user| user == "alice"), "{users:?}");
    assert!(users.len() >= 4, "{users:?}");

    let mut found = checked(&hub).await;
    assert!(found.contains("ok   inventory: the API server can reach it\n"), "{found}");
    let services: Api<Service> = Api::namespaced(stage.admin.clone(), "addon-signer");
    let elsewhere = json!({ "spec": { "externalName": "elsewhere.invalid" } });
    services.patch("addon-signer-inventory", &PatchParams::default(), &Patch::Merge(&elsewhere)).await.unwrap();
    wait_until(TIMEOUT, "the API server to miss the inventory", async || {
        found = checked(&hub).await;
        found.contains("BAD  inventory: the API server cannot reach it: ").then_some(())
    })
    .await;
    let back = json!({ "spec": { "externalName": "localhost" } });
    services.patch("addon-signer-inventory", &PatchParams::default(), &Patch::Merge(&back)).await.unwrap();
    wait_listed(&alice).await;

    let mallory = as_user(&hub, "mallory").await;
    let refused = ask::<Value>(&mallory, "certificates").await.unwrap_err();
    assert!(matches!(refused, QuestionError::Forbidden { verb: "list", .. }), "{refused}");
    for verb in ["create", "delete"] {
        let body = if verb == "create" { hyper::Request::post } else { hyper::Request::delete };
        let request = body(format!("{BASE}/certificates")).body(Vec::new()).unwrap();
        let refused = alice.request::<Value>(request).await.unwrap_err();
        assert!(matches!(refused, kube::Error::Api(status) if status.code == 403), "{verb}");
    }
    stage.stop().await;
    let gone = ask::<Value>(&alice, "certificates").await.unwrap_err();
    assert!(matches!(gone, QuestionError::NotServed(_)), "{gone}");
}

/// A right to one certificate by name is no right to the list, although Kubernetes authorizes a list with that name as
/// selector.
#[tokio::test]
async fn the_right_to_one_certificate_is_no_right_to_all() {
    let Some((hub, stage)) = start().await else { return };
    let serial = serial(&wait_listed(&as_user(&hub, "alice").await).await);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "one" },
        "rules": [{
            "apiGroups": ["ledger.addon-signer.io"], "resources": ["certificates"], "resourceNames": [serial],
            "verbs": ["get", "list"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "one" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "one" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob" }],
    });
    test_kit::deploy::apply(&stage.admin, &[role, binding]).await;
    let bob = as_user(&hub, "bob").await;
    wait_until(TIMEOUT, "the right to one", async || ask::<Value>(&bob, &format!("certificates/{serial}")).await.ok())
        .await;
    let all = ask::<Value>(&bob, "certificates").await.unwrap_err();
    assert!(matches!(all, QuestionError::Forbidden { .. }), "{all}");
    let narrowed =
        ask::<Value>(&bob, &format!("certificates?fieldSelector=metadata.name%3D{serial}")).await.unwrap_err();
    assert_eq!(
        narrowed.to_string(),
        "the inventory cannot be read: ledger.addon-signer.io does not support fieldSelector"
    );
    stage.stop().await;
}

#[tokio::test]
async fn the_command_line_needs_nothing_but_a_kubeconfig() {
    let Some((hub, stage)) = start().await else { return };
    let serial = serial(&wait_listed(&as_user(&hub, "alice").await).await);
    let real = hub.real().unwrap();
    let certs = async |user: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_addon-signer"));
        command.env_clear().env("HOME", real.dir()).arg("certs").args(arguments);
        command.arg("--kubeconfig").arg(real.kubeconfig_file(user, user, &[])).output().await.unwrap()
    };
    let listed = certs("alice", &["list", "--output", "json"]).await;
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(listed.to_string().contains(&serial), "{listed}");
    let shown = certs("alice", &["show", &serial]).await;
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("gateway-serving (addon-signer.io/gateway-serving)"), "{text}");
    let refused = certs("mallory", &["list"]).await;
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(message.contains("your account may not list certificates"), "{message}");
    stage.stop().await;
}

#[tokio::test]
async fn kubectl_finds_the_inventory_by_discovery() {
    let Some((hub, stage)) = start().await else { return };
    let serial = serial(&wait_listed(&as_user(&hub, "alice").await).await);
    let real = hub.real().unwrap();
    let kubeconfig = real.kubeconfig_file("alice", "alice", &[]);
    let found = wait_until(TIMEOUT, "kubectl to list the inventory", async || {
        let mut kubectl = Command::new(real.binary("kubectl"));
        kubectl.args(["get", "certificates.ledger.addon-signer.io", "-o", "name"]);
        let output = kubectl.arg("--kubeconfig").arg(&kubeconfig).env("HOME", real.dir()).output().await.unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    })
    .await;
    assert_eq!(found, format!("certificate.ledger.addon-signer.io/{serial}\n"));
    stage.stop().await;
}

#[tokio::test]
async fn inventory_answers_through_serving_authority_rotation() {
    let Some((hub, stage)) = start().await else { return };
    let alice = as_user(&hub, "alice").await;
    wait_listed(&alice).await;
    let asking = tokio::spawn({
        let alice = alice.clone();
        async move {
            let mut asked = 0_u32;
            loop {
                if let Err(error) = ask::<Value>(&alice, "certificates").await {
                    return (asked, error.to_string());
                }
                asked += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    let (before, after) = stage.rotate().await;
    assert_ne!(before, after);
    let front_proxy = stage.front_proxy(&hub, "front-proxy-client");
    wait_until(TIMEOUT, "the inventory to show the new certificate", async || {
        stage.issuer(stage.inventory, &front_proxy).await.filter(|id| *id == after)
    })
    .await;
    pass(Duration::from_secs(2)).await;
    wait_listed(&alice).await;
    if asking.is_finished() {
        panic!("a question failed: {:?}", asking.await.unwrap());
    }
    asking.abort();
    stage.stop().await;
}
