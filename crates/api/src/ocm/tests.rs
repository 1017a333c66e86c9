use serde_json::json;

use super::*;
use addon_signer_core::names::{ANNOTATION_REVOKE_BEFORE, ANNOTATION_REVOKED_BY, ANNOTATION_SUSPENDED};

const BEFORE: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-02-02T00:00:00Z";

fn mk_object(resource: &ApiResource, value: Value) -> DynamicObject {
    DynamicObject::new("x", resource).data(value)
}

#[test]
fn a_cluster_is_accepted_only_by_true() {
    let resource = managed_cluster_resource();
    for (spec, accepted) in [
        (json!({"spec": {"hubAcceptsClient": true}}), true),
        (json!({"spec": {"hubAcceptsClient": false}}), false),
        (json!({"spec": {"hubAcceptsClient": "true"}}), false),
        (json!({"spec": {}}), false),
        (Value::Null, false),
    ] {
        assert_eq!(hub_accepts_client(&mk_object(&resource, spec.clone())), accepted, "{spec}");
    }
}

#[test]
fn every_value_but_false_suspends() {
    let mut addon = mk_object(&AddOnApi::V1Beta1.resource(), Value::Null);
    assert!(!is_suspended(&addon));
    for (value, suspended) in [("true", true), ("True", true), ("", true), ("false", false)] {
        addon.metadata.annotations = Some([(ANNOTATION_SUSPENDED.to_owned(), value.to_owned())].into());
        assert_eq!(is_suspended(&addon), suspended, "{value:?}");
    }
}

#[test]
fn resources_have_ocms_names() {
    let beta = AddOnApi::V1Beta1.resource();
    assert_eq!(
        (beta.api_version.as_str(), beta.plural.as_str()),
        ("addon.open-cluster-management.io/v1beta1", "managedclusteraddons")
    );
    let cluster = managed_cluster_resource();
    assert_eq!(
        (cluster.api_version.as_str(), cluster.plural.as_str()),
        ("cluster.open-cluster-management.io/v1", "managedclusters")
    );
}

#[test]
fn a_revocation_is_read_on_the_dead_side_or_not_at_all() {
    let mut addon = mk_object(&AddOnApi::V1Beta1.resource(), Value::Null);
    let mut read = |before: Option<&str>, by: Option<&str>| {
        let pairs = [(ANNOTATION_REVOKE_BEFORE, before), (ANNOTATION_REVOKED_BY, by)];
        let given = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        addon.metadata.annotations = Some(given.collect());
        revocation(&addon).map(|found| found.map(|found| (found.before.to_string(), found.by)))
    };
    let now = NOW.to_owned();
    let ann = "ann".to_owned();
    assert_eq!(read(None, Some("2026-02-02T00:00:00Z ann")), Ok(None));
    assert_eq!(read(Some(NOW), None), Ok(Some((now.clone(), String::new()))));
    assert_eq!(read(Some("2026-02-01T23:59:59.000001Z"), None), Ok(Some((now.clone(), String::new()))));
    assert_eq!(read(Some("2026-02-02T01:00:00+01:00"), Some(&format!("{NOW} ann"))), Ok(Some((now.clone(), ann))));
    for (by, why) in
        [(format!("{BEFORE} ann"), "said of another time"), (NOW.to_owned(), "nobody"), (String::new(), "")]
    {
        assert_eq!(read(Some(NOW), Some(&by)), Ok(Some((now.clone(), String::new()))), "{why}");
    }
    let long = format!("{NOW} {}", "é".repeat(100_000));
    assert_eq!(read(Some(NOW), Some(&long)), Ok(Some((now, "é".repeat(256)))));
    for unreadable in ["", " ", "now", "1769990400", "2026-02-02", "2026-02-30T00:00:00Z", " 2026-02-02T00:00:00Z"] {
        assert_eq!(read(Some(unreadable), None), Err(UnreadableRevocation), "{unreadable:?}");
    }
}

#[test]
fn who_set_the_annotation_may_not_be_who_wrote_last() {
    let entry = |manager: &str, second: u8, fields: serde_json::Value| {
        let time = format!("2026-11-21T00:00:0{second}Z");
        json!({
            "manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    };
    let annotations = json!({ "f:metadata": { "f:annotations": { ".": {}, "f:addon-signer.io/suspended": {} } } });
    let mut status = entry("agent", 9, json!({ "f:status": { "f:registrations": {} } }));
    status["subresource"] = json!("status");
    let object = json!({ "managedFields": [
        entry("installer", 1, json!({ "f:spec": {} })),
        entry("kubectl-annotate", 2, annotations),
        entry("controller", 3, json!({ "f:spec": {} })),
        status,
    ] });
    let object: ObjectMeta = serde_json::from_value(object).unwrap();
    assert_eq!(annotator(&object, "addon-signer.io/suspended"), "kubectl-annotate");
    assert_eq!(annotator(&object, "addon-signer.io/revoked-by"), "");
    assert_eq!(last_manager(&object), "controller");
    assert_eq!(last_manager(&ObjectMeta::default()), "");
    let of_status = |field: &str| status_managers(&object, field).collect::<Vec<_>>();
    assert_eq!((of_status("registrations"), of_status("other")), (vec!["agent"], vec![]));
}
