//! The status of an AddOnSigner: conditions, authorities and the rotation, computed from the lineage and written when
//! they differ.

use std::collections::{BTreeMap, BTreeSet};

use json_patch::jsonptr::PointerBuf;
use json_patch::{PatchOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::authorities::lineage_report::{GOES_ON, WAITS, authorities, forced, rotation};
use crate::authorities::state::{LineageState, ReadyLineage};
use crate::conditions::{Report, Validity, condition, patch_of_status};
use crate::lease::{Leads, NotWritten};
use addon_signer_api::status::{
    AddOnSignerStatus, AgentsStatus, CONDITION_ADDONS_CONFLICTED, CONDITION_AUTHORITY_HEALTHY,
    CONDITION_AUTHORITY_ISSUED, CONDITION_FOREIGN, CONDITION_READY, CONDITION_REGISTERED, CONDITION_ROTATING,
    CONDITION_TRUST_BUNDLE_PROTECTED, CONDITION_TRUST_DISTRIBUTED, CONDITION_TRUST_PUBLISHED, ConditionValue,
    DUPLICATE_SIGNER_NAME,
};
use addon_signer_api::{AddOnSigner, AddOnSignerSpec, GuardedSigner};
use addon_signer_core::ca::lineage::WaitsFor;
use addon_signer_core::conditions::{
    AUTHORITY_EXPIRED, FALSE, FORCED, GATEWAY_BROKEN, GATEWAY_FORCED, INVALID_SPEC, ISSUED, LEDGER_AWAY, NOT_USED,
    READABLE, ROOT_UNNAMED, SETTLED, SIGNING, STARTING, STEPPING, TAINTED, TRUE, WAITING,
};
use addon_signer_core::list::few;
use addon_signer_core::policy::MIN_LIFETIME;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::Health;

/// How many addons with another owner the condition names.
const FEW: usize = 5;

/// The message with that reason.
pub(super) const SIGNING_SENTENCE: &str = "CSRs for this signer are validated and signed.";

/// What conditions say of a ledger in a volume that ends with the pod.
const EPHEMERAL: &str = "The record of who got a certificate is lost with the hub's pod (ledger.file.ephemeral).";

/// What other parts of the hub report about a signer.
pub struct Reports {
    /// The addons that belong to the signer.
    pub add_ons: BTreeSet<String>,
    /// Addons that it names but that belong to another signer.
    pub conflicted: Report,
    /// The registrations of its addons.
    pub registered: Report,
    /// How far the trust bundle has reached.
    pub distributed: Report,
    /// The ClusterTrustBundle.
    pub published: Report,
    /// Whether only the hub can set the trust bundle on CSRs.
    pub protected: Report,
    /// Certificates that another program signed.
    pub foreign: Report,
    /// How many of its addons on clusters have certificates, once they are counted.
    pub agents: Option<AgentsStatus>,
    /// What the first certificate of its authority waits for.
    pub first_waits_for: Option<WaitsFor>,
    /// Whether the ledger is lost with the hub's pod.
    pub is_ledger_ephemeral: bool,
}

/// Whether decisions can be recorded; while they cannot, nothing is signed.
pub fn recordable(ledger: &Health) -> Validity {
    match ledger {
        Health::Starting | Health::Up { .. } => Ok(()),
        Health::Down(error) => {
            Err((LEDGER_AWAY, format!("Nothing is signed, because it cannot be recorded: {error}.")))
        }
    }
}

/// The status that follows from an object's validity and its lineage; unchanged conditions keep their transition times.
///
/// `serving` is the gateway's lineage: its anchors are published with each certificate, so without them nothing is
/// signed.
pub fn wanted(
    signer: &AddOnSigner,
    validity: &Validity,
    lineage: &LineageState,
    serving: &LineageState,
    reports: Reports,
    now: Timestamp,
) -> AddOnSignerStatus {
    let before = signer.status.clone().unwrap_or_default();
    let (healthy, ready) = match (validity, lineage) {
        (_, LineageState::Starting | LineageState::Absent) => {
            (None, (false, STARTING, "The hub has not read the authorities yet.".to_owned()))
        }
        (_, LineageState::Broken { reason, message, .. }) => {
            (Some((false, *reason, message.clone())), (false, *reason, message.clone()))
        }
        (Ok(()), LineageState::Ready(ready)) => {
            let stops = tainted(ready).or_else(|| ended(ready, now));
            let signs = stops.unwrap_or_else(|| signing(serving, &reports, now));
            (Some(healthy_sentence()), signs)
        }
        (Err(_), LineageState::Ready(_)) => (Some(healthy_sentence()), (false, "", String::new())),
    };
    let ready = match validity {
        Ok(()) => ready,
        Err((reason, message)) => (false, *reason, message.clone()),
    };
    let last = lineage.last();
    let rotation = last.and_then(|ready| rotation(ready.lineage(), ready.waiting.as_ref()));
    let rotating = last.map(|ready| rotating(ready, now));
    let generation = signer.metadata.generation;
    let mut conditions = Vec::new();
    let known = [
        (CONDITION_READY, Report::ConditionValue(ready)),
        (CONDITION_AUTHORITY_HEALTHY, healthy.into()),
        (CONDITION_AUTHORITY_ISSUED, last.and_then(|ready| issued(ready)).into()),
        (CONDITION_ADDONS_CONFLICTED, reports.conflicted),
        (CONDITION_ROTATING, rotating.into()),
        (CONDITION_REGISTERED, reports.registered),
        (CONDITION_TRUST_DISTRIBUTED, reports.distributed),
        (CONDITION_TRUST_PUBLISHED, reports.published),
        (CONDITION_TRUST_BUNDLE_PROTECTED, reports.protected),
        (CONDITION_FOREIGN, reports.foreign),
    ];
    for (kind, report) in known {
        match report {
            Report::ConditionValue((holds, reason, message)) => {
                let status = if holds { TRUE } else { FALSE };
                conditions.push(condition(&before.conditions, (kind, status, reason), message, generation, now));
            }
            Report::AsBefore => conditions.extend(before.conditions.iter().find(|known| known.type_ == kind).cloned()),
            Report::Nothing => {}
        }
    }
    let add_on_list = Some(few(&reports.add_ons)).filter(|list| !list.is_empty());
    AddOnSignerStatus {
        observed_generation: generation,
        add_ons: reports.add_ons,
        add_on_list,
        authorities: last.map_or(before.authorities, |ready| authorities(ready.lineage())),
        rotation,
        authority_request: match lineage {
            LineageState::Starting | LineageState::Absent => before.authority_request,
            _ => lineage.request().cloned(),
        },
        agents: reports.agents.or(before.agents),
        conditions,
    }
}

fn rotating(ready: &ReadyLineage, now: Timestamp) -> (bool, &'static str, String) {
    let waiting = ready.waiting.as_ref().map(|what| format!("{WAITS}{what}."));
    let under_way = ready.lineage().members().len() > 1;
    let (rotates, reason, sentence) = match (forced(ready.lineage(), now), waiting) {
        (Some(forced), waiting) => {
            (true, FORCED, [forced, waiting.unwrap_or_default()].join(" ").trim_end().to_owned())
        }
        (None, Some(waiting)) => (true, WAITING, waiting),
        (None, None) if under_way => (true, STEPPING, "The next step is being taken.".to_owned()),
        (None, None) => (false, SETTLED, "One authority signs and no other is trusted.".to_owned()),
    };
    let refused = ready.not_rolled_back.as_ref().map(|why| format!(" {why}"));
    (rotates, reason, sentence + &refused.unwrap_or_default())
}

/// The condition about an authority from outside.
fn issued(ready: &ReadyLineage) -> Option<ConditionValue> {
    let outside = ready.outside.as_ref()?;
    Some(match &outside.refused {
        None => (true, ISSUED, "Every authority that the issuer has offered is or was in use.".to_owned()),
        Some(why) => (false, NOT_USED, format!("{why}. {GOES_ON}")),
    })
}

/// The condition while the authority that would sign is tainted.
fn tainted(ready: &ReadyLineage) -> Option<(bool, &'static str, String)> {
    let active = ready.lineage().active().filter(|active| active.tainted)?;
    let sentence = format!(
        "CSRs for this signer are validated. They wait until another authority signs, because {} is tainted.",
        active.authority.id()
    );
    Some((false, TAINTED, sentence))
}

/// The condition if the authority that would sign expires too soon for any certificate, because no successor has come.
fn ended(ready: &ReadyLineage, now: Timestamp) -> Option<(bool, &'static str, String)> {
    let active = &ready.lineage().active()?.authority;
    let ends = now.plus(MIN_LIFETIME) > active.not_after();
    let sentence = "CSRs for this signer wait: its authority ends, and no other may sign yet. Rotating says why.";
    ends.then(|| (false, AUTHORITY_EXPIRED, sentence.to_owned()))
}

fn signing(serving: &LineageState, reports: &Reports, now: Timestamp) -> (bool, &'static str, String) {
    if let Some(forced) = serving.last().and_then(|ready| forced(ready.lineage(), now)) {
        return (true, GATEWAY_FORCED, format!("CSRs are signed, but agents may not trust the gateway. {forced}"));
    }
    let outside = serving.last().and_then(|ready| ready.outside.as_ref());
    let unnamed = outside.and_then(|outside| outside.unnamed_root.as_ref());
    match serving {
        LineageState::Broken { message, last: None, .. } => (false, GATEWAY_BROKEN, message.clone()),
        LineageState::Starting | LineageState::Absent => {
            (false, STARTING, "The hub has not read the gateway's authorities yet.".to_owned())
        }
        LineageState::Ready(_) | LineageState::Broken { .. } => {
            let mut sentence = match &reports.first_waits_for {
                None => SIGNING_SENTENCE.to_owned(),
                Some(what) => {
                    format!("CSRs for this signer are validated. The first certificate waits for: {what}.")
                }
            };
            if reports.is_ledger_ephemeral {
                sentence = format!("{sentence} {EPHEMERAL}");
            }
            match unnamed {
                None => (true, SIGNING, sentence),
                Some(unnamed) => (true, ROOT_UNNAMED, format!("{sentence} {unnamed}")),
            }
        }
    }
}

fn healthy_sentence() -> (bool, &'static str, String) {
    (true, READABLE, "The Secret with the authorities is readable and its active key signs.".to_owned())
}

/// Writes the status of the object with this name, if it still has this version. Gateways trust the authorities in it,
/// so a delayed write must not undo a later one.
///
/// # Errors
/// [`NotWritten`]; the next change or the next round retries.
pub async fn write(
    leads: &Leads,
    api: &Api<GuardedSigner>,
    name: &str,
    of: &ObjectMeta,
    status: &AddOnSignerStatus,
) -> Result<(), NotWritten> {
    let mut patch = patch_of_status(of.uid.as_ref(), status);
    if let Patch::Json(json_patch::Patch(operations)) = &mut patch {
        let path = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
        operations.insert(0, PatchOperation::Test(TestOperation { path, value: json!(of.resource_version) }));
    }
    leads.write(api.patch_status(name, &PatchParams::default(), &patch)).await.map(drop)
}

/// Whether the status of an object names an authority whose certificates may not have expired yet.
pub fn remembers(signer: &AddOnSigner, now: Timestamp) -> bool {
    let authorities = signer.status.iter().flat_map(|status| &status.authorities);
    authorities.filter_map(|authority| authority.last_leaf_expires).any(|end| end > now)
}

/// Reports in the status of an object that it cannot be decoded.
pub async fn write_undecodable(
    leads: &Leads,
    api: &Api<GuardedSigner>,
    name: &str,
    cause: &str,
    now: Timestamp,
) -> Result<(), NotWritten> {
    let message = format!("The object cannot be read: {cause}.");
    let ready = condition(&[], (CONDITION_READY, FALSE, INVALID_SPEC), message, None, now);
    let body = json!({ "status": { "conditions": [ready] } });
    leads.write(api.patch_status(name, &PatchParams::default(), &Patch::Merge(&body))).await.map(drop)
}

/// The reason and the message for an object whose signer name belongs to the AddOnSigner `first`.
pub fn duplicate(first: &str, spec: &AddOnSignerSpec) -> (&'static str, String) {
    let sentence = format!(
        "spec.signerName {} is already served by the AddOnSigner {first}, which had it first.",
        spec.signer_name
    );
    (DUPLICATE_SIGNER_NAME, sentence)
}

/// The sentence about addons with another owner, each with its AddOnSigner.
pub fn conflicts(others: &BTreeMap<&str, &str>) -> String {
    let few: Vec<_> = others.iter().take(FEW).map(|(addon, owner)| format!("{addon} (AddOnSigner {owner})")).collect();
    let more = if others.len() > FEW { ", and so on" } else { "" };
    format!(
        "Other AddOnSigners had {} of these addons first: {}{more}. This AddOnSigner does not serve them. Remove them \
         from spec.addOns, or name this AddOnSigner in spec.successor of their owner.",
        others.len(),
        few.join(", ")
    )
}
