//! The chart grants our programs no right that they do not use, by the audit logs of all tests on real API servers.

use std::collections::BTreeSet;
use std::env;

use serde_json::{Value, json};

use super::{all_objects, items, name, of_kind};
use test_kit::rights::{Right, read};

/// What a hub does that the audit log does not show: when it approves, signs and attests, an admission plugin asks for
/// the right to do that for the signer.
const BY_ADMISSION: [(&str, &str); 3] = [
    ("approve", "certificatesigningrequests/approval"),
    ("sign", "certificatesigningrequests/status"),
    ("attest", "clustertrustbundles"),
];

/// Role, verb and resource of what no test can use. The library that writes events patches one that repeats within six
/// minutes, such as that of an alarm that comes and goes; the tests have no such alarm.
const NOT_REACHED: [(&str, &str, &str); 1] = [("Role addon-signer-events", "patch", "events")];

/// The rights of the roles that are bound to an account. Nobody is bound to the roles for people.
fn granted(objects: &[Value]) -> BTreeSet<Right> {
    let mut bindings: Vec<_> =
        ["ClusterRoleBinding", "RoleBinding"].into_iter().flat_map(|kind| of_kind(objects, kind)).collect();
    // The chart's test has the rights of people; `cluster::lifecycle` runs it.
    bindings.retain(|binding| binding["subjects"][0]["name"] != "addon-signer-check");
    let is_bound = |kind: &str, role: &Value| {
        let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name(role) });
        bindings.iter().any(|binding| binding["roleRef"] == reference)
    };
    let mut rights = BTreeSet::new();
    for kind in ["ClusterRole", "Role"] {
        for role in of_kind(objects, kind).into_iter().filter(|role| is_bound(kind, role)) {
            let role_name = format!("{kind} {}", name(role));
            rights.extend(items(role, "/rules").into_iter().flat_map(|rule| rights_of(&role_name, rule)));
        }
    }
    rights
}

/// The rights of one rule.
fn rights_of(role: &str, rule: &Value) -> Vec<Right> {
    let texts = |field: &str| items(rule, field).into_iter().map(|text| text.as_str().unwrap().to_owned());
    let mut names: Vec<_> = texts("/resourceNames").map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    let mut rights = Vec::new();
    for group in texts("/apiGroups") {
        for resource in texts("/resources") {
            for verb in texts("/verbs") {
                rights.extend(names.iter().map(|name| Right {
                    role: role.to_owned(),
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                }));
            }
        }
    }
    rights
}

fn is_used(right: &Right, used: &BTreeSet<Right>) -> bool {
    let by_admission = BY_ADMISSION.into_iter().find(|(verb, _)| right.resource == "signers" && right.verb == *verb);
    let without_name = |right: &Right| Right { name: None, ..right.clone() };
    used.iter().any(|used| match by_admission {
        Some((_, written)) => used.resource == written && used.verb == "update",
        None => {
            without_name(used) == without_name(right) && right.name.as_ref().is_none_or(|_| used.name == right.name)
        }
    })
}

/// Looks at what all other tests have done, so `.ci/run real` runs it after them, with this variable.
#[test]
fn every_right_of_deploy_is_used() {
    let Some(from) = std::env::var_os("ADDON_SIGNER_ALL_USED_RIGHTS") else {
        eprintln!("skipped: ADDON_SIGNER_ALL_USED_RIGHTS names no directory: see .ci/run");
        return;
    };
    let used = read(from.as_ref());
    // Before Kubernetes 1.33 there are no ClusterTrustBundles that the hub uses.
    let has_bundles = env::var("ADDON_SIGNER_TESTS_KUBERNETES").map_or(true, |version| version.as_str() >= "v1.33");
    let is_reached = |right: &Right| {
        let is_named = NOT_REACHED.contains(&(&*right.role, &*right.verb, &*right.resource));
        !is_named && (has_bundles || !right.role.ends_with("addon-signer-cluster-trust-bundle"))
    };
    let granted = granted(&all_objects()).into_iter();
    let unused: Vec<_> = granted.filter(|right| is_reached(right) && !is_used(right, &used)).collect();
    assert!(unused.is_empty(), "no test uses these rights: {unused:#?}");
}

#[test]
fn a_right_that_nothing_uses_is_found() {
    let rule = |verbs: Value, resources: Value, names: Value| {
        json!({
            "apiGroups": ["certificates.k8s.io"], "resources": resources, "verbs": verbs, "resourceNames": names,
        })
    };
    let role = |name: &str, rules: Value| {
        json!({
            "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules,
        })
    };
    let objects = [
        role("people", json!([rule(json!(["get"]), json!(["certificatesigningrequests"]), json!([]))])),
        role(
            "hub",
            json!([
                rule(json!(["get", "list"]), json!(["certificatesigningrequests"]), json!(["a", "b"])),
                rule(json!(["update"]), json!(["certificatesigningrequests/status"]), json!([])),
                rule(json!(["approve", "sign"]), json!(["signers"]), json!(["x/y"])),
            ]),
        ),
        json!({
            "kind": "ClusterRoleBinding", "metadata": { "name": "hub" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "hub" },
        }),
    ];
    let used = |role: &str, verb: &str, resource: &str, name: &str| Right {
        role: format!("ClusterRole {role}"),
        verb: verb.to_owned(),
        group: "certificates.k8s.io".to_owned(),
        resource: resource.to_owned(),
        name: Some(name.to_owned()),
    };
    let used = BTreeSet::from([
        used("hub", "get", "certificatesigningrequests", "a"),
        used("hub", "list", "certificatesigningrequests", "a"),
        used("hub", "list", "certificatesigningrequests", "b"),
        used("other", "get", "certificatesigningrequests", "b"),
        used("hub", "update", "certificatesigningrequests/status", "c"),
    ]);
    let unused = granted(&objects).into_iter().filter(|right| !is_used(right, &used));
    let unused: Vec<_> = unused.map(|right| (right.verb, right.resource, right.name.unwrap())).collect();
    let expected = [("approve", "signers", "x/y"), ("get", "certificatesigningrequests", "b")];
    assert_eq!(unused, expected.map(|(verb, resource, name)| (verb.to_owned(), resource.to_owned(), name.to_owned())));
}
