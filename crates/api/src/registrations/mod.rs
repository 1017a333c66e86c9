//! `status.registrations` of a ManagedClusterAddOn in both of its versions. An entry of our signer there makes OCM's
//! agent request a certificate (open-cluster-management.io/api
//! `addon/{v1alpha1,v1beta1}/types_managedclusteraddon.go`).
//!
//! The hub writes this list. It is never a source of identity, because a cluster's agent may write it too.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use crate::ocm::{AddOnApi, status_managers};
pub use addon_signer_core::conditions::{CONDITION_REGISTRATION_APPLIED, REASON_TAKEN_AWAY};
use addon_signer_core::conditions::{FALSE, PERMISSION_APPLIED, TRUE};
use addon_signer_core::names::{CONDITION_ADDON_REGISTERED, CONDITION_CERTIFICATE};

/// The field manager of what the hub writes into the status of a ManagedClusterAddOn.
pub const FIELD_MANAGER: &str = "addon-signer";

/// One custom signer in `status.registrations`: what OCM's registration agent puts into its CSR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// `spec.signerName` of the CSR.
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

/// Whether a program other than this one last changed the list of registrations. Without `metadata.managedFields` this
/// is unknown, and the list counts as ours.
#[must_use]
pub fn is_anothers(object: &DynamicObject) -> bool {
    let mut managers = status_managers(&object.metadata, "registrations").peekable();
    managers.peek().is_some() && managers.all(|manager| manager != FIELD_MANAGER)
}

/// Which entries of one signer name the list should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedEntries {
    /// Exactly one: this one, or another program's if that is good.
    One(Registration),
    /// None.
    Nothing,
    /// All except this one.
    Without(Registration),
}

