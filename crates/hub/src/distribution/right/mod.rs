//! What the hub may do with ManifestWorks: whether it has the right, and whether the policy that narrows it holds.
//!
//! An account that may write any ManifestWork may do anything on every cluster. A policy of the chart restricts the
//! right to the hub's own ManifestWorks, so the hub does not use the right before it has seen that policy in force.

use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::steps::Unguarded;
use crate::dry_run::{self, Asking, PolicyDryRun, PolicyProblem, Right};
use crate::permission;
use crate::registrations::discovery::served_version;
use addon_signer_api::manifest_work::{MANIFEST_WORKS, WORK_GROUP, WORK_VERSION, resource};
use addon_signer_api::status::CONDITION_TRUST_DISTRIBUTED;
use addon_signer_api::{AddOnSigner, Lenient};
use addon_signer_platform::errors::explain;
use addon_signer_platform::listing::{self, Selector};

/// What the hub does with ManifestWorks.
const VERBS: [&str; 5] = ["create", "list", "watch", "patch", "delete"];

/// A ManifestWork with this name is not one of the hub's, so the policy refuses it.
const PROBE: &str = "addon-signer-probe";

/// Tries to create a ManifestWork that is not one of the hub's.
pub(super) struct WorksDryRun {
    client: Client,
    namespace: String,
}

impl WorksDryRun {
    /// `namespace` must be one in which the hub's account may try to create a ManifestWork.
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        Self { client: client.clone(), namespace: namespace.to_owned() }
    }

    /// Whether no hub ever had the right, as far as the API server shows; `false` while unknown.
    pub(super) async fn was_never_there(&self) -> bool {
        let was_there = was_there(&self.client).await;
        if let Err(error) = &was_there {
            warn!(error = explain(error), "Could not check whether a hub has written ManifestWorks; the hub retries");
        }
        matches!(was_there, Ok(false))
    }
}

impl PolicyDryRun for WorksDryRun {
    const POLICY: &'static str = "addon-signer-manifest-works";

    async fn attempt(&self) -> Result<Right, Error> {
        ask(&self.client, &self.namespace).await
    }

    fn log(&self, right: &Right) {
        match right {
            Right::Guarded => info!("The hub delivers the trust bundle to the clusters by ManifestWorks"),
            Right::Unguarded(problem) => {
                warn!(error = %Unguarded(problem.clone()), "The hub creates and changes no ManifestWork");
            }
            Right::Missing => {}
        }
    }
}

/// Why the hub may not create or change ManifestWorks although it has the right: it then only deletes them.
pub(super) fn unguarded(asking: &Asking<WorksDryRun>) -> Option<Unguarded> {
    match &asking.last {
        Some(Right::Guarded) => None,
        Some(Right::Unguarded(problem)) => Some(Unguarded(problem.clone())),
        Some(Right::Missing) | None => Some(Unguarded(PolicyProblem::Missing)),
    }
}

async fn ask(client: &Client, namespace: &str) -> Result<Right, Error> {
    let served = served_version(client, WORK_GROUP, MANIFEST_WORKS, &[WORK_VERSION]).await?;
    if served.is_none() || !permission::may(client, WORK_GROUP, MANIFEST_WORKS, None, &VERBS).await? {
        return Ok(Right::Missing);
    }
    let works: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource());
    let probe = serde_json::from_value(probe()).map_err(Error::SerdeError)?;
    let dry_run = PostParams { dry_run: true, field_manager: None };
    dry_run::judge(WorksDryRun::POLICY, works.create(&dry_run, &probe).await)
}

/// A ManifestWork that only the policy refuses: it has neither the name nor the label of the hub's ManifestWorks.
fn probe() -> Value {
    json!({
        "apiVersion": format!("{WORK_GROUP}/{WORK_VERSION}"),
        "kind": "ManifestWork",
        "metadata": { "name": PROBE },
        "spec": { "workload": { "manifests": [{
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": PROBE, "namespace": "default" },
        }] } },
    })
}

/// Whether a hub once had the right: an AddOnSigner still reports how far the trust bundle has reached.
async fn was_there(client: &Client) -> Result<bool, Error> {
    // Untyped, because one that cannot be decoded must not hide the others.
    let kind = ApiResource::erase::<AddOnSigner>(&());
    let signers: Api<Lenient<DynamicObject>> = Api::all_with(client.clone(), &kind);
    let mut was_there = false;
    listing::each(signers, Selector::all(), |signer| {
        let conditions = signer.object.data.pointer("/status/conditions").and_then(Value::as_array);
        let mut kinds = conditions.into_iter().flatten().filter_map(|condition| condition.get("type"));
        was_there |= kinds.any(|kind| kind == CONDITION_TRUST_DISTRIBUTED);
    })
    .await?;
    Ok(was_there)
}

#[cfg(test)]
mod tests;
