//! Which program wrote an object (`metadata.managedFields`). Kubernetes does not show a controller which user it was.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

/// The field manager of the last change of anything but a subresource; empty where the API server kept none.
#[must_use]
pub fn last_manager(object: &ObjectMeta) -> &str {
    let last = entries(object).max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    last.and_then(|entry| entry.manager.as_deref()).unwrap_or_default()
}

/// The field manager that set an annotation; empty if the annotation is absent, because a removal leaves no trace.
#[must_use]
pub fn annotator<'m>(object: &'m ObjectMeta, annotation: &str) -> &'m str {
    let field = format!("f:{annotation}");
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:metadata")?.get("f:annotations"));
        fields.is_some_and(|fields| fields.get(&field).is_some())
    };
    entries(object).find(owns).and_then(|entry| entry.manager.as_deref()).unwrap_or_default()
}

/// The field managers of a field of the status: the one that last changed its value, and all that wrote the same value
/// since.
pub fn status_managers<'m>(object: &'m ObjectMeta, field: &str) -> impl Iterator<Item = &'m str> {
    let field = format!("f:{field}");
    let owns = move |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:status"));
        fields.is_some_and(|fields| fields.get(&field).is_some())
    };
    object.managed_fields.iter().flatten().filter(owns).filter_map(|entry| entry.manager.as_deref())
}

fn entries(object: &ObjectMeta) -> impl Iterator<Item = &ManagedFieldsEntry> {
    object.managed_fields.iter().flatten().filter(|entry| entry.subresource.is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
}
