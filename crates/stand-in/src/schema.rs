//! What the structural schema of a stored CustomResourceDefinition makes of an object of its kind, as in
//! kube-apiserver (`apiextensions-apiserver/pkg/apiserver`): unknown fields are pruned or refused, defaults are filled
//! in, values are checked. Pure functions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::fields::{self, list, text};
use super::resources::Resource;
use super::rules;
use super::status::{ApiError, Cause};
use super::store::{Store, Write, definition_key};

/// The schema of a field whose content is free.
static ANY: Value = Value::Bool(true);

/// The schema of a resource, if a CustomResourceDefinition with one is stored.
fn find<'s>(store: &'s Store, resource: &Resource) -> Option<&'s Value> {
    let versions = list(store.get(&definition_key(resource))?, "spec.versions");
    let served = versions.iter().find(|version| text(version, "name") == resource.version)?;
    fields::get(served, "schema.openAPIV3Schema")
}

/// Prunes what was sent, or refuses unknown fields if the caller wants that, and fills in defaults. `patched` means
/// that the object is the result of a patch.
pub(super) fn decode(store: &Store, w: &Write<'_>, object: &mut Value, patched: bool) -> Result<(), ApiError> {
    let Some(schema) = find(store, w.resource) else { return Ok(()) };
    let Resource { kind, version, .. } = w.resource;
    let refused = |why: String| format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}");
    let sent = object.clone();
    let mut unknown = Vec::new();
    complete(object, schema, "", &mut unknown);
    unknown.sort();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        let known = serde_json::from_value::<ObjectMeta>(metadata.clone().into());
        let known = json!(known.map_err(|error| ApiError::BadRequest(refused(error.to_string())))?);
        metadata.retain(|name, value| !value.is_null() && is_known(known.get(name), "metadata", name, &mut unknown));
    }
    if !w.strict || unknown.is_empty() {
        return Ok(());
    }
    let unknown: Vec<_> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    let words = format!("strict decoding error: {}", unknown.join(", "));
    if !patched {
        return Err(ApiError::BadRequest(refused(words)));
    }
    let cause = Cause::invalid("patch", sent.to_string(), &words);
    ApiError::unless_valid(w.resource, text(&sent, "metadata.name"), vec![cause])
}

/// Checks the values. What an update leaves as it is stays valid (`CRDValidationRatcheting`).
pub(super) fn causes(store: &Store, w: &Write<'_>, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(schema) = find(store, w.resource) {
        check(new, old, schema, "", &mut causes);
        if causes.iter().any(Cause::blocks_rules) {
            let words = "some validation rules were not checked because the object was invalid; correct the existing \
                         errors to complete validation";
            causes.push(Cause::invalid("<nil>", Value::Null, words));
        } else {
            check_rules(new, old, schema, "", &mut causes);
        }
    }
    causes
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The schema of what a schema does not name, if it lets that through.
fn rest(schema: &Value) -> Option<&'static Value> {
    (schema["x-kubernetes-preserve-unknown-fields"] == true || *schema == ANY).then_some(&ANY)
}

/// The schema of a field; `None` if the field is unknown.
fn field<'s>(schema: &'s Value, path: &str, name: &str) -> Option<&'s Value> {
    match name {
        "apiVersion" | "kind" | "metadata" if path.is_empty() => Some(&ANY),
        _ => schema["properties"].get(name).or(schema.get("additionalProperties")).or(rest(schema)),
    }
}

/// Whether a field has a schema; notes its path otherwise.
fn is_known(schema: Option<&Value>, path: &str, name: &str, unknown: &mut Vec<String>) -> bool {
    unknown.extend(schema.is_none().then(|| child(path, name)));
    schema.is_some()
}

/// Removes unknown fields, whose paths it notes, and nulls where null is not allowed; then fills in defaults.
fn complete(value: &mut Value, schema: &Value, path: &str, unknown: &mut Vec<String>) {
    if let Value::Object(map) = value {
        map.retain(|name, value| {
            let schema = field(schema, path, name);
            let is_null = value.is_null() && schema.is_some_and(|it| *it != ANY && it["nullable"] != true);
            is_known(schema, path, name, unknown) && !is_null
        });
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(default) = property.get("default") {
                map.entry(name).or_insert_with(|| default.clone());
            }
        }
        for (name, value) in map {
            if let Some(schema) = field(schema, path, name) {
                complete(value, schema, &child(path, name), unknown);
            }
        }
    } else if let Value::Array(items) = value {
        let schema = schema.get("items").or(rest(schema)).unwrap_or(&Value::Null);
        for (index, item) in items.iter_mut().enumerate() {
            complete(item, schema, &format!("{path}[{index}]"), unknown);
        }
    }
}

