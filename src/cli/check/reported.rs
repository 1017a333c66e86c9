//! Checks the objects of the Kubernetes API, and the addons on all clusters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Api, Resource, ResourceExt};

use super::authorities::ReportedLineage;
use super::{Finding, Inspection, Verdict, unknown};
use crate::cli::certs::LedgerSource;
use crate::cli::leader::{CLOCKS, Holder, leader};
use crate::cli::status::{AgentState, Gathered, Row, Selection, gather};
use crate::inventory::API_SERVICE;
use addon_signer_api::GuardedSigner;
use addon_signer_api::ocm::created_at;
use addon_signer_api::rules::SignerConfig;
use addon_signer_api::status::{
    CONDITION_ADDONS_CONFLICTED, CONDITION_AUTHORITY_HEALTHY, CONDITION_AUTHORITY_ISSUED, CONDITION_FOREIGN,
    CONDITION_READY, CONDITION_REGISTERED, CONDITION_TRUST_BUNDLE_PROTECTED, CONDITION_TRUST_DISTRIBUTED,
    CONDITION_TRUST_PUBLISHED,
};
use addon_signer_core::ca::authority::LAST_CALL;
use addon_signer_core::conditions::{DISTRIBUTING, PLACELESS, TEMPLATE_LACKS_SIGNER};
use addon_signer_core::lease::LEASE_NAME;
use addon_signer_core::oldest::{MOST_SIGNERS, Oldest};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::errors::explain;
use addon_signer_platform::listing::{self, Selector};
use addon_signer_platform::version::VERSION;

/// Reasons of conditions that are True and yet bad: an authority was activated without evidence, or agents trust a root
/// that no administrator has named.
const TRUE_BUT_BAD: [&str; 3] = ["Forced", "GatewayAuthorityForced", "GatewayRootUnnamed"];

/// How long the distribution of trust may take, in seconds. The hub writes 10,500 ManifestWorks in some five minutes; a
/// cluster that is offline applies its own later.
const DISTRIBUTION: i64 = 3_600;

impl Inspection {
    /// Whether a hub is leading, and has the version of this program.
    pub(super) async fn lease(&self) -> Vec<Finding> {
        let about = format!("Lease {LEASE_NAME}");
        vec![match leader(&self.client, &self.namespace).await {
            Ok(Ok(Holder { name, version: Some(version) })) if version == VERSION => {
                Finding::good(about, format!("{name} is leading, in version {version}"))
            }
            Ok(Ok(Holder { name, version })) => {
                let other = version.unwrap_or_else(|| "a build before 0.1.0".to_owned());
                let sentence =
                    format!("{name} is leading, in version {other}; this program is {VERSION}: upgrade one of them");
                Finding::bad(about, sentence)
            }
            Ok(Err(nobody)) => Finding::bad(about, nobody),
            Err(error) => Finding::new(Verdict::Unknown, about, explain(error.as_ref())),
        }]
    }

    /// Every AddOnSigner: its conditions and its authorities.
    pub(super) async fn signers(&self) -> Vec<Finding> {
        let signers: Api<GuardedSigner> = Api::all(self.client.clone());
        let signers = match listing::all(signers, Selector::all()).await {
            Ok(signers) => signers,
            Err(error) => return vec![unknown("AddOnSigners".to_owned(), &error)],
        };
        if signers.is_empty() {
            let sentence = "none exists, so no addon gets certificates: see deploy/example/signer.yaml";
            return vec![Finding::new(Verdict::Unknown, "AddOnSigners", sentence)];
        }
        let mut oldest = Oldest::new(MOST_SIGNERS);
        for signer in &signers {
            oldest.put("", &signer.name_any(), created_at(signer.meta()));
        }
        let mut found = Vec::new();
        for signer in signers {
            let about = format!("AddOnSigner {}", signer.name_any());
            if !oldest.is_chosen("", &signer.name_any()) {
                let sentence = format!("it takes no effect: there are {MOST_SIGNERS} older ones, which is the most");
                found.push(Finding::bad(&about, sentence));
                continue;
            }
            let signer = match signer.read() {
                Ok(signer) => signer,
                Err(error) => {
                    let sentence = format!("it cannot be read: {error}; docs/reference.md has its fields");
                    found.push(Finding::bad(&about, sentence));
                    continue;
                }
            };
            let status = signer.status.clone().unwrap_or_default();
            let findings: Vec<_> = status.conditions.iter().filter_map(|it| self.judged(&about, it)).collect();
            let is_bad = findings.iter().any(|found| found.verdict == Verdict::Bad);
            match status.conditions.iter().find(|condition| condition.type_ == CONDITION_READY) {
                None => found.push(Finding::bad(&about, "no hub has reported on it: is one running?")),
                Some(ready) if !is_bad => found.push(Finding::good(&about, ready.message.as_str())),
                Some(_) => {}
            }
            found.extend(findings);
            found.extend(outdated(&about, &signer.metadata, status.observed_generation, self.now));
            // The hub does not serve a spec that it cannot read, and reports that itself.
            let plan = SignerConfig::read(&signer.spec, None).map(|config| config.authority.renew_before);
            let lineage = ReportedLineage {
                authorities: &status.authorities,
                rotation: status.rotation.as_ref(),
                renew_before: plan.unwrap_or(2 * LAST_CALL),
            };
            found.extend(lineage.findings(&about, self.now));
        }
        found
    }

