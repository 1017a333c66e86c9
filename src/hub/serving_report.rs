//! What people see of the gateway's serving line, which has no AddOnSigner: a report in the ConfigMap of its anchors.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde::{Deserialize, Serialize};

use crate::api::status::{AuthorityStatus, RotationStatus};
use crate::hub::status::{authorities, rotation};
use crate::hub::store::{SERVING_CONFIG_MAP, STATUS_KEY};
use addon_signer_core::ca::line::Line;

/// The serving line's report, in its ConfigMap as `status.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServingReport {
    /// The authorities.
    pub authorities: Vec<AuthorityStatus>,
    /// The rotation under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<RotationStatus>,
    /// Why the line does not sign, where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The last request for a rotation that was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_request: Option<String>,
}

/// The serving line's report as JSON.
///
/// # Errors
/// serde's, which does not happen for these types.
pub fn render(line: &Line, waiting: Option<String>) -> Result<String, serde_json::Error> {
    serde_json::to_string(&ServingReport {
        authorities: authorities(line),
        rotation: rotation(line, waiting),
        problem: None,
        handled_request: line.handled_request().map(str::to_owned),
    })
}

/// Adds to the report why the line does not sign; everything else in it stays as it was last known.
///
/// # Errors
/// The API server's.
pub async fn write_problem(maps: &Api<ConfigMap>, problem: &str) -> Result<(), kube::Error> {
    let Some(mut map) = maps.get_opt(SERVING_CONFIG_MAP).await? else { return Ok(()) };
    let data = map.data.get_or_insert_default();
    let known = data.get(STATUS_KEY).and_then(|text| serde_json::from_str(text).ok());
    let report = ServingReport { problem: Some(problem.to_owned()), ..known.unwrap_or_default() };
    let text = serde_json::to_string(&report).map_err(kube::Error::SerdeError)?;
    if data.get(STATUS_KEY) != Some(&text) {
        data.insert(STATUS_KEY.to_owned(), text);
        maps.replace(SERVING_CONFIG_MAP, &PostParams::default(), &map).await?;
    }
    Ok(())
}
