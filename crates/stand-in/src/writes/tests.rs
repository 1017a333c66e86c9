//! Tests of writes on the store, without a server.

use super::*;
use crate::auth::User;
use crate::deletion::{Deleted, delete};
use crate::store::Stamp;

fn mk_user() -> User {
    User::new("bob", &["g"])
}

fn mk_write<'a>(user: &'a User, group: &str, version: &str, plural: &str, namespace: &'a str) -> Write<'a> {
    Write {
        resource: Resource::find(group, version, plural).unwrap(),
        subresource: None,
        namespace,
        user,
        stamp: Stamp { now: "2001-09-09T01:46:40Z".into(), uid: "u1".into(), suffix: "xyz12".into() },
        dry_run: false,
        strict: false,
    }
}

fn mk_secrets(user: &User) -> Write<'_> {
    mk_write(user, "", "v1", "secrets", "ns")
}

fn mk_addons(user: &User) -> Write<'_> {
    let group = "addon.open-cluster-management.io";
    mk_write(user, group, "v1alpha1", "managedclusteraddons", "ns")
}

fn mk_namespaces(user: &User) -> Write<'_> {
    mk_write(user, "", "v1", "namespaces", "")
}

fn mk_store(user: &User) -> Store {
    let mut store = Store::default();
    let ns = json!({ "metadata": { "name": "ns" } });
    create(&mut store, &mk_namespaces(user), ns).unwrap();
    store
}

fn mk_object(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

/// Merges `patch` into the stored object of this name.
fn change(store: &mut Store, w: &Write<'_>, name: &str, patch: &Value) -> Result<Value, ApiError> {
    update(store, w, name, false, |old| {
        let mut new = old.clone();
        json_patch::merge(&mut new, patch);
        Ok(new)
    })
}

#[test]
fn create_fills_metadata_and_writes_string_data_into_data() {
    let user = mk_user();
    let body = json!({ "metadata": { "generateName": "s-" }, "stringData": { "a": "b" } });
    let secret = create(&mut mk_store(&user), &mk_secrets(&user), body).unwrap();
    assert_eq!(
        secret,
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": { "a": "Yg==" },
            "metadata": { "name": "s-xyz12", "generateName": "s-", "namespace": "ns", "uid": "u1",
                "creationTimestamp": "2001-09-09T01:46:40Z", "resourceVersion": "2" },
        })
    );
}

#[test]
fn create_refuses_what_the_api_server_refuses() {
    let user = mk_user();
    let mut store = mk_store(&user);
    let w = mk_secrets(&user);
    create(&mut store, &w, mk_object("a")).unwrap();
    let again = create(&mut store, &w, mk_object("a"));
    assert!(matches!(again, Err(ApiError::AlreadyExists { .. })));
    for bad in [json!({}), mk_object("Upper"), mk_object("-a")] {
        let refused = create(&mut store, &w, bad);
        assert!(matches!(refused, Err(ApiError::Invalid { .. })));
    }
    let other_kind = json!({ "kind": "Pod", "metadata": { "name": "b" } });
    assert!(matches!(create(&mut store, &w, other_kind), Err(ApiError::BadRequest(_))));
    let elsewhere = Write { namespace: "missing", ..mk_secrets(&user) };
    let refused = create(&mut store, &elsewhere, mk_object("b"));
    assert_eq!(refused.unwrap_err().to_string(), "namespaces \"missing\" not found");
}

