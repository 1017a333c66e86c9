//! deploy/ in a namespace of another name, by the kustomization of docs/install.md, if kubectl is installed.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::Value;

use super::{dir, documents, manifests, of_kind};

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
        eprintln!("kubectl is not on PATH: this test did nothing");
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
    let kustomization = documented() + "components: [../deploy/postgres]\n";
    let Some(rendered) = render(&kustomization) else { return };
    let policy = documents(&dir("postgres/network-policy.yaml"));
    let expected: Vec<Value> = manifests(".").into_iter().chain(policy).map(moved).collect();
    assert_eq!(by_name(rendered), by_name(expected));
}

/// What kustomize cannot find: the namespace inside of an argument.
#[test]
fn no_argument_names_the_namespace() {
    for deployment in of_kind(&manifests("."), "Deployment") {
        let text = deployment.to_string();
        assert!(!text.contains(".addon-signer.") && !text.contains("=addon-signer\""), "{text}");
    }
}
