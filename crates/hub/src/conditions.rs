//! Conditions and events, by which the hub reports what it does with an object.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff;
use kube::api::Patch;
use kube::runtime::events::{Event, EventType, Reporter};
use serde::Serialize;
use serde_json::json;

use addon_signer_api::status::ConditionValue;
use addon_signer_core::timestamp::Timestamp;

/// The longest note of an event, in bytes (Kubernetes, `pkg/apis/core/validation/events.go`, `NoteLengthLimit`).
const NOTE_MAX: usize = 1024;

/// Whether the hub can serve the object; if not, the reason and the message of the condition.
pub(crate) type Validity = Result<(), (&'static str, String)>;

/// What to report in a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Nothing, so there is no such condition.
    Nothing,
    /// Nothing is known yet: the condition stays as it is.
    AsBefore,
    /// The condition is this one.
    ConditionValue(ConditionValue),
}

impl From<Option<ConditionValue>> for Report {
    fn from(condition: Option<ConditionValue>) -> Self {
        condition.map_or(Self::Nothing, Self::ConditionValue)
    }
}

/// A time as Kubernetes writes it.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(at.unix()).unwrap_or(jiff::Timestamp::MAX))
}

/// A condition. It keeps the time of its last transition if it had the same status before.
pub(crate) fn condition(
    before: &[Condition],
    (kind, status, reason): (&str, &str, &str),
    message: String,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let same = before.iter().find(|condition| condition.type_ == kind && condition.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: same.map_or_else(|| time(now), |condition| condition.last_transition_time.clone()),
    }
}

/// Replaces the status of the object with this uid, and fails for another object of that name. A merge patch could name
/// the uid too, but the API server ignores it below `/status` of a custom resource.
pub(crate) fn patch_of_status(uid: Option<&String>, status: &impl Serialize) -> Patch<()> {
    let is_it = TestOperation { path: PointerBuf::from_tokens(["metadata", "uid"]), value: json!(uid) };
    let whole = AddOperation { path: PointerBuf::from_tokens(["status"]), value: json!(status) };
    Patch::Json(json_patch::Patch(vec![PatchOperation::Test(is_it), PatchOperation::Add(whole)]))
}

/// An event. A note that is too long is cut.
pub(crate) fn event(type_: EventType, action: &str, reason: &str, mut note: String) -> Event {
    note.truncate(note.floor_char_boundary(NOTE_MAX));
    Event { type_, reason: reason.to_owned(), note: Some(note), action: action.to_owned(), secondary: None }
}

/// The reporter of events.
pub(crate) fn reporter() -> Reporter {
    Reporter { controller: "addon-signer".to_owned(), instance: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let note = event(EventType::Normal, "", "", "é".repeat(NOTE_MAX)).note.unwrap();
        assert_eq!(note.len(), NOTE_MAX);
        assert_eq!(event(EventType::Normal, "", "", format!("a{note}")).note.unwrap().len(), NOTE_MAX - 1);
    }
}
