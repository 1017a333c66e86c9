//! The fields of the CRDs, with their defaults and descriptions.

use addon_signer_api::{AddOnRoute, AddOnSigner};
use kube::CustomResourceExt;
use serde_json::Value;

use super::{as_table, code};

pub(super) fn parts() -> [(&'static str, String); 4] {
    let signer = serde_json::to_value(AddOnSigner::crd()).unwrap();
    let route = serde_json::to_value(AddOnRoute::crd()).unwrap();
    [
        ("spec of AddOnSigner", spec(&signer)),
        ("status of AddOnSigner", status(&signer)),
        ("spec of AddOnRoute", spec(&route)),
        ("status of AddOnRoute", status(&route)),
    ]
}

fn spec(crd: &Value) -> String {
    let rows = fields(&part(crd, "spec"), "");
    as_table(["field", "default", "meaning"], rows.into_iter().map(|row| [code(&row.path), row.default, row.meaning]))
}

fn status(crd: &Value) -> String {
    let rows = fields(&part(crd, "status"), "");
    as_table(["field", "meaning"], rows.into_iter().map(|row| [code(&row.path), row.meaning]))
}

fn part(crd: &Value, name: &str) -> Value {
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][name].clone()
}

struct Field {
    path: String,
    default: String,
    meaning: String,
}

/// The fields of an object that have no fields of their own. Conditions are Kubernetes' own type.
fn fields(object: &Value, path: &str) -> Vec<Field> {
    let mut found = Vec::new();
    for (name, field) in object["properties"].as_object().unwrap() {
        let required = object["required"].as_array().is_some_and(|names| names.contains(&name.as_str().into()));
        let is_list = field["items"]["properties"].is_object();
        let path = format!("{path}{name}{}", if is_list { "[]" } else { "" });
        let inner = if is_list { &field["items"] } else { field };
        if inner["properties"].is_object() && name != "conditions" {
            found.extend(fields(inner, &format!("{path}.")));
            continue;
        }
        let default = if required { "required".to_owned() } else { as_default(&field["default"]) };
        found.push(Field { path, default, meaning: meaning(field) });
    }
    found
}

fn as_default(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => code(text),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) => values.iter().map(as_default).collect::<Vec<_>>().join(", "),
        value => code(&value.to_string()),
    }
}

/// The description, and the values that the field may have unless the description or the default has them.
fn meaning(field: &Value) -> String {
    let text = field["description"].as_str().unwrap_or_else(|| panic!("{field} has no description"));
    let values = field["enum"].as_array().or(field["items"]["enum"].as_array());
    let values: Vec<_> = values.into_iter().flatten().filter_map(Value::as_str).collect();
    let words: Vec<_> = text.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
    let all_by_default = field["default"].as_array().is_some_and(|default| default.len() == values.len());
    if all_by_default || values.iter().all(|value| words.contains(value)) {
        return text.to_owned();
    }
    format!("{text} One of {}.", values.iter().map(|value| code(value)).collect::<Vec<_>>().join(", "))
}
