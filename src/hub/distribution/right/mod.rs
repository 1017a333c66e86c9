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
use tracing::{debug, info, warn};

use super::WARNING;
use super::plan::Unguarded;
use crate::api::AddOnSigner;
use crate::api::manifest_work::{MANIFEST_WORKS, WORK_GROUP, WORK_VERSION, resource};
use crate::api::status::CONDITION_TRUST_DISTRIBUTED;
use crate::hub::registrations::discovery::served_version;
use crate::hub::supervisor::permission;
use addon_signer_core::backoff::doubled;
use addon_signer_platform::errors::explain;

/// How often the hub asks while it has the right and the policy is in force; a refusal makes it ask at once.
pub(super) const RIGHT_AGE: Duration = Duration::from_secs(600);
/// How long an answer is believed while nobody confirms it.
pub(super) const BELIEVED: Duration = Duration::from_secs(2 * RIGHT_AGE.as_secs());
/// How often it asks while that is not so.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(60);
/// The first pause after a trial that the policy should have refused; the pauses double. A policy takes effect some
/// seconds after it was applied.
const SHORTEST: Duration = Duration::from_secs(1);
/// How long after a question without an answer the hub asks again.
const UNKNOWN: Duration = Duration::from_secs(15);

/// The most bytes that the condition has of what a refuser says.
const SAID_MAX: usize = 512;

/// What the hub does with ManifestWorks.
const VERBS: [&str; 5] = ["create", "list", "watch", "patch", "delete"];

/// A ManifestWork of this name is none of the hub's, so the policy refuses it.
const PROBE: &str = "addon-signer-probe";

/// The name of the policy, to which kustomize may have added a prefix or a suffix.
const POLICY: &str = "addon-signer-manifest-works";

/// What the hub's account may do with ManifestWorks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Right {
    /// It may not write them, or there are none.
    Missing,
    /// It may write any, as far as the hub knows.
    Unguarded(Unguarded),
    /// It may write its own.
    Guarded,
}

/// What is known of the right, and when the hub asks again.
pub(super) struct Asking {
    client: Client,
    namespace: String,
    /// The last answer, while it is believed.
    pub(super) last: Option<Right>,
    /// When the hub last asked.
    asked: Instant,
    /// When the API server last answered.
    answered: Instant,
    /// When the hub asks again.
    pub(super) at: Instant,
    /// How often in turn the policy was not in force.
    in_turn: u32,
    /// When the log last had a question without an answer.
    warned: Option<Instant>,
}

impl Asking {
    /// `namespace` is one in which the hub's account may try to make a ManifestWork.
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        let now = Instant::now();
        Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            last: None,
            asked: now,
            answered: now,
            at: now,
            in_turn: 0,
            warned: None,
        }
    }

    /// What is known after too long a time without an answer: perhaps it has the right, and nobody can see the policy.
    pub(super) fn too_late(&self) -> Option<Right> {
        self.last.clone().filter(|last| matches!(last, Right::Unguarded(_)))
    }

    /// Why the hub may not make or change ManifestWorks, if it has the right: it only deletes them then.
    pub(super) fn unguarded(&self) -> Option<Unguarded> {
        match &self.last {
            Some(Right::Guarded) => None,
            Some(Right::Unguarded(why)) => Some(why.clone()),
            Some(Right::Missing) | None => Some(Unguarded::Missing),
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.at
    }

    pub(super) fn is_due(&self) -> bool {
        self.at <= Instant::now()
    }

    /// Makes the hub ask soon, because the API server has refused a write: perhaps somebody took the right away, or
    /// only a quota is used up, which no answer changes.
    pub(super) fn doubt(&mut self) {
        self.at = self.at.min(self.asked + UNKNOWN);
    }

    /// Asks the API server, and says what is new. `None` if it does not answer: the last answer is then believed for a
    /// while.
    pub(super) async fn ask(&mut self) -> Option<Right> {
        self.asked = Instant::now();
        self.at = self.asked + UNKNOWN;
        match ask(&self.client, &self.namespace).await {
            // An API server that starts, or whose own authentication fails, refuses for a moment.
            Ok(Right::Unguarded(Unguarded::Unknown(said))) if self.is_confirmed() => {
                self.go_on_without(&said);
                None
            }
            Ok(right) => {
                let is_unguarded = matches!(right, Right::Unguarded(_));
                let pause = if is_unguarded { doubled(SHORTEST, self.in_turn, ASK_AGAIN) } else { RIGHT_AGE };
                self.in_turn = if is_unguarded { self.in_turn.saturating_add(1) } else { 0 };
                self.answered = Instant::now();
                self.at = self.answered + pause;
                self.believe(right.clone());
                Some(right)
            }
            Err(error) => {
                self.go_on_without(&explain(&error));
                None
            }
        }
    }

    /// Whether the policy was seen in force not long ago.
    fn is_confirmed(&self) -> bool {
        self.last == Some(Right::Guarded) && self.answered.elapsed() < BELIEVED
    }

    fn believe(&mut self, right: Right) {
        if self.last.as_ref() != Some(&right) {
            match &right {
                Right::Guarded => info!("The hub brings the trust bundle to the clusters by ManifestWorks"),
                Right::Unguarded(why) => warn!(error = %why, "The hub makes and changes no ManifestWork"),
                Right::Missing => {}
            }
        }
        self.last = Some(right);
    }

    fn go_on_without(&mut self, error: &str) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARNING) {
            self.warned = Some(Instant::now());
            warn!(error, "Cannot ask whether the hub may write ManifestWorks; it asks again");
        } else {
            debug!(error, "Cannot ask whether the hub may write ManifestWorks; it asks again");
        }
        if self.answered.elapsed() < BELIEVED {
            return;
        }
        match self.last {
            Some(Right::Guarded) | None => {
                let minutes = BELIEVED.as_secs() / 60;
                let end = format!("no answer for {minutes} minutes; the last error: {error}");
                self.believe(Right::Unguarded(Unguarded::Unknown(end.into())));
            }
            Some(Right::Missing) => (self.last, self.answered) = (None, Instant::now()),
            Some(Right::Unguarded(_)) => {}
        }
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
        Ok(_) => Ok(Right::Unguarded(Unguarded::Missing)),
        Err(Error::Api(status)) if is_by_policy(&status) => Ok(Right::Guarded),
        // Admission comes before the storage, which has somebody's object of this name.
        Err(Error::Api(status)) if status.is_already_exists() => Ok(Right::Unguarded(Unguarded::Missing)),
        Err(Error::Api(status)) if is_lasting(&status) => {
            let mut said = status.message.clone();
            said.truncate(said.floor_char_boundary(SAID_MAX));
            Ok(Right::Unguarded(Unguarded::Unknown(said.into())))
        }
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

/// Whether it is the policy's refusal. Of several policies that refuse, the API server names one by chance; if that is
/// another one, nobody knows whether ours is in force. Source: k8s.io/apiserver
/// `pkg/admission/plugin/policy/validating/dispatcher.go`, and `policySource` for the order.
fn is_by_policy(status: &Status) -> bool {
    let named = status.message.split_once("ValidatingAdmissionPolicy '").and_then(|(_, said)| said.split_once('\''));
    named.is_some_and(|(name, said)| name.contains(POLICY) && said.starts_with(" with binding '"))
}

/// Whether it is an answer to the trial. The API server says 429 and 5xx when it, or a webhook, cannot answer now.
fn is_lasting(status: &Status) -> bool {
    status.code < 500 && status.code != 429
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
