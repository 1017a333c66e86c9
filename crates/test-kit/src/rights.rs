//! Which rights our accounts have on real API servers, and which of them the tests use.
//!
//! If `ADDON_SIGNER_USED_RIGHTS` names a directory, each real hub writes there what its audit log says; `.ci/run real`
//! then compares that with the chart (`deploy::rights`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::accounts::{ADDON_GROUP, AGENT_USER, GATEWAY_USER, HUB_USER};

/// A right that a role gives to one of our accounts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Right {
    /// Kind and name of the role, such as `ClusterRole addon-signer-hub`.
    pub role: String,
    pub verb: String,
    pub group: String,
    /// The resource, with its subresource.
    pub resource: String,
    /// The object's name; `None` if the call has no name, or the rule allows all names.
    pub name: Option<String>,
}

/// The directory for the rights that are used, if this run collects them.
pub fn collected() -> Option<PathBuf> {
    env::var_os("ADDON_SIGNER_USED_RIGHTS").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Writes a new file with the rights by which these calls were allowed.
pub fn collect(events: impl Iterator<Item = Value>, into: &Path) {
    let used: BTreeSet<Right> = events.filter_map(|event| right(&event)).collect();
    let file = tempfile::Builder::new().prefix("hub-").suffix(".json").tempfile_in(into).unwrap();
    serde_json::to_writer(&file, &used).unwrap();
    file.keep().unwrap();
}

/// All rights that were written into the directory.
pub fn read(from: &Path) -> BTreeSet<Right> {
    let files = fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    let read = |file: PathBuf| serde_json::from_slice::<BTreeSet<Right>>(&fs::read(file).unwrap()).unwrap();
    files.flat_map(|entry| read(entry.unwrap().path())).collect()
}

/// The right by which a call was allowed; `None` if another account made it, if it was refused, or if no role allows
/// it.
pub fn right(event: &Value) -> Option<Right> {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
    let part = |name: &str| text(&format!("/objectRef/{name}"));
    let groups = event.pointer("/user/groups").and_then(Value::as_array).into_iter().flatten();
    let is_addons = groups.into_iter().any(|group| group == ADDON_GROUP);
    let is_ours = [HUB_USER, GATEWAY_USER, AGENT_USER].contains(&text("/user/username")?) || is_addons;
    let is_allowed = text("/annotations/authorization.k8s.io~1decision") == Some("allow");
    // RBAC: allowed by RoleBinding "hub/addon-signer" of Role "hub" to ServiceAccount "…"
    let (_, role) = text("/annotations/authorization.k8s.io~1reason")?.split_once(" of ")?;
    let (role, _) = role.split_once(" to ")?;
    let resource = [Some(part("resource")?), part("subresource")].into_iter().flatten().collect::<Vec<_>>();
    (is_ours && is_allowed).then_some(Right {
        role: role.replace('"', ""),
        verb: text("/verb")?.to_owned(),
        group: part("apiGroup").unwrap_or_default().to_owned(),
        resource: resource.join("/"),
        name: part("name").map(str::to_owned),
    })
}
