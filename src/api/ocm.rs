//! The slices of Open Cluster Management's types that we use: names, and `status.registrations` of a
//! ManagedClusterAddOn in both of its versions.
//!
//! Read as `DynamicObject`, so that what we do not know survives. Source: open-cluster-management.io/api
//! `addon/{v1alpha1,v1beta1}/types_managedclusteraddon.go`. `status.registrations` is written here and never read as
//! a source of identity: a cluster's agent may write it.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Map, Value, json};

use crate::registry::Revocation;
use crate::timestamp::Timestamp;

/// API group of ManagedCluster.
pub const CLUSTER_GROUP: &str = "cluster.open-cluster-management.io";
/// API group of ManagedClusterAddOn.
pub const ADDON_GROUP: &str = "addon.open-cluster-management.io";

/// On a ManagedClusterAddOn: its agents get no certificate and do not pass the gateway. See [`is_suspended`].
pub const ANNOTATION_SUSPENDED: &str = "addon-signer.io/suspended";
/// On a ManagedClusterAddOn: certificates of its agents that begin before this time are dead. See [`revocation`].
pub const ANNOTATION_REVOKE_BEFORE: &str = "addon-signer.io/revoke-before";
/// On a ManagedClusterAddOn: who asked for [`ANNOTATION_REVOKE_BEFORE`], as `certs revoke` writes it: that time, a space, the user.
pub const ANNOTATION_REVOKED_BY: &str = "addon-signer.io/revoked-by";
/// On a CSR: the serving anchors (PEM) that the agent must trust, written together with the certificate.
pub const ANNOTATION_TRUST_BUNDLE: &str = "addon-signer.io/trust-bundle";
/// On a CSR made by OCM's gRPC proxy: the user on whose behalf it was made.
pub const ANNOTATION_CSR_USER: &str = "open-cluster-management.io/csr-user";
/// Label of a CSR: the cluster. A hint only, anybody can set it.
pub const LABEL_CLUSTER_NAME: &str = "open-cluster-management.io/cluster-name";
/// Label of a CSR: the addon. A hint only, anybody can set it.
pub const LABEL_ADDON_NAME: &str = "open-cluster-management.io/addon-name";

/// The longest user that is taken over from an annotation; Kubernetes' own names are shorter.
const USER_MAX: usize = 256;

/// Condition type of a ManagedClusterAddOn: the hub has set up the addon's registration.
pub const CONDITION_REGISTRATION_APPLIED: &str = "RegistrationApplied";
/// Reason and message of addon-framework for a registration that is set up.
const APPLIED: (&str, &str) = ("SetPermissionApplied", "Registration of the addon agent is configured");
/// Reason and message of addon-framework for an addon without registration.
const NIL_REGISTRATION: (&str, &str) = ("NilRegistration", "Registration of the addon agent is configured");
/// addon-framework's reason for a failure of its own, which is not ours to clear.
const REASON_SET_PERMISSION_FAILED: &str = "SetPermissionFailed";

/// The versions of ManagedClusterAddOn; a hub serves one or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddOnApi {
    /// Read by OCM agents up to v1.2.
    V1Alpha1,
    /// Read by OCM agents from v1.3 on.
    V1Beta1,
}

impl AddOnApi {
    /// The version's name.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    /// ManagedClusterAddOn in this version.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let kind = GroupVersionKind::gvk(ADDON_GROUP, self.version(), "ManagedClusterAddOn");
        ApiResource::from_gvk_with_plural(&kind, "managedclusteraddons")
    }
}

/// ManagedCluster, cluster-scoped, v1.
#[must_use]
pub fn managed_cluster_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(CLUSTER_GROUP, "v1", "ManagedCluster");
    ApiResource::from_gvk_with_plural(&kind, "managedclusters")
}

/// Whether the hub has accepted a ManagedCluster: `spec.hubAcceptsClient` is `true`, absent is not.
#[must_use]
pub fn hub_accepts_client(cluster: &DynamicObject) -> bool {
    cluster.data.pointer("/spec/hubAcceptsClient") == Some(&Value::Bool(true))
}

