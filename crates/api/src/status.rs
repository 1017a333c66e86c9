//! The status of an AddOnSigner: what the hub found out and did, for people and for `addon-signer ca status`.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function body")]

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use addon_signer_core::timestamp::Timestamp;

pub use addon_signer_core::conditions::{
    CONDITION_ADDONS_CONFLICTED, CONDITION_AUTHORITY_HEALTHY, CONDITION_AUTHORITY_ISSUED, CONDITION_FOREIGN,
    CONDITION_READY, CONDITION_REGISTERED, CONDITION_ROTATING, CONDITION_TRUST_BUNDLE_PROTECTED,
    CONDITION_TRUST_DISTRIBUTED, CONDITION_TRUST_PUBLISHED, DUPLICATE_SIGNER_NAME,
};

/// Whether a condition is true, its reason and its message.
pub type ConditionValue = (bool, &'static str, String);

/// What the hub reports about a signer.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddOnSignerStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The addons that belong to this AddOnSigner. Another one that names them is not served for them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub add_ons: BTreeSet<String>,
    /// The first three of addOns, and how many more there are, as one text: the column ADDONS of kubectl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_on_list: Option<String>,
    /// The authorities of this signer, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["id".to_owned()]))]
    pub authorities: Vec<AuthorityStatus>,
    /// The rotation under way; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<RotationStatus>,
    /// The CSR of the next authority in PEM, for `ca csr`; absent unless `ca import` brings authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_request: Option<String>,
    /// How many of its addons on clusters have a certificate; absent until the hub has counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<AgentsStatus>,
    /// Conditions as in metav1: Ready, AuthorityHealthy, AuthorityIssued, AddOnsConflicted, Rotating, Registered,
    /// TrustDistributed, TrustPublished, TrustBundleProtected and ForeignCertificates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schemas::conditions")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

/// How many addons on clusters have a certificate, each addon on each cluster counted by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentsStatus {
    /// How many may have one.
    pub eligible: i64,
    /// How many of these have one that gateways accept.
    pub certified: i64,
    /// Both as one text: the column AGENTS of kubectl.
    pub summary: String,
    /// The first ten of the others; `addon-signer status` lists all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<AgentWithout>,
}

/// An addon on a cluster without a certificate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentWithout {
    /// CLUSTER/ADDON.
    pub name: String,
    /// What it waits for.
    pub waits_for: String,
}

/// One certificate authority.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthorityStatus {
    /// Name of the authority, unique within the AddOnSigner and never used again; the newest comes first.
    pub id: String,
    /// What the authority is used for. Next: trusted, signs nothing yet. Active: signs. Old: trusted until no agent
    /// needs it, or at the latest until its last certificate has expired.
    pub state: AuthorityState,
    // Not the type of Kubernetes' own objects, whose times end on 9999-12-30.
    /// Start of its certificate.
    #[schemars(schema_with = "crate::schemas::time")]
    pub not_before: Timestamp,
    /// End of its certificate.
    #[schemars(schema_with = "crate::schemas::time")]
    pub not_after: Timestamp,
    /// No certificate that it signed is valid after this time; absent when it signed none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::optional_time")]
    pub last_leaf_expires: Option<Timestamp>,
    /// True if its key may be compromised, as an administrator has said by `ca taint`; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tainted: bool,
    /// True if it is revoked as soon as another authority can sign; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_revoke: bool,
    /// Within how many seconds agents with a certificate of it should renew, because it is tainted; absent when they
    /// need not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_within: Option<i64>,
    /// Its certificate in PEM, which gateways trust; absent while the hub does not serve the AddOnSigner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// What an authority is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AuthorityState {
    /// Trusted, signs nothing yet.
    Next,
    /// Signs.
    Active,
    /// Signs nothing any more, trusted until nobody needs it.
    Old,
}

/// A rotation under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotationStatus {
    /// The step that is under way. Activate: the new authority is trusted and waits to sign. Finish: the old one is
    /// trusted until no agent needs it. This version writes neither Prepare nor Publish.
    pub phase: RotationPhase,
    /// When this step began.
    #[schemars(schema_with = "crate::schemas::time")]
    pub since: Timestamp,
    /// How many addons on clusters have what the step waits for; absent where it waits for something else. In this
    /// version only a rotation of the gateway's authorities counts addons, and `ca status --serving` reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<i64>,
    /// Of how many addons on clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// The first ten addons on clusters that the step waits for, as CLUSTER/ADDON; `addon-signer status` lists all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stragglers: Vec<String>,
    /// What the step waits for, in one sentence; absent when it waits for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}

/// Steps of a rotation, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RotationPhase {
    /// The next authority is being made.
    Prepare,
    /// Its anchor is being added to every bundle.
    Publish,
    /// The next authority will sign as soon as it is trusted wherever it must be.
    Activate,
    /// The old anchor will be dropped as soon as nobody depends on it.
    Finish,
}
