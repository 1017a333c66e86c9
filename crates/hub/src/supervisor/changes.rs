//! The events about an AddOnSigner that follow from a change of its status.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::{Event, EventType};

use super::status::SIGNING_SENTENCE;
use crate::conditions::event;
use addon_signer_api::AddOnSignerStatus;
use addon_signer_api::status::{
    AuthorityState, AuthorityStatus, CONDITION_ADDONS_CONFLICTED, CONDITION_FOREIGN, CONDITION_READY,
    CONDITION_REGISTERED,
};
use addon_signer_core::conditions::{
    AUTHORITY_ACTIVATED, AUTHORITY_PREPARED, AUTHORITY_REMOVED, AUTHORITY_TAINTED, FORCED, GATEWAY_FORCED,
    ROOT_UNNAMED, SIGNING, STARTING,
};

/// The action of events about registrations.
pub(super) const REGISTERING: &str = "Registering";
/// The events for each changed condition and each step of a rotation.
pub(super) fn events(before: Option<&AddOnSignerStatus>, after: &AddOnSignerStatus) -> Vec<Event> {
    let known = before.map(|status| &*status.authorities).unwrap_or_default();
    let known_conditions = before.map(|status| &*status.conditions).unwrap_or_default();
    let conditions = after.conditions.iter().filter_map(|condition| of_condition(known_conditions, condition));
    steps(known, &after.authorities).into_iter().chain(conditions).collect()
}

/// Events for authorities that were tainted, prepared, activated or removed.
fn steps(before: &[AuthorityStatus], after: &[AuthorityStatus]) -> Vec<Event> {
    let states: BTreeMap<_, _> = before.iter().map(|authority| (&authority.id, authority.state)).collect();
    let mut steps = Vec::new();
    let tainted: BTreeSet<_> = before.iter().filter(|known| known.tainted).map(|known| &known.id).collect();
    for AuthorityStatus { id, .. } in after.iter().filter(|now| now.tainted && !tainted.contains(&now.id)) {
        let note =
            format!("The authority {id} is tainted: somebody else may know its key. It never becomes Active again.");
        steps.push(event(EventType::Warning, "Rotating", AUTHORITY_TAINTED, note));
    }
    let mut step = |reason, note| steps.push(event(EventType::Normal, "Rotating", reason, note));
    for AuthorityStatus { id, state, not_after, .. } in after {
        match (states.get(id), state) {
            (None, AuthorityState::Next) => {
                step(AUTHORITY_PREPARED, format!("The authority {id} was created, and signs once it is trusted."));
            }
            (None | Some(AuthorityState::Next | AuthorityState::Old), AuthorityState::Active) => {
                step(AUTHORITY_ACTIVATED, format!("The authority {id} is now signing. It expires at {not_after}."));
            }
            _ => {}
        }
    }
    for AuthorityStatus { id, .. } in before {
        if after.iter().all(|authority| authority.id != *id) {
            step(AUTHORITY_REMOVED, format!("The authority {id} was removed with its key."));
        }
    }
    steps
}

