use super::*;

const BEFORE: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-02-02T00:00:00Z";
const BOTH: [AddOnApi; 2] = [AddOnApi::V1Alpha1, AddOnApi::V1Beta1];

fn mk_registration() -> Registration {
    Registration {
        signer_name: "example.com/telemetry".to_owned(),
        user: "system:open-cluster-management:cluster:c1:addon:telemetry:agent:telemetry".to_owned(),
        groups: vec!["g1".to_owned(), "g2".to_owned()],
        organizational_units: vec!["ou".to_owned()],
    }
}

fn mk_condition(status: &str, reason: &str) -> Value {
    json!({
        "type": "RegistrationApplied", "status": status, "reason": reason,
        "message": "m", "lastTransitionTime": BEFORE, "observedGeneration": 7,
    })
}

/// What another signer and another controller have written, with fields that we do not know.
fn mk_foreign(api: AddOnApi) -> (Value, Value) {
    let entry = match api {
        AddOnApi::V1Alpha1 => {
            json!({"signerName": "kubernetes.io/kube-apiserver-client", "subject": {"user": "u"}, "new": 1})
        }
        AddOnApi::V1Beta1 => {
            json!({"type": "kubeClient", "kubeClient": {"subject": {"user": "u"}, "driver": "csr"}, "new": 1})
        }
    };
    let condition = json!({"type": "Available", "status": "False", "reason": "r", "message": "m", "new": {"x": [1]}});
    (entry, condition)
}

/// The object after a merge patch on its status.
fn merged(status: &Value, patch: &Value) -> Value {
    let mut after = status.as_object().cloned().unwrap_or_default();
    after.extend(patch.as_object().unwrap().clone());
    Value::Object(after)
}

#[test]
fn v1alpha1_entry_has_its_shape() {
    assert_eq!(
        mk_registration().render(AddOnApi::V1Alpha1),
        json!({
            "signerName": "example.com/telemetry",
            "subject": {
                "user": "system:open-cluster-management:cluster:c1:addon:telemetry:agent:telemetry",
                "groups": ["g1", "g2"],
                "organizationUnit": ["ou"],
            },
        })
    );
}

#[test]
fn v1beta1_entry_has_its_shape() {
    assert_eq!(
        mk_registration().render(AddOnApi::V1Beta1),
        json!({
            "type": "customSigner",
            "customSigner": {
                "signerName": "example.com/telemetry",
                "subject": {
                    "user": "system:open-cluster-management:cluster:c1:addon:telemetry:agent:telemetry",
                    "groups": ["g1", "g2"],
                    "organizationUnits": ["ou"],
                },
            },
        })
    );
}

#[test]
fn empty_lists_are_left_out() {
    let entry = Registration { groups: vec![], organizational_units: vec![], ..mk_registration() };
    assert_eq!(
        entry.render(AddOnApi::V1Alpha1),
        json!({"signerName": entry.signer_name, "subject": {"user": entry.user}})
    );
}

#[test]
fn a_status_without_anything_gets_entry_and_condition() {
    for api in BOTH {
        for empty in [Value::Null, json!({}), json!({"registrations": null, "conditions": null})] {
            let entry = mk_registration();
            assert_eq!(
                apply_registration(&empty, api, &entry, NOW),
                Some(json!({
                    "registrations": [entry.render(api)],
                    "conditions": [{
                        "type": "RegistrationApplied", "status": "True", "reason": "SetPermissionApplied",
                        "message": "Registration of the addon agent is configured", "lastTransitionTime": NOW,
                    }],
                }))
            );
        }
    }
}

#[test]
fn other_entries_and_conditions_stay_as_they_are() {
    for api in BOTH {
        let (entry, condition) = mk_foreign(api);
        let status = json!({"registrations": [entry], "conditions": [condition], "namespace": "ns"});
        let patch = apply_registration(&status, api, &mk_registration(), NOW).unwrap();
        assert_eq!(patch["registrations"], json!([entry, mk_registration().render(api)]));
        assert_eq!(patch["conditions"][0], condition);
        assert_eq!(patch.as_object().unwrap().len(), 2, "only the two lists are patched");

        let removed = remove_registration(&merged(&status, &patch), api, "example.com/telemetry", NOW).unwrap();
        assert_eq!(removed["registrations"], json!([entry]));
        assert_eq!(removed["conditions"], patch["conditions"]);
    }
}

