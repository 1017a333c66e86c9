//! `status.registrations` of a ManagedClusterAddOn in both of its versions. An entry of our signer there makes OCM's
//! agent request a certificate (open-cluster-management.io/api
//! `addon/{v1alpha1,v1beta1}/types_managedclusteraddon.go`).
//!
//! The hub writes this list. It is never a source of identity, because a cluster's agent may write it too.

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use crate::api::manager::status_managers;
use crate::api::ocm::AddOnApi;
use addon_signer_core::names::CONDITION_ADDON_REGISTERED;

/// The field manager of what the hub writes into the status of a ManagedClusterAddOn.
pub const FIELD_MANAGER: &str = "addon-signer";
/// Condition type of a ManagedClusterAddOn: the hub has set up the addon's registration.
pub const CONDITION_REGISTRATION_APPLIED: &str = "RegistrationApplied";
/// Reason of [`CONDITION_ADDON_REGISTERED`], and of the condition `Registered` of an AddOnSigner.
pub const REASON_TAKEN_AWAY: &str = "TakenAway";

/// One custom signer in `status.registrations`: what OCM's registration agent puts into its certificate request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// `spec.signerName` of the request.
    pub signer_name: String,
    /// Common name; if it is empty, OCM's agent uses its own convention.
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

    /// Reads an entry, and ignores fields that we do not know.
    fn read(entry: &Value, api: AddOnApi) -> Option<Self> {
        let signer = custom_signer(entry, api)?;
        let subject = signer.get("subject").unwrap_or(&Value::Null);
        Some(Self {
            signer_name: text(signer, "signerName").to_owned(),
            user: text(subject, "user").to_owned(),
            groups: strings(subject.get("groups")),
            organizational_units: strings(subject.get(units_field(api))),
        })
    }
}

/// Whether another program than this one last changed the list of registrations. Without `metadata.managedFields` this
/// is unknown, and the list counts as ours.
#[must_use]
pub fn is_anothers(object: &DynamicObject) -> bool {
    let mut managers = status_managers(&object.metadata, "registrations").peekable();
    managers.peek().is_some() && managers.all(|manager| manager != FIELD_MANAGER)
}

/// `status` of a merge patch that adds or updates our signer's entry; `None` when everything is there already.
///
/// `status` is the object's current status (`Null` if it has none). The patch has complete lists, because a merge patch
/// replaces a list as a whole: send it with the `resourceVersion` of `status`. Every other entry and condition stays as
/// it is. An entry of our signer that another program wrote stays too, if it is `good`. The condition
/// `RegistrationApplied` is added only if there is none, because an existing one is addon-framework's report.
#[must_use]
pub fn apply_registration(
    status: &Value,
    api: AddOnApi,
    entry: &Registration,
    good: impl Fn(&Registration) -> bool,
    now_rfc3339: &str,
) -> Option<Value> {
    let before = list(status, "registrations");
    let after = with_entry(before.clone(), api, entry, good);
    let conditions = list(status, "conditions");
    let reported = conditions.iter().any(|condition| text(condition, "type") == CONDITION_REGISTRATION_APPLIED);
    if reported {
        return (after != before).then(|| json!({ "registrations": after }));
    }
    // addon-framework writes the same reason and message when a registration is set up.
    let applied = json!({
        "type": CONDITION_REGISTRATION_APPLIED, "status": "True", "reason": "SetPermissionApplied",
        "message": "Registration of the addon agent is configured", "lastTransitionTime": now_rfc3339,
    });
    Some(json!({ "registrations": after, "conditions": with_condition(conditions, applied) }))
}

/// `status` of a merge patch that removes the entries of custom signers that `goes` names; `None` when there is none.
/// See [`apply_registration`].
#[must_use]
pub fn remove_registration(status: &Value, api: AddOnApi, goes: impl Fn(&Registration) -> bool) -> Option<Value> {
    let before = list(status, "registrations");
    let stays = |entry: &&Value| !Registration::read(entry, api).is_some_and(|found| goes(&found));
    let after: Vec<Value> = before.iter().filter(stays).cloned().collect();
    (after.len() != before.len()).then(|| json!({ "registrations": after }))
}

/// Whether the object says that its registrations are left to another program ([`CONDITION_ADDON_REGISTERED`]).
#[must_use]
pub fn is_left(status: &Value) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| text(condition, "type") == CONDITION_ADDON_REGISTERED)
}

/// `status` of a merge patch that adds the condition of [`is_left`], or that removes it.
#[must_use]
pub fn say_left(status: &Value, left: bool, now_rfc3339: &str) -> Value {
    let mut conditions = list(status, "conditions");
    if left {
        let message = "Another program keeps changing what addon-signer writes into status.registrations, so \
                       addon-signer leaves it to that program and looks again later. Name the signer where that \
                       program names registrations.";
        let condition = json!({
            "type": CONDITION_ADDON_REGISTERED, "status": "False", "reason": REASON_TAKEN_AWAY, "message": message,
            "lastTransitionTime": now_rfc3339,
        });
        conditions = with_condition(conditions, condition);
    } else {
        conditions.retain(|condition| text(condition, "type") != CONDITION_ADDON_REGISTERED);
    }
    json!({ "conditions": conditions })
}

/// The list with exactly one entry of our signer, at the place of the first one or at the end.
fn with_entry(
    mut entries: Vec<Value>,
    api: AddOnApi,
    wanted: &Registration,
    good: impl Fn(&Registration) -> bool,
) -> Vec<Value> {
    let ours = |entry: &Value| signer_name(entry, api) == Some(&wanted.signer_name);
    let place = entries.iter().position(ours).unwrap_or(entries.len());
    let read = |entry: &&Value| Registration::read(entry, api).filter(|found| found.signer_name == wanted.signer_name);
    let kept = entries.iter().find(|entry| read(entry).is_some_and(|found| found == *wanted || good(&found))).cloned();
    entries.retain(|entry| !ours(entry));
    entries.insert(place, kept.unwrap_or_else(|| wanted.render(api)));
    entries
}

/// The list without any condition of the same type, and with the new one at the end.
fn with_condition(mut conditions: Vec<Value>, new: Value) -> Vec<Value> {
    conditions.retain(|condition| text(condition, "type") != text(&new, "type"));
    conditions.push(new);
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

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