fn check(value: &Value, old: Option<&Value>, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if old == Some(value) || value.is_null() && schema["nullable"] == true {
        return;
    }
    let found = type_of(value);
    let wanted = match text(schema, "type") {
        "" if schema["x-kubernetes-int-or-string"] == true => "integer,string",
        wanted => wanted,
    };
    let is_number = wanted == "number" && value.is_number();
    if !wanted.is_empty() && !is_number && wanted.split(',').all(|wanted| wanted != found) {
        let words = format!("{path} in body must be of type {wanted}: {found:?}");
        return causes.push(Cause::type_invalid(path, found, &words));
    }
    let to_text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        let allowed: Vec<_> = allowed.iter().map(to_text).collect();
        causes.push(Cause::unsupported(path, &to_text(value), &allowed));
    }
    match value {
        Value::String(value) => check_text(value, schema, path, causes),
        Value::Number(number) => {
            let [least, most] = broken_bounds(number.as_f64().unwrap_or(0.0), schema, ["minimum", "maximum"]);
            let words = |words, bound| format!("{path} in body should be {words} than or equal to {bound}");
            causes.extend(least.map(|least| Cause::invalid(path, value.clone(), &words("greater", least))));
            causes.extend(most.map(|most| Cause::invalid(path, value.clone(), &words("less", most))));
        }
        Value::Array(items) => check_list(items, schema, path, causes),
        Value::Object(map) => check_map(map, old, schema, path, causes),
        Value::Null | Value::Bool(_) => {}
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The lower and the upper bound, if the size is outside.
fn broken_bounds<'s>(size: f64, schema: &'s Value, [least, most]: [&str; 2]) -> [Option<&'s Value>; 2] {
    let least = schema.get(least).filter(|bound| bound.as_f64().is_some_and(|bound| size < bound));
    [least, schema.get(most).filter(|bound| bound.as_f64().is_some_and(|bound| size > bound))]
}

fn check_text(value: &str, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let [least, most] = broken_bounds(value.chars().count() as f64, schema, ["minLength", "maxLength"]);
    let invalid = |words: String| Cause::invalid(path, value, &format!("{path} in body should {words}"));
    causes.extend(most.map(|most| Cause::too_long(path, &format!("may not be more than {most} bytes"))));
    causes.extend(least.map(|least| invalid(format!("be at least {least} chars long"))));
    let pattern = text(schema, "pattern");
    let matches = pattern.is_empty() || Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(value));
    causes.extend((!matches).then(|| invalid(format!("match '{pattern}'"))));
    if text(schema, "format") == "date-time" && fields::seconds(value).is_none() {
        causes.push(Cause::type_invalid(path, value, &format!("{path} in body must be of type date-time: {value:?}")));
    }
}

fn check_count(count: usize, schema: &Value, what: &str, path: &str, causes: &mut Vec<Cause>) {
    let names = [format!("min{what}"), format!("max{what}")];
    let [least, most] = broken_bounds(count as f64, schema, names.each_ref().map(String::as_str));
    let too_few = |least| format!("{path} in body should have at least {least} {}", what.to_lowercase());
    causes.extend(least.map(|least| Cause::invalid(path, count, &too_few(least))));
    causes.extend(most.map(|most| Cause::too_many(path, count, most)));
}

fn check_list(items: &[Value], schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    check_count(items.len(), schema, "Items", path, causes);
    for (index, item) in items.iter().enumerate() {
        check(item, None, &schema["items"], &format!("{path}[{index}]"), causes);
    }
    let keys: Vec<_> = fields::texts(schema, "x-kubernetes-list-map-keys").collect();
    let key = |item: &Value| keys.iter().filter_map(|key| Some((*key, item.get(key)?.clone()))).collect();
    let unique: Vec<Value> = match text(schema, "x-kubernetes-list-type") {
        "set" => items.to_vec(),
        "map" => items.iter().map(key).collect(),
        _ => return,
    };
    for (index, item) in unique.iter().enumerate() {
        if unique.iter().take(index).filter(|earlier| *earlier == item).count() == 1 {
            causes.push(Cause::duplicate(format!("{path}[{index}]"), item.clone()));
        }
    }
}

