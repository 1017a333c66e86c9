//! Discovery: groups, resources, version, and as much OpenAPI as kubectl needs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::resources::Resource;

/// The version whose rules the stand-in follows.
const GIT_VERSION: &str = "v1.36.1+addon-signer-embedded";

/// The response for `/version`.
pub(super) fn version() -> Value {
    json!({ "major": "1", "minor": "36", "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64" })
}

const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The resources that are served.
type ServedResources<'s> = &'s [&'static Resource];

/// The response for a discovery or OpenAPI path; `None` for any other path.
pub(super) fn answer(path: &str, served: ServedResources<'_>) -> Option<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api"] => Some(json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })),
        ["apis"] => Some(group_list(served)),
        ["api", "v1"] => resource_list(served, "", "v1"),
        ["apis", group] => groups(served)
            .into_iter()
            .find(|(name, _)| name == group && !name.is_empty())
            .map(|(name, version)| merged(group_entry(name, version), "APIGroup")),
        ["apis", group, version] => resource_list(served, group, version),
        ["openapi", "v3"] => Some(openapi_index(served)),
        ["openapi", "v3", "api", "v1"] => openapi(served, "", "v1"),
        ["openapi", "v3", "apis", group, version] => openapi(served, group, version),
        _ => None,
    }
}

fn groups(served: ServedResources<'_>) -> BTreeSet<(&'static str, &'static str)> {
    served.iter().map(|r| (r.group, r.version)).collect()
}

fn of_group(served: ServedResources<'_>, group: &str) -> impl Iterator<Item = &'static Resource> {
    served.iter().copied().filter(move |r| r.group == group)
}

fn group_list(served: ServedResources<'_>) -> Value {
    let groups: Vec<Value> = groups(served)
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, version)| group_entry(group, version))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn group_entry(group: &str, version: &str) -> Value {
    let version = json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    json!({ "name": group, "versions": [version], "preferredVersion": version })
}

fn merged(mut object: Value, kind: &str) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert("kind".into(), kind.into());
        map.insert("apiVersion".into(), "v1".into());
    }
    object
}

fn resource_list(served: ServedResources<'_>, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for r in of_group(served, group).filter(|r| r.version == version) {
        resources.push(json!({ "name": r.plural, "singularName": r.kind.to_lowercase(), "namespaced": r.namespaced,
            "kind": r.kind, "verbs": r.verbs(), "shortNames": r.short, "categories": r.categories }));
        for sub in r.subresources {
            resources.push(json!({ "name": format!("{}/{sub}", r.plural), "singularName": "",
                "namespaced": r.namespaced, "kind": r.kind, "verbs": SUBRESOURCE_VERBS }));
        }
    }
    let api_version = of_group(served, group).find(|r| r.version == version)?.api_version();
    Some(json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources }))
}

fn openapi_index(served: ServedResources<'_>) -> Value {
    let mut paths = Map::new();
    for (group, version) in groups(served) {
        let path = base(group, version);
        let url = json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash=0") });
        paths.insert(path, url);
    }
    json!({ "paths": paths })
}

fn base(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// kubectl leaves the validation of an object to the server only if `PATCH` of its kind accepts `fieldValidation`
/// (cli-runtime `query_param_verifier_v3.go`). So the document declares that, and has no schemas.
fn openapi(served: ServedResources<'_>, group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    for r in of_group(served, group).filter(|r| r.version == version && !r.review) {
        let kind = json!({ "group": r.group, "version": r.version, "kind": r.kind });
        let parameter = json!({ "name": "fieldValidation", "in": "query", "schema": { "type": "string" } });
        let patch = json!({ "parameters": [parameter], "responses": {},
            "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": kind });
        let scope = if r.namespaced { "/namespaces/{namespace}" } else { "" };
        let path = format!("/{}{scope}/{}/{{name}}", base(group, version), r.plural);
        paths.insert(path, json!({ "patch": patch }));
    }
    of_group(served, group).find(|r| r.version == version)?;
    let info = json!({ "title": "addon-signer stand-in", "version": GIT_VERSION });
    Some(json!({ "openapi": "3.0.0", "info": info, "paths": paths, "components": { "schemas": {} } }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;

    #[test]
    fn every_group_is_discovered() {
        let all: Vec<&Resource> = RESOURCES.iter().collect();
        for (group, version) in groups(&all) {
            let path = format!("/{}", base(group, version));
            assert!(answer(&path, &all).is_some(), "{path}");
            assert!(answer(&format!("/openapi/v3{path}"), &all).is_some(), "{path}");
        }
        assert!(answer("/apis/nobody.example", &all).is_none());
    }
}
