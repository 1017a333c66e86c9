//! What the hub may do with ManifestWorks: whether it has the right, and whether the policy that narrows it holds.
//!
//! Whoever may write any ManifestWork may do anything on every cluster. `deploy/manifest-works/policy.yaml` takes back
//! all but the hub's own, but a policy that was deleted, not applied or set to `Audit` is noticed by nobody. So the hub
//! does not use the right before it has seen the API server refuse what the policy forbids.

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::Status;
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::api::AddOnSigner;
use crate::api::manifest_work::{MANIFEST_WORKS, WORK_GROUP, WORK_VERSION, resource};
use crate::api::status::CONDITION_TRUST_DISTRIBUTED;
use crate::hub::registrations::discovery::served_version;
use crate::hub::supervisor::permission;
use addon_signer_core::backoff::doubled;
use addon_signer_platform::errors::explain;

/// How often the hub asks while it has the right and the policy is in force; a refusal makes it ask at once.
pub(super) const RIGHT_AGE: Duration = Duration::from_secs(600);
/// How often it asks while that is not so.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(60);
/// The first pause after a trial that the policy should have refused; the pauses double. A policy takes effect some
/// seconds after it was applied.
const SHORTEST: Duration = Duration::from_secs(1);
/// How long after a question without an answer the hub asks again.
const UNKNOWN: Duration = Duration::from_secs(15);

/// What the hub does with ManifestWorks.
const VERBS: [&str; 5] = ["create", "list", "watch", "patch", "delete"];

/// A ManifestWork of this name is none of the hub's, so the policy refuses it.
const PROBE: &str = "addon-signer-probe";

/// What the hub's account may do with ManifestWorks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// It may not write them, or there are none.
    Missing,
    /// It may write any: no policy narrows the right.
    Unguarded,
    /// It may write its own.
    Guarded,
}

/// What is known of the right, and when the hub asks again.
pub(super) struct Asking {
    client: Client,
    namespace: String,
    /// The last answer.
    pub(super) last: Option<Right>,
    /// When the hub asks again.
    pub(super) at: Instant,
    /// How often in turn the policy was not in force.
    unguarded: u32,
}

impl Asking {
    /// `namespace` is one in which the hub's account may try to make a ManifestWork.
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        Self { client: client.clone(), namespace: namespace.to_owned(), last: None, at: Instant::now(), unguarded: 0 }
    }

    /// Whether the hub may write ManifestWorks. Without the policy it only deletes them.
    pub(super) fn is_guarded(&self) -> bool {
        self.last == Some(Right::Guarded)
    }

    pub(super) fn due(&self) -> Instant {
        self.at
    }

    pub(super) fn is_due(&self) -> bool {
        self.at <= Instant::now()
    }

    /// Makes the hub ask at once, because the API server has refused a write.
    pub(super) fn doubt(&mut self) {
        self.at = Instant::now();
    }

    /// Asks the API server, and says what is new. After an error the last answer stays.
    ///
    /// # Errors
    /// The error of the API server; the answer is then unknown.
    pub(super) async fn ask(&mut self) -> Result<Right, Error> {
        self.at = Instant::now() + UNKNOWN;
        let right = ask(&self.client, &self.namespace).await?;
        let is_news = self.last.replace(right) != Some(right);
        let unguarded = if right == Right::Unguarded { self.unguarded.saturating_add(1) } else { 0 };
        let pause = if unguarded > 0 { doubled(SHORTEST, self.unguarded, ASK_AGAIN) } else { RIGHT_AGE };
        (self.unguarded, self.at) = (unguarded, Instant::now() + pause);
        match right {
            Right::Guarded if is_news => info!("The hub brings the trust bundle to the clusters by ManifestWorks"),
            Right::Unguarded if is_news => warn!(
                "The hub writes no ManifestWork, because the policy addon-signer-manifest-works is not in force; apply \
                 deploy/manifest-works again"
            ),
            Right::Guarded | Right::Unguarded | Right::Missing => {}
        }
        Ok(right)
    }

    /// Whether no hub has had the right, as far as anybody remembers; `false` while that is unknown.
    pub(super) async fn was_never_there(&self) -> bool {
        let was_there = was_there(&self.client).await;
        if let Err(error) = &was_there {
            warn!(error = explain(error), "Cannot ask whether a hub has written ManifestWorks; the hub asks again");
        }
        matches!(was_there, Ok(false))
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
    match works.create(&dry_run, &probe).await {
        Ok(_) => Ok(Right::Unguarded),
        Err(Error::Api(status)) if is_by_policy(&status) => Ok(Right::Guarded),
        // Admission comes before the storage, which has somebody's object of this name.
        Err(Error::Api(status)) if status.is_already_exists() => Ok(Right::Unguarded),
        Err(error) => Err(error),
    }
}

/// What the policy forbids, and nothing besides, so that nobody else refuses it: it has neither the name nor the label
/// of the hub's ManifestWorks.
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

/// Source: k8s.io/apiserver `pkg/admission/plugin/policy/validating/dispatcher.go`.
fn is_by_policy(status: &Status) -> bool {
    status.message.contains("ValidatingAdmissionPolicy")
}

/// Whether a hub has had the right: some AddOnSigner still says how far the trust bundle is.
async fn was_there(client: &Client) -> Result<bool, Error> {
    // Untyped, because one that cannot be decoded must not hide the others.
    let kind = ApiResource::erase::<AddOnSigner>(&());
    let signers: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let listed = signers.list(&ListParams::default()).await?;
    let conditions =
        |signer: &DynamicObject| signer.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
    let mut all = listed.items.iter().filter_map(conditions).flatten();
    Ok(all.any(|condition| condition.get("type").is_some_and(|kind| kind == CONDITION_TRUST_DISTRIBUTED)))
}

#[cfg(test)]
mod tests;
