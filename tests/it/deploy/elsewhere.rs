//! deploy/ in a namespace of another name, by the kustomization of docs/install.md, if kubectl is installed.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use super::{dir, manifests, of_kind};
use crate::support::needed::{Needed, skip};

/// The kustomization that the document shows.
fn documented() -> String {
    let document = std::fs::read_to_string(dir("../docs/install.md")).unwrap();
    let blocks = document.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.into_iter().find(|block| block.contains("namespace: pki")).unwrap()
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
    let kustomization = documented() + "components: [../deploy/inventory, ../deploy/postgres]\n";
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
    let kustomization = documented();
    let (base, _) = kustomization.split_once("  # With the component deploy/inventory").unwrap();
    let Some(rendered) = render(base) else { return };
    assert_eq!(by_name(rendered), by_name(manifests(".").into_iter().map(moved).collect()));
}

/// What kustomize cannot find: the namespace inside of an argument.
#[test]
fn no_argument_names_the_namespace() {
    for deployment in of_kind(&manifests("."), "Deployment") {
        let text = deployment.to_string();
        assert!(!text.contains(".addon-signer.") && !text.contains("=addon-signer\""), "{text}");
    }
}