/// Whether the object is going away.
#[must_use]
pub fn is_being_deleted(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// Whether an administrator has suspended an addon on its cluster: [`ANNOTATION_SUSPENDED`] with any value but
/// `false`, so that a `True` or `yes` does not leave the door open.
#[must_use]
pub fn is_suspended(addon: &DynamicObject) -> bool {
    let annotations = addon.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(ANNOTATION_SUSPENDED)).is_some_and(|value| value != "false")
}

/// [`ANNOTATION_REVOKE_BEFORE`] has a value that is no time: what it was to say is not known, so nobody gets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableRevocation;

/// Which certificates of an addon on its cluster are dead. A part of a second counts as a whole one: on the dead side.
///
/// Who asked is what [`ANNOTATION_REVOKED_BY`] says for exactly this time. The word for another time is somebody else's, left behind
/// when the time was edited without it.
///
/// # Errors
/// [`UnreadableRevocation`].
pub fn revocation(addon: &DynamicObject) -> Result<Option<Revocation>, UnreadableRevocation> {
    let annotation = |name| addon.metadata.annotations.as_ref().and_then(|all| all.get(name));
    let Some(text) = annotation(ANNOTATION_REVOKE_BEFORE) else { return Ok(None) };
    let before = Timestamp::from_rfc3339_rounded_up(text).ok_or(UnreadableRevocation)?;
    let said = annotation(ANNOTATION_REVOKED_BY).and_then(|said| said.split_once(' '));
    let of_this = said.filter(|(time, _)| Timestamp::from_rfc3339_rounded_up(time) == Some(before));
    let by = of_this.map(|(_, user)| user.chars().take(USER_MAX).collect()).unwrap_or_default();
    Ok(Some(Revocation { before, by }))
}

/// One custom signer in `status.registrations`: what OCM's registration agent puts into its certificate request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// `spec.signerName` of the request.
    pub signer_name: String,
    /// Common name; OCM's agent takes its own convention when it is empty.
    pub user: String,
    /// Organizations, in the order in which they are written.
    pub groups: Vec<String>,
    /// Organizational units, in the order in which they are written.
    pub organizational_units: Vec<String>,
}

impl Registration {
    /// The entry in the shape of `api`. Empty lists are left out, as Go does.
    #[must_use]
    pub fn render(&self, api: AddOnApi) -> Value {
        let mut subject = Map::from_iter([("user".to_owned(), json!(self.user))]);
        for (name, list) in [("groups", &self.groups), (units_field(api), &self.organizational_units)] {
            if !list.is_empty() {
                subject.insert(name.to_owned(), json!(list));
            }
        }
        let signer = json!({ "signerName": self.signer_name, "subject": subject });
        match api {
            AddOnApi::V1Alpha1 => signer,
            AddOnApi::V1Beta1 => json!({ "type": "customSigner", "customSigner": signer }),
        }
    }

    /// Whether a written entry says the same; fields that we do not know are left to whoever wrote them.
    fn says(&self, entry: &Value, api: AddOnApi) -> bool {
        let Some(signer) = custom_signer(entry, api) else {
            return false;
        };
        let subject = signer.get("subject").unwrap_or(&Value::Null);
        signer_name(entry, api) == Some(&self.signer_name)
            && subject.get("user").and_then(Value::as_str).unwrap_or_default() == self.user
            && strings(subject.get("groups")) == self.groups
            && strings(subject.get(units_field(api))) == self.organizational_units
    }
}

/// `status` of a merge patch that adds or updates our signer's entry and reports it in the condition
/// `RegistrationApplied`; `None` when everything is there already.
///
/// `status` is the object's current one (`Null` when it has none). Both lists come complete, for a merge patch replaces
/// lists as a whole: send it with the `resourceVersion` that `status` was read at. Every other entry and condition is
/// kept as it is. A `RegistrationApplied` that is false because of `SetPermissionFailed` stays: that is
/// addon-framework's report about the rights that it could not set.
#[must_use]
pub fn apply_registration(status: &Value, api: AddOnApi, entry: &Registration, now_rfc3339: &str) -> Option<Value> {
    let registrations = with_entry(list(status, "registrations"), api, entry);
    patch(status, registrations, APPLIED, now_rfc3339)
}

