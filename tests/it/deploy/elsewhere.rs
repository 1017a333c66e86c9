//! deploy/ with the kustomizations of docs/install.md, if kubectl is installed: in a namespace of another name, with
//! PostgreSQL, and an agent of another addon.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use super::{dir, manifests, of_kind};
use test_kit::accounts::GRPC_PROXY;
use test_kit::needed::{Needed, skip};

/// The beginning of every kustomization over deploy/.
const BASE: &str = "resources: [../deploy]\n";

/// The kustomization with these words that docs/install.md shows.
fn documented(words: &str) -> String {
    super::documented("docs/install.md", words)
}

/// What kustomize makes of the kustomization in a folder beside deploy/; `None` without kubectl.
fn render(kustomization: &str) -> Option<Vec<Value>> {
    let beside = tempfile::tempdir().unwrap();
    symlink(dir("."), beside.path().join("deploy")).unwrap();
    let folder = beside.path().join("my-hub");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("kustomization.yaml"), kustomization).unwrap();
    let Ok(output) = Command::new("kubectl").arg("kustomize").arg(&folder).output() else {
        skip(Needed::Kubectl);
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_saphyr::from_multiple(std::str::from_utf8(&output.stdout).unwrap()).unwrap())
}

/// The same objects in the namespace `pki`.
fn moved(mut value: Value) -> Value {
    if value["kind"] == "Namespace" {
        value["metadata"]["name"] = "pki".into();
    }
    rename(&mut value);
    value
}

fn rename(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.get("namespace").is_some_and(|namespace| namespace == "addon-signer") {
                members.insert("namespace".to_owned(), "pki".into());
            }
            members.values_mut().for_each(rename);
        }
        Value::Array(items) => items.iter_mut().for_each(rename),
        _ => {}
    }
}

fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    objects.into_iter().map(|object| (name(&object), object)).collect()
}

#[test]
fn everything_moves_to_another_namespace_but_what_must_stay() {
    let more = documented("name: addon-signer-inventory, fieldPath");
    let components = "components: [../deploy/inventory, ../deploy/postgres]\n";
    let kustomization = format!("{BASE}{}{more}{components}", documented("namespace: pki"));
    let Some(rendered) = render(&kustomization) else { return };
    let mut expected: Vec<Value> = [".", "inventory", "postgres"].into_iter().flat_map(manifests).map(moved).collect();
    for deployment in expected.iter_mut().filter(|object| object["kind"] == "Deployment") {
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container["args"].as_array_mut().unwrap().push("--inventory-listen=0.0.0.0:8444".into());
        container["ports"].as_array_mut().unwrap().push(json!({ "name": "inventory", "containerPort": 8444 }));
    }
    assert_eq!(by_name(rendered), by_name(expected));
}

#[test]
fn without_the_inventory_the_base_moves_alone() {
    let Some(rendered) = render(&format!("{BASE}{}", documented("namespace: pki"))) else { return };
    assert_eq!(by_name(rendered), by_name(manifests(".").into_iter().map(moved).collect()));
}

/// Replaces the values at these places.
fn replaced(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        *object.pointer_mut(pointer).unwrap() = value.clone();
    }
    object
}

#[test]
fn postgresql_needs_no_claim_and_may_use_another_port() {
    let Some(rendered) = render(&format!("resources: [../deploy]\n{}", documented("components: [../deploy/postgres]")))
    else {
        return;
    };
    let pod = "/spec/template/spec";
    let env = json!({ "name": "ADDON_SIGNER_LEDGER",
                      "valueFrom": { "secretKeyRef": { "name": "ledger-url", "key": "url" } } });
    let expected = [".", "postgres"].into_iter().flat_map(manifests).filter_map(|object| {
        Some(match (object["kind"].as_str()?, super::name(&object)) {
            ("PersistentVolumeClaim", _) => return None,
            ("NetworkPolicy", "addon-signer-postgres") => {
                replaced(object, &[("/spec/egress/0/ports/0/port", 6432.into())])
            }
            ("Deployment", _) => {
                let mount = json!([{ "name": "ledger-ca", "mountPath": "/etc/ledger", "readOnly": true }]);
                let volume = json!([{ "name": "ledger-ca", "configMap": { "name": "ledger-ca" } }]);
                let mut object = replaced(
                    object,
                    &[(&format!("{pod}/volumes"), volume), (&format!("{pod}/containers/0/volumeMounts"), mount)],
                );
                let all = object.pointer_mut(&format!("{pod}/containers/0/env")).unwrap();
                all.as_array_mut().unwrap().push(env.clone());
                object
            }
            _ => object,
        })
    });
    assert_eq!(by_name(rendered), by_name(expected.collect()));
}