/// `status` of a merge patch that gives the list the `wanted` entries, by signer name; `None` if everything is already
/// there.
///
/// `status` is the object's current status (`Null` if it has none). The patch has complete lists, because a merge patch
/// replaces a list as a whole: send it with the `resourceVersion` of `status`. Every other entry and condition stays as
/// it is. An entry that another program wrote stays instead of ours, if it is `good`. The condition
/// `RegistrationApplied` is added only if there is none, because an existing one is addon-framework's report.
///
/// A cluster can make the list as long as it likes, so the list is read once for all signer names, and nothing of it is
/// cloned unless it changes.
#[must_use]
pub fn apply_registrations(
    status: &Value,
    api: AddOnApi,
    wanted: &BTreeMap<&str, WantedEntries>,
    good: impl Fn(&Registration) -> bool,
    now_rfc3339: &str,
) -> Option<Value> {
    let before = items(status, "registrations");
    let after = with_entries(before, api, wanted, good);
    let mut patch = Map::new();
    if after.len() != before.len() || after.iter().any(|entry| matches!(entry, Cow::Owned(_))) {
        let after = after.into_iter().map(Cow::into_owned).collect();
        patch.insert("registrations".to_owned(), Value::Array(after));
    }
    let conditions = items(status, "conditions");
    let reported = conditions.iter().any(|condition| text(condition, "type") == CONDITION_REGISTRATION_APPLIED);
    if !reported && wanted.values().any(|entries| matches!(entries, WantedEntries::One(_))) {
        // addon-framework writes the same reason and message when a registration is set up.
        let applied = json!({
            "type": CONDITION_REGISTRATION_APPLIED, "status": "True", "reason": PERMISSION_APPLIED,
            "message": "Registration of the addon agent is configured", "lastTransitionTime": now_rfc3339,
        });
        patch.insert("conditions".to_owned(), json!(with_condition(conditions.to_vec(), applied)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Whether the list names this signer.
#[must_use]
pub fn names_signer(status: &Value, api: AddOnApi, name: &str) -> bool {
    items(status, "registrations").iter().any(|entry| signer_name(entry, api) == Some(name))
}

/// Whether the object reports that its registrations are left to another program ([`CONDITION_ADDON_REGISTERED`]).
#[must_use]
pub fn is_left(status: &Value) -> bool {
    items(status, "conditions").iter().any(|condition| text(condition, "type") == CONDITION_ADDON_REGISTERED)
}

/// `status` of a merge patch that adds the condition of [`is_left`], or that removes it.
#[must_use]
pub fn say_left(status: &Value, left: bool, now_rfc3339: &str) -> Value {
    let mut conditions = items(status, "conditions").to_vec();
    if left {
        let message = "Another program keeps changing what addon-signer writes into status.registrations, so \
                       addon-signer leaves it to that program and checks again later. Name the signer where that \
                       program configures registrations.";
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

/// What the condition about the certificate of an addon says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateCondition {
    /// Whether it has a certificate that gateways accept.
    pub holds: bool,
    /// The reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// `status` of a merge patch that gives the object this condition ([`CONDITION_CERTIFICATE`]), or removes it; `None` if
/// the object is so already.
#[must_use]
pub fn say_certificate(status: &Value, wanted: Option<&CertificateCondition>, now_rfc3339: &str) -> Option<Value> {
    let conditions = items(status, "conditions");
    let mut known = conditions.iter().filter(|condition| text(condition, "type") == CONDITION_CERTIFICATE);
    let before = known.next();
    let Some(CertificateCondition { holds, reason, message }) = wanted else {
        let others = conditions.iter().filter(|condition| text(condition, "type") != CONDITION_CERTIFICATE);
        return before.is_some().then(|| json!({ "conditions": others.collect::<Vec<_>>() }));
    };
    let value = if *holds { TRUE } else { FALSE };
    let says = |field, wanted| before.is_some_and(|before| text(before, field) == wanted);
    if says("status", value) && says("reason", reason) && says("message", message) && known.next().is_none() {
        return None;
    }
    let since = before.map(|before| text(before, "lastTransitionTime")).filter(|_| says("status", value));
    let since = since.filter(|since| !since.is_empty()).unwrap_or(now_rfc3339);
    let condition = json!({
        "type": CONDITION_CERTIFICATE, "status": value, "reason": reason, "message": message,
        "lastTransitionTime": since,
    });
    Some(json!({ "conditions": with_condition(conditions.to_vec(), condition) }))
}

/// What that condition says, if the object has it: whether the addon has a certificate, the reason, and the message.
#[must_use]
pub fn certificate_reported(status: &Value) -> Option<(bool, &str, &str)> {
    let mut conditions = items(status, "conditions").iter();
    let reported = conditions.find(|condition| text(condition, "type") == CONDITION_CERTIFICATE)?;
    Some((text(reported, "status") == TRUE, text(reported, "reason"), text(reported, "message")))
}

/// The list with the wanted entries. The entry of a signer name takes the place of its first one, or goes at the end.
fn with_entries<'v>(
    before: &'v [Value],
    api: AddOnApi,
    wanted: &'v BTreeMap<&'v str, WantedEntries>,
    good: impl Fn(&Registration) -> bool,
) -> Vec<Cow<'v, Value>> {
    let wanted_of =
        |entry: &Value| wanted.get_key_value(signer_name(entry, api)?).map(|(name, entries)| (*name, entries));
    let mut stays: BTreeMap<&str, &Value> = BTreeMap::new();
    for entry in before {
        if let Some((name, WantedEntries::One(ours))) = wanted_of(entry)
            && !stays.contains_key(name)
            && Registration::read(entry, api).is_some_and(|found| found == *ours || good(&found))
        {
            stays.insert(name, entry);
        }
    }
    let one = |entries: &'v WantedEntries| if let WantedEntries::One(ours) = entries { Some(ours) } else { None };
    let mut missing: BTreeMap<&str, &Registration> =
        wanted.iter().filter_map(|(name, entries)| Some((*name, one(entries)?))).collect();
    let mut after = Vec::with_capacity(before.len());
    for entry in before {
        match wanted_of(entry) {
            None => after.push(Cow::Borrowed(entry)),
            Some((_, WantedEntries::Nothing)) => {}
            Some((_, WantedEntries::Without(gone))) => {
                if Registration::read(entry, api).as_ref() != Some(gone) {
                    after.push(Cow::Borrowed(entry));
                }
            }
            Some((name, WantedEntries::One(ours))) => {
                if missing.remove(name).is_some() {
                    let stays = stays.get(name).map(|entry| Cow::Borrowed(*entry));
                    after.push(stays.unwrap_or_else(|| Cow::Owned(ours.render(api))));
                }
            }
        }
    }
    after.extend(missing.values().map(|ours| Cow::Owned(ours.render(api))));
    after
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
fn items<'v>(status: &'v Value, name: &str) -> &'v [Value] {
    status.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
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
