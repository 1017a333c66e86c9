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

/// The patch for the signer's entries, if no entry of another program is good.
fn patch(status: &Value, api: AddOnApi, entries: WantedEntries) -> Option<Value> {
    apply_registrations(status, api, &BTreeMap::from([("example.com/telemetry", entries)]), |_| false, NOW)
}

/// The patch with our entry.
fn apply(status: &Value, api: AddOnApi) -> Option<Value> {
    patch(status, api, WantedEntries::One(mk_registration()))
}

/// The patch without any entry of the signer.
fn remove(status: &Value, api: AddOnApi) -> Option<Value> {
    patch(status, api, WantedEntries::Nothing)
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
                apply(&empty, api),
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
        let patch = apply(&status, api).unwrap();
        assert_eq!(patch["registrations"], json!([entry, mk_registration().render(api)]));
        assert_eq!(patch["conditions"][0], condition);
        assert_eq!(patch.as_object().unwrap().len(), 2, "only the two lists are patched");

        let removed = remove(&merged(&status, &patch), api).unwrap();
        assert_eq!(removed["registrations"], json!([entry]));
        assert_eq!(removed.get("conditions"), None);
    }
}

#[test]
fn a_second_application_changes_nothing() {
    for api in BOTH {
        let status = apply(&Value::Null, api).unwrap();
        assert_eq!(apply(&status, api), None);
    }
}

#[test]
fn differing_entry_is_replaced_in_place_and_duplicates_go() {
    for api in BOTH {
        let (foreign, _) = mk_foreign(api);
        let wrong = Registration { user: "somebody else".to_owned(), ..mk_registration() };
        let status = json!({
            "registrations": [wrong.render(api), foreign, wrong.render(api)],
            "conditions": [mk_condition("True", "SetPermissionApplied")],
        });
        let patch = apply(&status, api).unwrap();
        assert_eq!(patch["registrations"], json!([mk_registration().render(api), foreign]));
        assert_eq!(patch.get("conditions"), None);
    }
}

#[test]
fn unknown_fields_in_our_entry_are_no_difference() {
    let mut entry = mk_registration().render(AddOnApi::V1Beta1);
    entry["customSigner"]["future"] = json!(true);
    let status = json!({"registrations": [entry], "conditions": [mk_condition("True", "SetPermissionApplied")]});
    assert_eq!(apply(&status, AddOnApi::V1Beta1), None);
}

#[test]
fn a_signer_of_a_like_name_is_somebody_else() {
    let other = Registration { signer_name: "example.com/telemetry2".to_owned(), ..mk_registration() };
    let status = json!({"registrations": [other.render(AddOnApi::V1Alpha1)]});
    let patch = apply(&status, AddOnApi::V1Alpha1).unwrap();
    assert_eq!(patch["registrations"][0], other.render(AddOnApi::V1Alpha1));
    assert_eq!(remove(&status, AddOnApi::V1Alpha1), None);
}

#[test]
fn a_report_that_is_there_stays_whoever_made_it() {
    let reports = [
        ("True", "NilRegistration"),
        ("True", "SomethingElse"),
        ("False", "SetPermissionFailed"),
        ("False", "PermissionConfigPending"),
    ];
    for (status, reason) in reports {
        let status = json!({"conditions": [mk_condition(status, reason)]});
        let patch = apply(&status, AddOnApi::V1Alpha1).unwrap();
        assert_eq!(patch, json!({"registrations": [mk_registration().render(AddOnApi::V1Alpha1)]}), "{reason}");
        assert_eq!(apply(&merged(&status, &patch), AddOnApi::V1Alpha1), None, "{reason}");
    }
}

#[test]
fn an_entry_that_somebody_else_wrote_well_stays_as_it_is() {
    for api in BOTH {
        let theirs = Registration { user: "another agent".to_owned(), ..mk_registration() };
        let status = json!({
            "registrations": [theirs.render(api)],
            "conditions": [mk_condition("True", "SetPermissionApplied")],
        });
        let good = |found: &Registration| *found == theirs;
        let wanted = BTreeMap::from([("example.com/telemetry", WantedEntries::One(mk_registration()))]);
        assert_eq!(apply_registrations(&status, api, &wanted, good, NOW), None);
        let patch = apply(&status, api).unwrap();
        assert_eq!(patch["registrations"], json!([mk_registration().render(api)]));
    }
}