    fn judged(&self, about: &str, condition: &Condition) -> Option<Finding> {
        let found = judged(about, condition, self.now)?;
        let is_of_others = [DISTRIBUTING, TEMPLATE_LACKS_SIGNER].contains(&condition.reason.as_str());
        Some(if is_of_others { self.of_others(found) } else { found })
    }

    /// The APIService of the inventory, if it is installed.
    pub(super) async fn inventory(&self) -> Vec<Finding> {
        let about = "inventory";
        let services: Api<APIService> = Api::all(self.client.clone());
        let service = match services.get_opt(API_SERVICE).await {
            Ok(Some(service)) => service,
            Ok(None) => return vec![Finding::good(about, "it is not installed (inventory.enabled)")],
            Err(error) => return vec![unknown(about.to_owned(), &error)],
        };
        let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
        let available = conditions.into_iter().find(|condition| condition.type_ == "Available");
        vec![match available {
            Some(condition) if condition.status == "True" => Finding::good(about, "the API server can reach it"),
            Some(condition) => Finding::bad(
                about,
                format!(
                    "the API server cannot reach it: {}. Check the Service addon-signer-inventory, its NetworkPolicy \
                     and the hub's --inventory-listen",
                    condition.message.unwrap_or_default().trim_end_matches('.')
                ),
            ),
            None => Finding::bad(
                about,
                format!("the API server has not checked it: `kubectl get apiservice {API_SERVICE}` shows no state yet"),
            ),
        }]
    }
}

/// The finding that follows from a condition.
fn judged(about: &str, condition: &Condition, now: Timestamp) -> Option<Finding> {
    let holds = condition.status == "True";
    let is_new = now.unix().saturating_sub(condition.last_transition_time.0.as_second()) <= DISTRIBUTION;
    let verdict = match condition.type_.as_str() {
        // An administrator must bring it to addons that get no ManifestWork; a rotation that waits for them reports
        // that itself.
        CONDITION_TRUST_DISTRIBUTED if !holds && condition.reason == PLACELESS => Verdict::Unknown,
        CONDITION_TRUST_DISTRIBUTED if !holds && condition.reason == DISTRIBUTING && is_new => Verdict::Unknown,
        CONDITION_READY
        | CONDITION_AUTHORITY_HEALTHY
        | CONDITION_AUTHORITY_ISSUED
        | CONDITION_REGISTERED
        | CONDITION_TRUST_DISTRIBUTED
        | CONDITION_TRUST_PUBLISHED
        | CONDITION_TRUST_BUNDLE_PROTECTED
            if !holds =>
        {
            Verdict::Bad
        }
        CONDITION_FOREIGN | CONDITION_ADDONS_CONFLICTED if holds => Verdict::Bad,
        _ if TRUE_BUT_BAD.contains(&condition.reason.as_str()) => Verdict::Bad,
        _ => return None,
    };
    let Condition { type_, status, reason, message, .. } = condition;
    Some(Finding::new(verdict, about, format!("{type_} is {status}, {reason}: {message}")))
}

/// Whether the status is about an earlier spec. A hub processes an edit at once.
pub(super) fn outdated(about: &str, metadata: &ObjectMeta, observed: Option<i64>, now: Timestamp) -> Option<Finding> {
    if observed? >= metadata.generation? {
        return None;
    }
    let edits = metadata.managed_fields.iter().flatten().filter(|edit| edit.subresource.is_none());
    let last = edits.filter_map(|edit| edit.time.as_ref()).map(|time| Timestamp::from_unix(time.0.as_second())).max();
    let ago = last.map(|last| last.until(now).as_secs());
    let when = ago.map(|ago| format!(" from {ago} s ago")).unwrap_or_default();
    let sentence = format!(
        "no hub has processed its last edit{when}, so its conditions describe the previous spec: check the hub's pods \
         and their logs"
    );
    let verdict = if ago.is_some_and(|ago| ago > CLOCKS) { Verdict::Bad } else { Verdict::Unknown };
    Some(Finding::new(verdict, about, sentence))
}

const ABOUT: &str = "addons on clusters";