#[test]
fn a_bundle_is_named_after_its_signer_and_has_anchors() {
    let anchors = include_str!("../../../../certs/profiles/serving-ca.pem");
    let user = mk_user();
    let w = mk_write(&user, "certificates.k8s.io", "v1", "clustertrustbundles", "");
    let mk = |name: &str, signer: &str, anchors: &str| {
        let spec = json!({ "signerName": signer, "trustBundle": anchors });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let try_create = |bundle: Value| create(&mut mk_store(&user), &w, bundle).map(drop);
    for (name, signer) in [("a", ""), ("a.b:c:d", "a.b/c")] {
        assert!(try_create(mk(name, signer, anchors)).is_ok(), "{name}");
        for bad in ["", "x", &anchors.replace("CERTIFICATE", "PUBLIC KEY")] {
            assert!(matches!(try_create(mk(name, signer, bad)), Err(ApiError::Invalid { .. })), "{bad}");
        }
    }
    for (name, signer) in [("a.b:c:d", ""), ("a", "a.b/c"), ("a.b:c:", "a.b/c"), ("a.b:d:e", "a.b/c")] {
        assert!(matches!(try_create(mk(name, signer, anchors)), Err(ApiError::Invalid { .. })), "{name}");
    }
    let mut store = mk_store(&user);
    let made = create(&mut store, &w, mk("a", "", anchors)).unwrap();
    let unversioned = update(&mut store, &w, "a", true, |_| Ok(mk("a", "", anchors)));
    assert!(matches!(unversioned, Err(ApiError::Invalid { .. })));
    let of_another = update(&mut store, &w, "a", true, |_| {
        let mut other = made.clone();
        other["spec"]["signerName"] = "a.b/c".into();
        Ok(other)
    });
    assert!(of_another.unwrap_err().to_string().contains("spec.signerName"));
}

#[test]
fn stale_version_is_a_conflict_and_no_change_is_no_write() {
    let user = mk_user();
    let mut store = mk_store(&user);
    let w = mk_secrets(&user);
    let first = create(&mut store, &w, mk_object("a")).unwrap();
    let patch = json!({ "metadata": { "labels": { "x": "y" } } });
    let second = change(&mut store, &w, "a", &patch).unwrap();
    assert_eq!(change(&mut store, &w, "a", &patch).unwrap(), second);
    let stale = update(&mut store, &w, "a", true, |_| Ok(first));
    assert!(matches!(stale, Err(ApiError::Conflict { .. })));
}

#[test]
fn spec_and_status_are_separate_and_generation_counts_spec() {
    let user = mk_user();
    let mut store = mk_store(&user);
    let w = mk_addons(&user);
    let status = Write { subresource: Some("status"), ..mk_addons(&user) };
    let body = json!({ "metadata": { "name": "a" }, "spec": { "x": 1 }, "status": { "y": 1 } });
    assert!(create(&mut store, &w, body).unwrap().get("status").is_none());
    let both = json!({ "metadata": { "labels": { "l": "m" } }, "spec": { "x": 2 }, "status": { "y": 2 } });
    let written = change(&mut store, &status, "a", &both).unwrap();
    assert_eq!((&written["spec"], &written["status"]), (&json!({ "x": 1 }), &json!({ "y": 2 })));
    assert_eq!(written["metadata"]["generation"], 1);
    assert!(written["metadata"].get("labels").is_none());
    let both = json!({ "spec": { "x": 3 }, "status": { "y": 3 } });
    let written = change(&mut store, &w, "a", &both).unwrap();
    assert_eq!((&written["spec"], &written["status"]), (&json!({ "x": 3 }), &json!({ "y": 2 })));
    assert_eq!(written["metadata"]["generation"], 2);
}

#[test]
fn finalizers_hold_a_deleted_object_until_the_last_is_gone() {
    let user = mk_user();
    let mut store = mk_store(&user);
    let w = mk_addons(&user);
    let body = json!({ "metadata": { "name": "a", "finalizers": ["f"] } });
    create(&mut store, &w, body).unwrap();
    let deleted = delete(&mut store, &w, "a", &json!({})).unwrap();
    assert!(matches!(deleted, Deleted::Waiting(object)
        if object["metadata"]["deletionTimestamp"] == "2001-09-09T01:46:40Z"));
    change(&mut store, &w, "a", &json!({ "metadata": { "finalizers": null } })).unwrap();
    let gone = delete(&mut store, &w, "a", &json!({}));
    assert!(matches!(gone, Err(ApiError::NotFound { .. })));
}

#[test]
fn a_deletion_keeps_its_preconditions() {
    let user = mk_user();
    let mut store = mk_store(&user);
    let w = mk_secrets(&user);
    create(&mut store, &w, mk_object("a")).unwrap();
    for wrong in [json!({ "uid": "u2" }), json!({ "resourceVersion": "1" })] {
        let refused = delete(&mut store, &w, "a", &json!({ "preconditions": wrong }));
        assert!(matches!(refused, Err(ApiError::Precondition { .. })));
    }
    let right = json!({ "preconditions": { "uid": "u1", "resourceVersion": "2" } });
    assert!(delete(&mut store, &w, "a", &right).is_ok());
}

#[test]
fn a_deleted_namespace_goes_when_its_content_is_gone() {
    let user = mk_user();
    let mut store = mk_store(&user);
    let w = mk_addons(&user);
    create(&mut store, &mk_secrets(&user), mk_object("s")).unwrap();
    let body = json!({ "metadata": { "name": "a", "finalizers": ["f"] } });
    create(&mut store, &w, body).unwrap();
    delete(&mut store, &mk_namespaces(&user), "ns", &json!({})).unwrap();
    assert!(store.get(&mk_secrets(&user).key("s")).is_none());
    let refused = create(&mut store, &w, mk_object("b"));
    assert!(matches!(refused, Err(ApiError::Forbidden(_))));
    change(&mut store, &w, "a", &json!({ "metadata": { "finalizers": [] } })).unwrap();
    assert!(store.get(&namespace_key("ns")).is_none());
}

#[test]
fn a_dry_run_stores_nothing() {
    let user = mk_user();
    let mut store = mk_store(&user);
    let dry = Write { dry_run: true, ..mk_secrets(&user) };
    create(&mut store, &dry, mk_object("a")).unwrap();
    assert!(store.get(&dry.key("a")).is_none());
}
