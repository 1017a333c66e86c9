//! The Table form of objects, which `kubectl get` prints. Pure functions.

use serde_json::{Value, json};

use super::fields::{self, text};
use super::resources::{Cell, Resource};

/// A `meta.k8s.io/v1` Table with one row per object.
///
/// `whole` puts the whole object into each row (`includeObject=Object`) instead of its metadata. `now`, in seconds
/// since 1970, is for the ages.
pub(super) fn table<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    list_metadata: Value,
    whole: bool,
    now: i64,
) -> Value {
    let rows: Vec<Value> = objects.map(|object| row(resource, object, whole, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata,
        "columnDefinitions": columns(resource), "rows": rows,
    })
}

/// A `PartialObjectMetadata` of an object.
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata"),
    })
}

fn columns(resource: &Resource) -> Vec<Value> {
    let named = std::iter::once("Name").chain(resource.columns.iter().map(|(name, _)| *name));
    named
        .map(|name| {
            let format = if name == "Name" { "name" } else { "" };
            json!({ "name": name, "type": "string", "format": format, "description": "", "priority": 0 })
        })
        .collect()
}

fn row(resource: &Resource, object: &Value, whole: bool, now: i64) -> Value {
    let name = text(object, "metadata.name").to_owned();
    let cells: Vec<String> =
        std::iter::once(name).chain(resource.columns.iter().map(|(_, c)| cell(*c, object, now))).collect();
    let object = if whole { object.clone() } else { partial(object) };
    json!({ "cells": cells, "object": object })
}

fn cell(cell: Cell, object: &Value, now: i64) -> String {
    match cell {
        Cell::Path(path) => scalar(fields::get(object, path)),
        Cell::Count(path) => count(fields::get(object, path)).to_string(),
        Cell::Condition(kind) => fields::condition(object, kind).map_or(String::new(), |c| text(c, "status").into()),
        Cell::Reason(kind) => fields::condition(object, kind).map_or(String::new(), |c| text(c, "reason").into()),
        Cell::CsrState => csr_state(object),
        Cell::Since(path) => since(text(object, path), now),
        Cell::LastSeen => since(last_seen(object), now),
        Cell::Involved => {
            let kind = text(object, "involvedObject.kind").to_lowercase();
            format!("{kind}/{}", text(object, "involvedObject.name"))
        }
    }
}

fn scalar(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "<none>".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn count(value: Option<&Value>) -> usize {
    match value {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

/// `extractCSRStatus` of kube-apiserver's printers.
fn csr_state(csr: &Value) -> String {
    let has = |kind| fields::condition(csr, kind).is_some();
    let mut state = if has("Denied") {
        "Denied".to_owned()
    } else if has("Approved") {
        "Approved".to_owned()
    } else {
        "Pending".to_owned()
    };
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !text(csr, "status.certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}

/// The time when an event was last seen. Events of the newer API have no `lastTimestamp`.
fn last_seen(event: &Value) -> &str {
    ["lastTimestamp", "series.lastObservedTime", "eventTime"]
        .iter()
        .map(|path| text(event, path))
        .find(|time| !time.is_empty())
        .unwrap_or("")
}

fn since(timestamp: &str, now: i64) -> String {
    let Some(then) = fields::seconds(timestamp) else {
        return "<unknown>".to_owned();
    };
    match (now - then).max(0) {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7_200 => format!("{}m", s / 60),
        s @ 7_200..172_800 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csr_row_says_what_kubectl_prints() {
        let csr = json!({
            "metadata": { "name": "c", "creationTimestamp": "2001-09-09T01:46:40Z" },
            "spec": { "signerName": "example.com/s", "username": "bob" },
            "status": { "conditions": [{ "type": "Approved" }], "certificate": "eA==" },
        });
        let resource = Resource::find("certificates.k8s.io", "v1", "certificatesigningrequests");
        let table = table(resource.unwrap(), std::iter::once(&csr), json!({}), false, 1_000_000_300);
        assert_eq!(table["rows"][0]["cells"], json!(["c", "5m", "example.com/s", "bob", "<none>", "Approved,Issued"]));
        assert!(table["rows"][0]["object"].get("spec").is_none());
    }
}
