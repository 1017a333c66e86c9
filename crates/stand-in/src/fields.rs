//! Reading and writing fields of JSON objects by dotted path.

use k8s_openapi::ByteString;
use serde_json::{Map, Value};

/// The value at a dotted path.
pub(super) fn get<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, field| value.get(field))
}

/// The string at a dotted path; empty if absent or of another type.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    get(object, path).and_then(Value::as_str).unwrap_or("")
}

/// The list at a dotted path; empty if absent or of another type.
pub(super) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    get(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The strings of the list at a dotted path.
pub(super) fn texts<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = &'a str> {
    list(object, path).iter().filter_map(Value::as_str)
}

/// Sets the value at a dotted path. Objects are created on the path; other values on it are replaced.
pub(super) fn set(object: &mut Value, path: &str, value: impl Into<Value>) {
    let mut place = object;
    for field in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Some(map) = place.as_object_mut() else {
            return; // never: it is an object now
        };
        place = map.entry(field).or_insert(Value::Null);
    }
    *place = value.into();
}

/// Removes the value at a dotted path and returns it.
pub(super) fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, field) = match path.rsplit_once('.') {
        Some((parent, field)) => (get_mut(object, parent)?, field),
        None => (object, path),
    };
    parent.as_object_mut()?.remove(field)
}

/// Copies the field from `from` to `to`, or removes it if `from` does not have it.
pub(super) fn keep(to: &mut Value, from: &Value, path: &str) {
    match get(from, path) {
        Some(value) => set(to, path, value.clone()),
        None => {
            remove(to, path);
        }
    }
}

/// The mutable value at a dotted path.
pub(super) fn get_mut<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(object, |value, field| value.get_mut(field))
}

/// Base64, the form of bytes in JSON.
pub(super) fn base64(bytes: &[u8]) -> String {
    match serde_json::json!(ByteString(bytes.to_vec())) {
        Value::String(text) => text,
        other => other.to_string(), // ByteString is a string in JSON
    }
}

/// The base64 field at a path, decoded; `None` if absent or not base64.
pub(super) fn bytes(object: &Value, path: &str) -> Option<Vec<u8>> {
    let field = get(object, path)?.clone();
    let bytes: ByteString = serde_json::from_value(field).ok()?;
    Some(bytes.0)
}

/// The condition of a type in `status.conditions`.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "status.conditions").iter().find(|condition| text(condition, "type") == kind)
}

/// The RFC 3339 timestamp of `seconds` since 1970, in UTC with whole seconds, as `metav1.Time` prints it.
pub(super) fn timestamp(seconds: i64) -> String {
    time::OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|t| t.format(&time::format_description::well_known::Rfc3339).ok())
        .unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned()) // only for years after 9999
}

/// Seconds since 1970 of an RFC 3339 timestamp.
pub(super) fn seconds(timestamp: &str) -> Option<i64> {
    time::OffsetDateTime::parse(timestamp, &time::format_description::well_known::Rfc3339)
        .ok()
        .map(time::OffsetDateTime::unix_timestamp)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn set_makes_the_objects_on_the_way() {
        let mut object = json!({ "a": 1 });
        set(&mut object, "b.c", "x");
        assert_eq!(object, json!({ "a": 1, "b": { "c": "x" } }));
        assert_eq!(remove(&mut object, "b.c"), Some(json!("x")));
        assert_eq!(remove(&mut object, "nowhere.c"), None);
    }

    #[test]
    fn timestamps_round_trip() {
        assert_eq!(timestamp(1_000_000_000), "2001-09-09T01:46:40Z");
        assert_eq!(seconds("2001-09-09T01:46:40Z"), Some(1_000_000_000));
    }
}
