//! The patch formats: RFC 7386, RFC 6902, and what of strategic merge and apply our kinds need. Pure.

use serde_json::{Map, Value};

/// A patch that cannot be applied.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatchError {
    #[error("the patch is not a JSON object")]
    NotAnObject,
    #[error("the JSON patch is malformed: {0}")]
    Malformed(String),
    #[error("the JSON patch cannot be applied: {op} {path:?}: {cause}")]
    Inapplicable { op: String, path: String, cause: &'static str },
}

/// The lists that strategic merge and apply merge by key instead of replacing
/// (`patchMergeKey` of k8s.io/api, `x-kubernetes-list-map-keys` of OCM's CRDs).
const KEYED_LISTS: &[(&str, &str)] =
    &[("conditions", "type"), ("ownerReferences", "uid"), ("secrets", "name"), ("imagePullSecrets", "name")];

/// RFC 7386: objects merge, `null` removes, everything else replaces.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    edit(target, |target| {
        for (field, value) in patch {
            if value.is_null() {
                target.remove(field);
            } else {
                merge(target.entry(field).or_insert(Value::Null), value);
            }
        }
    });
}

/// Merge with lists that have keys, and the directives that kubectl writes.
/// Server-side apply uses it too: the stand-in keeps no field ownership.
pub(super) fn strategic(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::NotAnObject);
    };
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        *target = Value::Object(without_directives(patch));
        return Ok(());
    }
    edit(target, |target| {
        for (field, value) in patch {
            if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
                remove_primitives(target, list, value);
            } else if !field.starts_with('$') {
                strategic_field(target, field, value)?;
            }
        }
        Ok(())
    })
}

fn strategic_field(target: &mut Map<String, Value>, field: &str, value: &Value) -> Result<(), PatchError> {
    let key = KEYED_LISTS.iter().find(|(list, _)| *list == field);
    match (value, key) {
        (Value::Null, _) => {
            target.remove(field);
        }
        (Value::Object(_), _) => {
            strategic(target.entry(field).or_insert(Value::Null), value)?;
        }
        (Value::Array(items), Some((_, key))) => {
            let list = target.entry(field).or_insert_with(|| Value::Array(Vec::new()));
            merge_keyed(list, items, key)?;
        }
        (Value::Array(items), None) if field == "finalizers" => {
            let list = target.entry(field).or_insert_with(|| Value::Array(Vec::new()));
            if let Some(list) = list.as_array_mut() {
                list.extend(items.iter().filter(|i| !list.contains(i)).cloned().collect::<Vec<_>>());
            }
        }
        _ => {
            target.insert(field.to_owned(), value.clone());
        }
    }
    Ok(())
}

fn merge_keyed(list: &mut Value, items: &[Value], key: &str) -> Result<(), PatchError> {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Some(list) = list.as_array_mut() else {
        return Ok(()); // just made one
    };
    for item in items {
        let id = item.get(key);
        let place = list.iter().position(|old| old.get(key) == id);
        if item.get("$patch").and_then(Value::as_str) == Some("delete") {
            list.retain(|old| old.get(key) != id);
        } else if let Some(old) = place.and_then(|i| list.get_mut(i)) {
            strategic(old, item)?;
        } else {
            list.push(item.clone());
        }
    }
    Ok(())
}

fn remove_primitives(target: &mut Map<String, Value>, list: &str, gone: &Value) {
    if let (Some(Value::Array(list)), Some(gone)) = (target.get_mut(list), gone.as_array()) {
        list.retain(|item| !gone.contains(item));
    }
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch
        .iter()
        .filter(|(field, _)| !field.starts_with('$'))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect()
}