#[test]
fn a_second_application_changes_nothing() {
    for api in BOTH {
        let status = apply_registration(&Value::Null, api, &mk_registration(), BEFORE).unwrap();
        assert_eq!(apply_registration(&status, api, &mk_registration(), NOW), None);
    }
}

#[test]
fn an_entry_that_differs_is_replaced_in_its_place_and_duplicates_go() {
    for api in BOTH {
        let (foreign, _) = mk_foreign(api);
        let wrong = Registration { user: "somebody else".to_owned(), ..mk_registration() };
        let status = json!({
            "registrations": [wrong.render(api), foreign, wrong.render(api)],
            "conditions": [mk_condition("True", "SetPermissionApplied")],
        });
        let patch = apply_registration(&status, api, &mk_registration(), NOW).unwrap();
        assert_eq!(patch["registrations"], json!([mk_registration().render(api), foreign]));
        assert_eq!(patch["conditions"], status["conditions"]);
    }
}

#[test]
fn unknown_fields_in_our_entry_are_no_difference() {
    let mut entry = mk_registration().render(AddOnApi::V1Beta1);
    entry["customSigner"]["future"] = json!(true);
    let status = json!({"registrations": [entry], "conditions": [mk_condition("True", "SetPermissionApplied")]});
    assert_eq!(apply_registration(&status, AddOnApi::V1Beta1, &mk_registration(), NOW), None);
}

#[test]
fn a_signer_of_a_like_name_is_somebody_else() {
    let other = Registration { signer_name: "example.com/telemetry2".to_owned(), ..mk_registration() };
    let status = json!({"registrations": [other.render(AddOnApi::V1Alpha1)]});
    let patch = apply_registration(&status, AddOnApi::V1Alpha1, &mk_registration(), NOW).unwrap();
    assert_eq!(patch["registrations"][0], other.render(AddOnApi::V1Alpha1));
    assert_eq!(remove_registration(&status, AddOnApi::V1Alpha1, "example.com/telemetry", NOW), None);
}

#[test]
fn the_condition_becomes_true_and_keeps_what_it_does_not_know() {
    let status = json!({
        "registrations": [mk_registration().render(AddOnApi::V1Alpha1)],
        "conditions": [mk_condition("False", "PermissionConfigPending")],
    });
    let patch = apply_registration(&status, AddOnApi::V1Alpha1, &mk_registration(), NOW).unwrap();
    assert_eq!(
        patch["conditions"],
        json!([{
            "type": "RegistrationApplied", "status": "True", "reason": "SetPermissionApplied",
            "message": "Registration of the addon agent is configured", "lastTransitionTime": NOW,
            "observedGeneration": 7,
        }])
    );
}

#[test]
fn the_transition_time_moves_only_with_the_status() {
    let status = json!({"conditions": [mk_condition("True", "NilRegistration")]});
    let patch = apply_registration(&status, AddOnApi::V1Alpha1, &mk_registration(), NOW).unwrap();
    assert_eq!(patch["conditions"][0]["reason"], "SetPermissionApplied");
    assert_eq!(patch["conditions"][0]["lastTransitionTime"], BEFORE);
}

#[test]
fn a_failure_that_addon_framework_reports_is_not_cleared() {
    let status = json!({"conditions": [mk_condition("False", "SetPermissionFailed")]});
    let patch = apply_registration(&status, AddOnApi::V1Alpha1, &mk_registration(), NOW).unwrap();
    assert_eq!(patch["conditions"], status["conditions"]);
}

#[test]
fn removing_the_last_entry_reports_nil_registration() {
    for api in BOTH {
        let status = apply_registration(&Value::Null, api, &mk_registration(), BEFORE).unwrap();
        let patch = remove_registration(&status, api, "example.com/telemetry", NOW).unwrap();
        assert_eq!(patch["registrations"], json!([]));
        assert_eq!(patch["conditions"][0]["reason"], "NilRegistration");
        assert_eq!(patch["conditions"][0]["lastTransitionTime"], BEFORE);
        assert_eq!(remove_registration(&merged(&status, &patch), api, "example.com/telemetry", NOW), None);
    }
}

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
    let (now, ann) = (NOW.to_owned(), "ann".to_owned());
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