#[test]
fn an_agent_of_another_addon_needs_only_the_documented_edits() {
    let Some(rendered) = render(&documented("resources: [../deploy/agent]")) else { return };
    let moved = ("/metadata/namespace", json!("open-cluster-management-agent"));
    let pod = "/spec/template/spec";
    let args = [
        "--cluster=cluster7",
        "--addon=logging",
        "--signer=example.com/logging",
        "--gateway=https://gateway.hub.example.com:8443",
        "--hub-kubeconfig=/var/run/hub/kubeconfig",
        "--secret-namespace=open-cluster-management-agent-addon",
    ];
    let expected = manifests("agent").into_iter().map(|object| match object["kind"].as_str().unwrap() {
        "ServiceAccount" => replaced(object, std::slice::from_ref(&moved)),
        "Role" => replaced(object, &[("/rules/1/resourceNames", json!(["logging-client-cert"]))]),
        "RoleBinding" => replaced(object, &[("/subjects/0/namespace", moved.1.clone())]),
        _ => replaced(
            object,
            &[
                moved.clone(),
                (&format!("{pod}/containers/0/image"), "registry.example.com/addon-signer-agent:0.1.0".into()),
                (&format!("{pod}/containers/0/args"), json!(args)),
                (&format!("{pod}/volumes/0/secret/secretName"), "hub-kubeconfig-secret".into()),
            ],
        ),
    });
    assert_eq!(by_name(rendered), by_name(expected.collect()));
}

/// The account in the hub's environment and in the policy.
fn accounts(objects: &[Value]) -> [String; 2] {
    let policy = of_kind(objects, "ValidatingAdmissionPolicy")[0];
    let hub = of_kind(objects, "Deployment")[0];
    let env = super::items(hub, "/spec/template/spec/containers/0/env");
    let flag = env.into_iter().find(|variable| variable["name"] == "ADDON_SIGNER_GRPC_PROXY_ACCOUNT").unwrap();
    let variable = &policy["spec"]["variables"][0];
    assert_eq!(variable["name"], "account");
    let quoted = variable["expression"].as_str().unwrap();
    [flag["value"].as_str().unwrap().to_owned(), quoted.trim_matches('\'').to_owned()]
}

#[test]
fn grpc_account_flag_and_policy_come_together_and_agree() {
    let with = |more: &str| format!("{BASE}components: [../deploy/grpc-account]\n{more}");
    let Some(rendered) = render(&with("")) else { return };
    assert_eq!(accounts(&rendered), [GRPC_PROXY, GRPC_PROXY]);
    let mut others = by_name(rendered);
    others.retain(|name, _| !name.contains("grpc") && !name.contains("Deployment"));
    let mut base = by_name(manifests("."));
    base.retain(|name, _| !name.contains("Deployment"));
    assert_eq!(others, base);
    let another = render(&with(&documented("ADDON_SIGNER_GRPC_PROXY_ACCOUNT"))).unwrap();
    assert_eq!(accounts(&another), ["system:serviceaccount:ocm:grpc"; 2]);
}

/// What kustomize cannot find: the namespace inside of an argument.
#[test]
fn no_argument_names_the_namespace() {
    for deployment in of_kind(&manifests("."), "Deployment") {
        let text = deployment.to_string();
        assert!(!text.contains(".addon-signer."), "{text}");
        assert!(!text.contains("=addon-signer\""), "{text}");
    }
}

/// With the patches of docs/install.md, in another namespace: who gets the calls, knows the names and may go where.
#[test]
fn gateways_apart_get_names_calls_and_backends() {
    let gateways = documented("components: [../deploy/gateway]");
    let two_signers = documented("path: /spec/replicas, value: 2").replace("patches: # besides yours\n", "");
    let Some(rendered) = render(&format!("{BASE}{}{gateways}{two_signers}", documented("namespace: pki"))) else {
        return;
    };
    let all = by_name(rendered);
    let object = |kind: &str, name: &str| &all[&format!("\"{kind}\" \"{name}\"")];
    for (deployment, replicas, role) in [("addon-signer", 2, "signer"), ("addon-signer-gateway", 3, "gateway")] {
        let spec = &object("Deployment", deployment)["spec"];
        assert_eq!((&spec["replicas"], &spec["strategy"]["type"]), (&json!(replicas), &json!("RollingUpdate")));
        let container = &spec["template"]["spec"]["containers"][0];
        let args = container["args"].as_array().unwrap();
        assert!(args.contains(&json!("--gateway-name=gateway.hub.example.com")), "{deployment}: {args:?}");
        let env = container["env"].as_array().unwrap();
        assert!(env.contains(&json!({ "name": "ADDON_SIGNER_ROLES", "value": role })), "{deployment}: {env:?}");
    }
    let labels = json!({ "app.kubernetes.io/name": "addon-signer", "app.kubernetes.io/component": "gateway" });
    assert_eq!(object("Deployment", "addon-signer-gateway")["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(object("Service", "addon-signer-gateway")["spec"]["selector"], labels);
    assert_eq!(object("NetworkPolicy", "addon-signer-gateway")["spec"]["podSelector"]["matchLabels"], labels);
    assert_eq!(object("PodDisruptionBudget", "addon-signer-gateway")["spec"]["selector"]["matchLabels"], labels);
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        assert_eq!(object(kind, "addon-signer-gateway")["subjects"][0]["namespace"], "pki", "{kind}");
    }
}