/// Changes a value as an object; anything else becomes an empty object first.
fn edit<R>(value: &mut Value, change: impl FnOnce(&mut Map<String, Value>) -> R) -> R {
    let mut map = match value.take() {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let result = change(&mut map);
    *value = Value::Object(map);
    result
}

/// RFC 6902: all operations or none.
pub(super) fn json_patch(target: &mut Value, operations: &Value) -> Result<(), PatchError> {
    let operations = operations.as_array().ok_or_else(|| PatchError::Malformed("not a list of operations".into()))?;
    let mut result = target.clone();
    for operation in operations {
        apply_operation(&mut result, operation)?;
    }
    *target = result;
    Ok(())
}

fn apply_operation(target: &mut Value, operation: &Value) -> Result<(), PatchError> {
    let member = |name: &str| operation.get(name).and_then(Value::as_str);
    let malformed = |what: &str| PatchError::Malformed(what.to_owned());
    let op = member("op").ok_or_else(|| malformed("an operation has no op"))?;
    let path = member("path").ok_or_else(|| malformed("an operation has no path"))?;
    let value = || operation.get("value").cloned().ok_or_else(|| malformed("an operation has no value"));
    let from = || member("from").ok_or_else(|| malformed("an operation has no from"));
    let inapplicable = |cause| PatchError::Inapplicable { op: op.to_owned(), path: path.to_owned(), cause };
    let outcome = match op {
        "add" => add(target, path, value()?),
        "remove" => take(target, path).map(drop),
        "replace" => take(target, path).and_then(|_| add(target, path, value().ok()?)),
        "move" => take(target, from()?).and_then(|moved| add(target, path, moved)),
        "copy" => target.pointer(from()?).cloned().and_then(|copied| add(target, path, copied)),
        "test" => {
            let wanted = value()?;
            if target.pointer(path) != Some(&wanted) {
                return Err(inapplicable("the value differs"));
            }
            Some(())
        }
        _ => return Err(malformed("unknown op")),
    };
    outcome.ok_or_else(|| inapplicable("there is no such place"))
}

fn add(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (parent, last) = split_pointer(path)?;
    match target.pointer_mut(parent)? {
        Value::Object(map) => {
            map.insert(last, value);
        }
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let place: usize = last.parse().ok()?;
            if place > list.len() {
                return None;
            }
            list.insert(place, value);
        }
        _ => return None,
    }
    Some(())
}

fn take(target: &mut Value, path: &str) -> Option<Value> {
    if path.is_empty() {
        return Some(target.take());
    }
    let (parent, last) = split_pointer(path)?;
    match target.pointer_mut(parent)? {
        Value::Object(map) => map.remove(&last),
        Value::Array(list) => {
            let place: usize = last.parse().ok()?;
            (place < list.len()).then(|| list.remove(place))
        }
        _ => None,
    }
}

/// RFC 6901: the parent's pointer and the unescaped last token.
fn split_pointer(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_removes_nulls_and_replaces_lists() {
        let mut object = json!({ "a": { "b": 1, "c": 2 }, "l": [1, 2] });
        merge(&mut object, &json!({ "a": { "b": null, "d": 3 }, "l": [3] }));
        assert_eq!(object, json!({ "a": { "c": 2, "d": 3 }, "l": [3] }));
    }

    #[test]
    fn json_patch_is_all_or_nothing() {
        let mut object = json!({ "m": { "a/b": 1 }, "l": [1] });
        let good = json!([
            { "op": "test", "path": "/m/a~1b", "value": 1 },
            { "op": "add", "path": "/l/-", "value": 2 },
            { "op": "add", "path": "/l/0", "value": 0 },
            { "op": "move", "from": "/m/a~1b", "path": "/n" },
            { "op": "replace", "path": "/n", "value": 5 },
        ]);
        json_patch(&mut object, &good).unwrap();
        assert_eq!(object, json!({ "m": {}, "l": [0, 1, 2], "n": 5 }));
        let bad = json!([{ "op": "remove", "path": "/n" }, { "op": "remove", "path": "/x" }]);
        assert!(json_patch(&mut object, &bad).is_err());
        assert_eq!(object["n"], 5);
        for malformed in [json!({}), json!([{}]), json!([{ "op": "fly", "path": "/a" }])] {
            let error = json_patch(&mut object, &malformed).unwrap_err();
            assert!(matches!(error, PatchError::Malformed(_)));
        }
    }

    #[test]
    fn strategic_merge_joins_conditions_by_type() {
        let mut object = json!({ "status": { "conditions": [
            { "type": "A", "status": "False" }, { "type": "B", "status": "True" },
        ] } });
        let patch = json!({ "status": {
            "$setElementOrder/conditions": [{ "type": "C" }, { "type": "A" }],
            "conditions": [
                { "type": "A", "status": "True" }, { "type": "C", "status": "True" },
                { "type": "B", "$patch": "delete" },
            ],
        } });
        strategic(&mut object, &patch).unwrap();
        assert_eq!(
            object["status"]["conditions"],
            json!([{ "type": "A", "status": "True" }, { "type": "C", "status": "True" }])
        );
    }

    #[test]
    fn strategic_merge_treats_finalizers_as_a_set() {
        let mut object = json!({ "metadata": { "finalizers": ["a", "b"] } });
        let patch = json!({ "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b", "c"],
        } });
        strategic(&mut object, &patch).unwrap();
        let mut finalizers: Vec<_> = object["metadata"]["finalizers"].as_array().unwrap().clone();
        finalizers.retain(|f| f != "a");
        assert_eq!(finalizers, [json!("b"), json!("c")]);
    }
}