impl Inspection {
    /// Whether every eligible addon has a valid certificate.
    pub(super) async fn certificates(&self, ledger: anyhow::Result<LedgerSource>) -> Vec<Finding> {
        match gather(&self.client, ledger, &self.namespace, &Selection::default()).await {
            Ok(gathered) => {
                let notes = gathered.notes().map(|note| Finding::new(Verdict::Unknown, ABOUT, note));
                [self.of_others(finding(&gathered))].into_iter().chain(notes).collect()
            }
            Err(error) => vec![Finding::new(Verdict::Unknown, ABOUT, explain(error.as_ref()))],
        }
    }
}

fn finding(gathered: &Gathered) -> Finding {
    let live: Vec<&Row> = gathered.rows.iter().filter(|row| row.state != AgentState::NotEligible).collect();
    // The worst rows come first.
    let bad: Vec<_> = live.iter().take_while(|row| row.state <= AgentState::RenewalRefused).collect();
    let Some(worst) = bad.first() else {
        if let Some(why) = gathered.unknown() {
            let unknown = live.iter().filter(|row| row.state == AgentState::Unknown).count();
            let sentence = format!("of {unknown} it is not known whether they have certificates: {why}");
            return Finding::new(Verdict::Unknown, ABOUT, sentence);
        }
        return Finding::good(ABOUT, format!("all {} that are eligible have valid certificates", live.len()));
    };
    Finding::bad(
        ABOUT,
        format!(
            "{} of {} have no valid certificate or had their last CSR refused: `addon-signer status` lists them; \
             {}/{} is waiting for {}",
            bad.len(),
            live.len(),
            worst.cluster,
            worst.addon,
            worst.waits_for.as_deref().unwrap_or_default(),
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_that_need_somebody_are_bad() {
        let judge = |kind: &str, status: &str, reason: &str, age: i64| {
            let at = "1970-01-01T00:00:00Z";
            let condition =
                json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at });
            let condition = serde_json::from_value(condition).unwrap();
            judged("it", &condition, Timestamp::from_unix(age)).map(|found| found.verdict)
        };
        for (kind, status, reason, expected) in [
            ("Ready", "False", "LedgerAway", Some(Verdict::Bad)),
            ("Ready", "True", "GatewayAuthorityForced", Some(Verdict::Bad)),
            ("Ready", "True", "Signing", None),
            ("Registered", "False", "TakenAway", Some(Verdict::Bad)),
            ("Registered", "True", "Written", None),
            ("AuthorityIssued", "False", "NotUsed", Some(Verdict::Bad)),
            ("AuthorityIssued", "True", "Issued", None),
            ("Rotating", "True", "Forced", Some(Verdict::Bad)),
            ("Rotating", "True", "Waiting", None),
            ("Rotating", "False", "Settled", None),
            ("TrustDistributed", "False", "WriteFailed", Some(Verdict::Bad)),
            ("TrustDistributed", "False", "PolicyMissing", Some(Verdict::Bad)),
            ("TrustDistributed", "False", "Distributing", Some(Verdict::Unknown)),
            ("TrustDistributed", "False", "Placeless", Some(Verdict::Unknown)),
            ("TrustPublished", "False", "NotPublished", Some(Verdict::Bad)),
            ("TrustPublished", "True", "Published", None),
            ("ForeignCertificates", "True", "SignedByAnother", Some(Verdict::Bad)),
        ] {
            assert_eq!(judge(kind, status, reason, DISTRIBUTION), expected, "{kind} {status} {reason}");
        }
        let late = |reason| judge("TrustDistributed", "False", reason, DISTRIBUTION + 1);
        assert_eq!(late("Distributing"), Some(Verdict::Bad), "it stands still");
        assert_eq!(late("Placeless"), Some(Verdict::Unknown));
    }

    #[test]
    fn an_edit_that_no_hub_has_looked_at_for_a_minute_is_bad() {
        let edit = |at: &str, subresource: &str| json!({ "manager": "m", "time": at, "subresource": subresource });
        let judge = |observed: i64, edits: serde_json::Value| {
            let metadata = serde_json::from_value(json!({ "generation": 2, "managedFields": edits })).unwrap();
            let now = Timestamp::from_unix(1_000);
            outdated("it", &metadata, Some(observed), now).map(|found| found.verdict)
        };
        let made = json!({ "manager": "m", "time": "1970-01-01T00:15:00Z" }); // second 900
        let edited = json!({ "manager": "n", "time": "1970-01-01T00:16:00Z" }); // second 960
        let status = edit("1970-01-01T00:16:30Z", "status");
        assert_eq!(judge(2, json!([made])), None);
        assert_eq!(judge(1, json!([made, status])), Some(Verdict::Bad));
        assert_eq!(judge(1, json!([made, edited, status])), Some(Verdict::Unknown), "a hub needs a moment");
        assert_eq!(judge(1, json!([])), Some(Verdict::Unknown), "nobody knows since when");
    }
}