/// An event if status or reason changed. `Ready`: always, except `Starting`. `Registered`: not for a first `True`.
/// `AddOnsConflicted`, `ForeignCertificates` and the reason `Forced`: always.
fn of_condition(before: &[Condition], condition: &Condition) -> Option<Event> {
    let known = before.iter().find(|known| known.type_ == condition.type_);
    if known.is_some_and(|known| (&known.status, &known.reason) == (&condition.status, &condition.reason)) {
        return None;
    }
    let (kind, reason) = (condition.type_.as_str(), condition.reason.as_str());
    let holds = condition.status == "True";
    let (type_, action) = match kind {
        CONDITION_READY if reason == STARTING => return None,
        CONDITION_READY if holds && ![GATEWAY_FORCED, ROOT_UNNAMED].contains(&reason) => (EventType::Normal, "Signing"),
        CONDITION_READY | CONDITION_FOREIGN | CONDITION_ADDONS_CONFLICTED => (EventType::Warning, "Signing"),
        CONDITION_REGISTERED if !holds => (EventType::Warning, REGISTERING),
        CONDITION_REGISTERED if known.is_some() => (EventType::Normal, REGISTERING),
        _ if reason == FORCED => (EventType::Warning, "Rotating"),
        _ => return None,
    };
    let note = match reason {
        // The message may name what the first certificate waits for, and no event would report the end of that.
        SIGNING => SIGNING_SENTENCE,
        _ => &condition.message,
    };
    Some(event(type_, action, reason, note.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TIME: &str = "2030-01-02T03:04:05Z";

    fn mk_status(authorities: &[(&str, &str)], conditions: &[(&str, &str, &str)]) -> AddOnSignerStatus {
        let authority = |&(id, state): &(&str, &str)| {
            let (state, tainted) = (state.trim_end_matches('!'), state.ends_with('!'));
            json!({ "id": id, "state": state, "tainted": tainted, "notBefore": TIME, "notAfter": TIME })
        };
        let condition = |&(kind, status, reason)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "Said.", "lastTransitionTime": TIME
            })
        };
        let authorities: Vec<_> = authorities.iter().map(authority).collect();
        let conditions: Vec<_> = conditions.iter().map(condition).collect();
        serde_json::from_value(json!({ "authorities": authorities, "conditions": conditions })).unwrap()
    }

    fn notes_of(before: &AddOnSignerStatus, after: &AddOnSignerStatus) -> Vec<String> {
        let tell = |event: Event| format!("{:?} {} {}", event.type_, event.action, event.reason);
        events(Some(before), after).into_iter().map(tell).collect()
    }

    #[test]
    fn every_step_of_a_rotation_is_an_event() {
        let steps = [
            (mk_status(&[], &[]), vec![]),
            (mk_status(&[("a", "Active")], &[]), vec!["Normal Rotating AuthorityActivated"]),
            (mk_status(&[("b", "Next"), ("a", "Active")], &[]), vec!["Normal Rotating AuthorityPrepared"]),
            (mk_status(&[("b", "Active"), ("a", "Old")], &[]), vec!["Normal Rotating AuthorityActivated"]),
            (mk_status(&[("a", "Active"), ("b", "Old")], &[]), vec!["Normal Rotating AuthorityActivated"]),
            (mk_status(&[("a", "Active")], &[]), vec!["Normal Rotating AuthorityRemoved"]),
            (mk_status(&[("a", "Active!")], &[]), vec!["Warning Rotating AuthorityTainted"]),
            (mk_status(&[("c", "Active"), ("a", "Old!")], &[]), vec!["Normal Rotating AuthorityActivated"]),
        ];
        for pair in steps.windows(2) {
            assert_eq!(notes_of(&pair[0].0, &pair[1].0), pair[1].1);
            assert_eq!(notes_of(&pair[1].0, &pair[1].0), [""; 0]);
        }
        let note = events(None, &steps[1].0)[0].note.clone().unwrap();
        assert_eq!(note, format!("The authority a is now signing. It expires at {TIME}."));
    }

    #[test]
    fn every_change_of_ready_except_starting_is_an_event() {
        let ready = |status, reason| mk_status(&[], &[(CONDITION_READY, status, reason)]);
        let states = [
            (ready("False", STARTING), vec![]),
            (ready("True", "Signing"), vec!["Normal Signing Signing"]),
            (ready("True", GATEWAY_FORCED), vec!["Warning Signing GatewayAuthorityForced"]),
            (ready("True", ROOT_UNNAMED), vec!["Warning Signing GatewayRootUnnamed"]),
            (ready("False", "LedgerAway"), vec!["Warning Signing LedgerAway"]),
            (ready("False", "InvalidSpec"), vec!["Warning Signing InvalidSpec"]),
            (ready("False", STARTING), vec![]),
        ];
        for pair in states.windows(2) {
            assert_eq!(notes_of(&pair[0].0, &pair[1].0), pair[1].1);
            assert_eq!(notes_of(&pair[1].0, &pair[1].0), [""; 0]);
        }
        assert_eq!(events(None, &states[1].0)[0].note.as_deref(), Some(SIGNING_SENTENCE), "whatever it waits for");
        assert_eq!(events(None, &states[3].0)[0].note.as_deref(), Some("Said."));
    }

    #[test]
    fn every_other_condition_is_an_event_once() {
        let quiet = [("Registered", "True", "Written"), ("Rotating", "True", "Waiting")];
        let loud = [
            ("Registered", "False", "TemplateLacksSigner"),
            ("Rotating", "True", FORCED),
            (CONDITION_FOREIGN, "True", "SignedByAnother"),
            (CONDITION_ADDONS_CONFLICTED, "True", "AddOnsOfOthers"),
        ];
        let (quiet, loud) = (mk_status(&[], &quiet), mk_status(&[], &loud));
        let expected = [
            "Warning Registering TemplateLacksSigner",
            "Warning Rotating Forced",
            "Warning Signing SignedByAnother",
            "Warning Signing AddOnsOfOthers",
        ];
        assert_eq!(notes_of(&quiet, &loud), expected);
        assert_eq!(notes_of(&loud, &loud), [""; 0]);
        assert_eq!(notes_of(&loud, &quiet), ["Normal Registering Written"], "the others end without one");
    }
}