#[test]
fn removing_the_last_entry_leaves_the_report() {
    for api in BOTH {
        let status = apply(&Value::Null, api).unwrap();
        let patch = remove(&status, api).unwrap();
        assert_eq!(patch, json!({"registrations": []}));
        assert_eq!(remove(&merged(&status, &patch), api), None);
    }
}

#[test]
fn entries_of_several_signers_come_and_go_in_one_patch() {
    for api in BOTH {
        let mk = |name: &str, user: &str| Registration {
            signer_name: format!("example.com/{name}"),
            user: user.to_owned(),
            ..mk_registration()
        };
        let [written, wrong, kept, gone, other] =
            [mk("a", "ours"), mk("a", "u"), mk("b", "theirs"), mk("d", "ours"), mk("d", "u")];
        let list = [&wrong, &kept, &gone, &mk("e", "u"), &other, &wrong].map(|entry| entry.render(api));
        let status = json!({"registrations": list, "conditions": [mk_condition("True", "SetPermissionApplied")]});
        let wanted = BTreeMap::from([
            ("example.com/a", WantedEntries::One(written.clone())),
            ("example.com/b", WantedEntries::One(mk("b", "ours"))),
            ("example.com/c", WantedEntries::One(mk("c", "ours"))),
            ("example.com/d", WantedEntries::Without(gone)),
            ("example.com/e", WantedEntries::Nothing),
        ]);
        let good = |found: &Registration| *found == kept;
        let patch = apply_registrations(&status, api, &wanted, good, NOW).unwrap();
        let after = [&written, &kept, &other, &mk("c", "ours")].map(|entry| entry.render(api));
        assert_eq!(patch, json!({ "registrations": after }));
        assert_eq!(apply_registrations(&merged(&status, &patch), api, &wanted, good, NOW), None);
    }
}

#[test]
fn that_registrations_are_left_is_said_once_and_taken_back() {
    let status = json!({"conditions": [mk_condition("True", "SetPermissionApplied")]});
    assert!(!is_left(&Value::Null));
    assert!(!is_left(&status));
    let left = merged(&status, &say_left(&status, true, NOW));
    assert!(is_left(&left));
    let again = merged(&left, &say_left(&left, true, NOW));
    assert_eq!(again["conditions"].as_array().unwrap().len(), 2);
    assert_eq!(merged(&again, &say_left(&again, false, NOW)), status);
}

#[test]
fn a_list_is_anothers_when_only_others_wrote_it() {
    let mut object = DynamicObject::new("telemetry", &AddOnApi::V1Beta1.resource());
    assert!(!is_anothers(&object), "nobody can tell");
    for (managers, anothers) in [(vec!["framework"], true), (vec!["framework", FIELD_MANAGER], false)] {
        let entry = |manager: &&str| {
            json!({
                "manager": manager, "operation": "Update", "subresource": "status",
                "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:registrations": {} } },
            })
        };
        let entries: Vec<Value> = managers.iter().map(entry).collect();
        object.metadata.managed_fields = Some(serde_json::from_value(json!(entries)).unwrap());
        assert_eq!(is_anothers(&object), anothers, "{managers:?}");
    }
}

#[test]
fn condition_about_certificate_stands_beside_others() {
    let status = json!({"conditions": [mk_condition("True", "SetPermissionApplied")]});
    let mk = |holds, reason, message: &str| CertificateCondition { holds, reason, message: message.to_owned() };
    let (waits, issued) = (mk(false, "NoRequest", "It waits."), mk(true, "Issued", "Until noon."));
    let first = merged(&status, &say_certificate(&status, Some(&waits), NOW).unwrap());
    assert_eq!(certificate_reported(&first), Some((false, "NoRequest", "It waits.")));
    assert_eq!(say_certificate(&first, Some(&waits), "later"), None);
    let other = mk(false, "Refused", "It waits for something else.");
    let second = merged(&first, &say_certificate(&first, Some(&other), "later").unwrap());
    assert_eq!(second["conditions"][1]["lastTransitionTime"], NOW, "its status is as before");
    let third = merged(&second, &say_certificate(&second, Some(&issued), "later").unwrap());
    assert_eq!(third["conditions"][1]["lastTransitionTime"], "later");
    assert_eq!(third["conditions"].as_array().unwrap().len(), 2);
    assert_eq!(merged(&third, &say_certificate(&third, None, NOW).unwrap()), status);
    assert_eq!((say_certificate(&status, None, NOW), certificate_reported(&status)), (None, None));
}