/// `status` of a merge patch that removes our signer's entry; `None` when there is none. See [`apply_registration`].
///
/// When it was the last one, the condition becomes addon-framework's `NilRegistration`.
#[must_use]
pub fn remove_registration(status: &Value, api: AddOnApi, signer: &str, now_rfc3339: &str) -> Option<Value> {
    let before = list(status, "registrations");
    let after: Vec<Value> = before.iter().filter(|entry| signer_name(entry, api) != Some(signer)).cloned().collect();
    if after.len() == before.len() {
        return None;
    }
    let report = if after.is_empty() { NIL_REGISTRATION } else { APPLIED };
    patch(status, after, report, now_rfc3339)
}

/// The list with exactly one entry of our signer, at the place of the first one or at the end.
fn with_entry(mut entries: Vec<Value>, api: AddOnApi, wanted: &Registration) -> Vec<Value> {
    let ours = |entry: &Value| signer_name(entry, api) == Some(&wanted.signer_name);
    let place = entries.iter().position(ours).unwrap_or(entries.len());
    let kept = entries.iter().find(|entry| wanted.says(entry, api)).cloned();
    entries.retain(|entry| !ours(entry));
    entries.insert(place, kept.unwrap_or_else(|| wanted.render(api)));
    entries
}

/// The patch, or `None` when neither list differs from what `status` has.
fn patch(status: &Value, registrations: Vec<Value>, report: (&str, &str), now: &str) -> Option<Value> {
    let conditions = with_report(list(status, "conditions"), report, now);
    let unchanged = registrations == list(status, "registrations") && conditions == list(status, "conditions");
    (!unchanged).then(|| json!({ "registrations": registrations, "conditions": conditions }))
}

/// The list with our report in `RegistrationApplied`; `lastTransitionTime` moves only when the status does.
fn with_report(mut conditions: Vec<Value>, (reason, message): (&str, &str), now: &str) -> Vec<Value> {
    let is_ours = |condition: &&mut Value| text(condition, "type") == CONDITION_REGISTRATION_APPLIED;
    let Some(condition) = conditions.iter_mut().find(is_ours) else {
        conditions.push(json!({
            "type": CONDITION_REGISTRATION_APPLIED, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": now,
        }));
        return conditions;
    };
    let (was_true, was_reason) = (text(condition, "status") == "True", text(condition, "reason").to_owned());
    if was_reason == REASON_SET_PERMISSION_FAILED || (was_true && was_reason == reason) {
        return conditions;
    }
    if let Some(fields) = condition.as_object_mut() {
        fields.insert("status".to_owned(), json!("True"));
        fields.insert("reason".to_owned(), json!(reason));
        fields.insert("message".to_owned(), json!(message));
        if !was_true {
            fields.insert("lastTransitionTime".to_owned(), json!(now));
        }
    }
    conditions
}

/// JSON name of the organizational units: singular in v1alpha1.
fn units_field(api: AddOnApi) -> &'static str {
    match api {
        AddOnApi::V1Alpha1 => "organizationUnit",
        AddOnApi::V1Beta1 => "organizationUnits",
    }
}

/// The object that holds `signerName` and `subject`.
fn custom_signer(entry: &Value, api: AddOnApi) -> Option<&Value> {
    match api {
        AddOnApi::V1Alpha1 => Some(entry),
        AddOnApi::V1Beta1 if text(entry, "type") == "customSigner" => entry.get("customSigner"),
        AddOnApi::V1Beta1 => None,
    }
}

fn signer_name(entry: &Value, api: AddOnApi) -> Option<&str> {
    custom_signer(entry, api)?.get("signerName")?.as_str()
}

/// A list of the status; anything but a list counts as empty.
fn list(status: &Value, name: &str) -> Vec<Value> {
    status.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn strings(value: Option<&Value>) -> Vec<&str> {
    let items = value.and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
#[path = "ocm_tests.rs"]
mod tests;