fn check_map(map: &Map<String, Value>, old: Option<&Value>, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    check_count(map.len(), schema, "Properties", path, causes);
    let missing = fields::texts(schema, "required").filter(|name| !map.contains_key(*name));
    causes.extend(missing.map(|name| Cause::required(child(path, name), "")));
    for (name, value) in map {
        if let Some(schema) = field(schema, path, name) {
            check(value, old.and_then(|old| old.get(name)), schema, &child(path, name), causes);
        }
    }
}

fn check_rules(value: &Value, old: Option<&Value>, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if old == Some(value) || value.is_null() {
        return;
    }
    for rule in list(schema, "x-kubernetes-validations") {
        if let Err(words) = rules::check(rule, value, old) {
            let path = format!("{path}{}", text(rule, "fieldPath"));
            let is_scalar = !value.is_object() && !value.is_array();
            causes.push(if is_scalar {
                Cause::invalid(&path, value.clone(), &words)
            } else {
                Cause::invalid_whole(&path, &words)
            });
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check_rules(item, None, &schema["items"], &format!("{path}[{index}]"), causes);
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        if let Some(schema) = field(schema, path, name) {
            check_rules(value, old.and_then(|old| old.get(name)), schema, &child(path, name), causes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_schema() -> Value {
        json!({ "type": "object", "properties": { "spec": { "type": "object", "required": ["port"], "properties": {
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "port": { "x-kubernetes-int-or-string": true },
            "share": { "type": "number", "minimum": 0, "maximum": 1 },
            "labels": { "type": "object", "maxProperties": 2, "additionalProperties": { "type": "string" } },
            "rows": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": { "type": "object", "properties": { "id": { "type": "integer", "default": 1 } } } },
            "at": { "type": "string", "format": "date-time", "nullable": true, "maxLength": 25 },
        } } } })
    }

    /// The fields that are refused in this spec.
    fn refused(spec: Value, old: Option<&Value>) -> Vec<String> {
        let mut object = json!({ "spec": spec });
        complete(&mut object, &mk_schema(), "", &mut Vec::new());
        let mut causes = Vec::new();
        check(&object, old, &mk_schema(), "", &mut causes);
        causes.into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn values_outside_the_schema_are_refused() {
        let good =
            json!({ "port": "http", "share": 0.5, "labels": { "a": "b" }, "rows": [{ "id": 2 }, {}], "at": null });
        assert!(refused(good, None).is_empty());
        let bad = json!({ "port": 1.5, "share": 2, "labels": { "a": 1, "b": "", "c": "" }, "rows": [{ "id": 1 }, {}],
            "at": "today" });
        let fields = ["spec.at", "spec.labels", "spec.labels.a", "spec.port", "spec.rows[1]", "spec.share"];
        assert_eq!(refused(bad, None), fields);
        assert_eq!(refused(json!({ "port": null, "share": -1 }), None), ["spec.port", "spec.share"]);
    }

    #[test]
    fn what_an_update_leaves_as_it_is_stays_valid() {
        let old = json!({ "spec": { "share": 2, "port": 1 } });
        assert!(refused(json!({ "share": 2, "port": 3 }), Some(&old)).is_empty());
        assert_eq!(refused(json!({ "share": 3, "port": 1 }), Some(&old)), ["spec.share"]);
    }

    #[test]
    fn only_free_fields_keep_what_has_no_schema() {
        let mut object = json!({ "kind": "A", "metadata": { "a": 1 },
            "spec": { "free": { "a": [{ "b": null }] }, "rows": [{ "b": 1 }], "c": 1 } });
        let mut unknown = Vec::new();
        complete(&mut object, &mk_schema(), "", &mut unknown);
        unknown.sort();
        assert_eq!(unknown, ["spec.c", "spec.rows[0].b"]);
        let spec = json!({ "free": { "a": [{ "b": null }] }, "rows": [{ "id": 1 }] });
        assert_eq!(object, json!({ "kind": "A", "metadata": { "a": 1 }, "spec": spec }));
    }
}
