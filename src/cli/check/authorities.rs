//! Checks authorities, and rotations that are waiting.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use super::{Finding, Inspection, Verdict, unknown};
use addon_signer_api::Lenient;
use addon_signer_api::status::{AuthorityState, AuthorityStatus, RotationPhase, RotationStatus};
use addon_signer_core::ca::authority::LAST_CALL;
use addon_signer_core::ca::lineage::MAX_AUTHORITIES;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::authorities::GATEWAY_PLAN;
use addon_signer_hub::authorities::lineage_report::GatewayLineageReport;
use addon_signer_hub::authorities::store::{LineageNames, STATUS_KEY};

/// One lineage of authorities as reported.
pub(super) struct ReportedLineage<'r> {
    pub(super) authorities: &'r [AuthorityStatus],
    pub(super) rotation: Option<&'r RotationStatus>,
    /// Remaining validity at which the successor must have taken over. On a client lineage the hub makes the successor
    /// then, and gateways trust it within seconds; on the gateway's lineage the longest wait for agents is over then,
    /// which its own `renewBefore` also includes.
    pub(super) renew_before: Duration,
}

impl ReportedLineage<'_> {
    /// Remaining validity from which the end counts as near. Two thirds of the time before the hub activates the
    /// successor without evidence have passed then, and an administrator still has time to find out why.
    fn near(&self) -> Duration {
        let last_call = LAST_CALL.min(self.renew_before / 2);
        last_call + self.renew_before.saturating_sub(last_call) / 3
    }

    /// What the next authority waits for.
    fn waits(&self) -> Option<(Timestamp, &str)> {
        let is_full = self.authorities.len() >= MAX_AUTHORITIES; // a further one waits to be made
        let rotation = self.rotation.filter(|rotation| rotation.phase != RotationPhase::Finish || is_full)?;
        Some((rotation.since, rotation.waiting_for.as_deref()?))
    }

    /// The authority that signs, its end, and what a rotation waits for.
    pub(super) fn findings(&self, about: &str, now: Timestamp) -> Vec<Finding> {
        let Some(active) = self.authorities.iter().find(|authority| authority.state == AuthorityState::Active) else {
            return vec![Finding::bad(about, "no authority is signing: if a hub is running, its log says why")];
        };
        let end = active.not_after;
        let sentence = format!("the authority {} is signing, and expires at {end}", active.id);
        let waits = self.waits();
        if now.until(end) <= self.near() {
            let waits = waits.map(|(_, what)| format!("; the next one is waiting for: {what}")).unwrap_or_default();
            let sentence = format!("{sentence}, and none has replaced it{waits}: see docs/runbooks/rotate-a-ca.md");
            return vec![Finding::bad(about, sentence)];
        }
        let waiting = waits.map(|(since, what)| {
            Finding::new(Verdict::Unknown, about, format!("a rotation has been waiting since {since} for: {what}"))
        });
        [Finding::good(about, sentence)].into_iter().chain(waiting).collect()
    }
}

impl Inspection {
    /// The gateway's own authorities. Those for backends exist once an AddOnRoute needs them.
    pub(super) async fn gateway_lineages(&self) -> Vec<Finding> {
        let mut found = self.gateway_lineage(GatewayCertificate::Serving, "gateway's authority").await;
        found.extend(self.gateway_lineage(GatewayCertificate::Client, "gateway's client authority").await);
        found
    }

    async fn gateway_lineage(&self, certificate: GatewayCertificate, about: &str) -> Vec<Finding> {
        let maps: Api<Lenient<ConfigMap>> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = LineageNames::gateway(certificate).config_map;
        let map = match maps.get_opt(&name).await {
            Ok(None) if certificate == GatewayCertificate::Client => return Vec::new(),
            Ok(map) => map,
            Err(error) => return vec![unknown(about.to_owned(), &error)],
        };
        let text = map.and_then(|map| map.object.data?.remove(STATUS_KEY)).unwrap_or_default();
        let report: GatewayLineageReport = match serde_json::from_str(&text) {
            Ok(report) => report,
            Err(_) if text.is_empty() => GatewayLineageReport::default(),
            Err(error) => {
                let sentence = format!(
                    "the report in {STATUS_KEY} of the ConfigMap {name} cannot be read: {error}; the leading hub \
                     will rewrite it"
                );
                return vec![Finding::bad(about, sentence)];
            }
        };
        let problem = report.problem.map(|problem| Finding::bad(about, problem));
        let lineage = ReportedLineage {
            authorities: &report.authorities,
            rotation: report.rotation.as_ref(),
            renew_before: GATEWAY_PLAN.renew_before,
        };
        problem.into_iter().chain(lineage.findings(about, self.now)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOUR: u64 = 3_600;
    const DAY: u64 = 24 * HOUR;

    /// The findings for a lineage whose authority expires in `left` seconds, with this `renewBefore`.
    fn verdicts(left: u64, renew_before: u64, rotation: Option<RotationStatus>) -> Vec<Finding> {
        let end = Timestamp::from_unix(i64::try_from(left).unwrap());
        let authority = json!([{ "id": "a", "state": "Active", "notBefore": "1970-01-01T00:00:00Z", "notAfter": end }]);
        let authorities: Vec<AuthorityStatus> = serde_json::from_value(authority).unwrap();
        let renew_before = Duration::from_secs(renew_before);
        let lineage = ReportedLineage { authorities: &authorities, rotation: rotation.as_ref(), renew_before };
        lineage.findings("line", Timestamp::from_unix(0))
    }

    fn mk_rotation(phase: &str) -> Option<RotationStatus> {
        let rotation = json!({ "phase": phase, "since": "1970-01-01T00:00:00Z", "waitingFor": "agents" });
        Some(serde_json::from_value(rotation).unwrap())
    }

    #[test]
    fn overdue_rotation_fails_the_check_long_before_it_is_forced() {
        let late = DAY + 89 * DAY / 3;
        let waits = verdicts(late + 1, 90 * DAY, mk_rotation("Activate"));
        assert_eq!(waits.iter().map(|found| found.verdict).collect::<Vec<_>>(), [Verdict::Good, Verdict::Unknown]);
        assert_eq!(waits[1].finding, "a rotation has been waiting since 1970-01-01T00:00:00Z for: agents");
        let bad = verdicts(late, 90 * DAY, mk_rotation("Activate"));
        assert_eq!(bad.iter().map(|found| found.verdict).collect::<Vec<_>>(), [Verdict::Bad]);
        assert!(bad[0].finding.contains("none has replaced it; the next one is waiting for: agents: see "), "{bad:?}");
        assert_eq!(verdicts(late, 90 * DAY, None)[0].verdict, Verdict::Bad, "nobody replaces it");
        let old = verdicts(late + 1, 90 * DAY, mk_rotation("Finish"));
        assert_eq!(old.iter().map(|found| found.verdict).collect::<Vec<_>>(), [Verdict::Good], "the new one signs");
    }

    #[test]
    fn the_shortest_renewal_too_is_bad_before_it_is_forced() {
        assert_eq!(verdicts(HOUR, HOUR, None)[0].verdict, Verdict::Good);
        assert_eq!(verdicts(40 * 60, HOUR, None)[0].verdict, Verdict::Bad, "it is forced at 30 minutes");
    }
}
