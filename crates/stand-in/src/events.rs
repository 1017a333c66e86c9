//! The two API versions of events share one storage: events are stored as `v1` and shown as either. Pure functions.

use serde_json::Value;

use super::resource::Resource;
use super::resources::EVENT_FIELDS;

/// The stored form of a body written to `resource`.
pub(super) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if resource.is_converted_event() {
        rename(&mut object, "v1", |(core, events)| (events, core));
    }
    object
}

/// The form in which `resource` shows a stored object.
pub(super) fn to_shown(resource: &Resource, object: &Value) -> Value {
    let mut object = object.clone();
    if resource.is_converted_event() {
        rename(&mut object, "events.k8s.io/v1", |pair| pair);
    }
    object
}

fn rename(
    object: &mut Value,
    api_version: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(map) = object.as_object_mut() else {
        return; // not an object: `update` refuses it
    };
    map.insert("apiVersion".into(), api_version.into());
    for pair in EVENT_FIELDS {
        let (from, to) = direction(*pair);
        if let Some(value) = map.remove(from) {
            map.insert(to.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_the_same_in_both_versions() {
        let events = Resource::find("events.k8s.io", "v1", "events").unwrap();
        let shown = json!({ "apiVersion": "events.k8s.io/v1", "note": "n", "regarding": {}, "reason": "r" });
        let stored = to_stored(events, shown.clone());
        assert_eq!(stored, json!({ "apiVersion": "v1", "message": "n", "involvedObject": {}, "reason": "r" }));
        assert_eq!(to_shown(events, &stored), shown);
    }
}
