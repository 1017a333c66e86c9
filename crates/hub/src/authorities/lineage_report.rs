//! The report of a lineage for administrators: its authorities and its rotation, in the status of an AddOnSigner. The
//! gateway's lineages have no AddOnSigner: the report of each is in the ConfigMap of its anchors.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde::{Deserialize, Serialize};

use crate::authorities::lineage_names::LineageNames;
use crate::authorities::state::OutsideReport;
use crate::authorities::store::STATUS_KEY;
use crate::lease::{Leads, NotWritten};
use addon_signer_api::Lenient;
use addon_signer_api::status::{AuthorityState, AuthorityStatus, RotationPhase, RotationStatus};
use addon_signer_core::ca::lineage::{Evidence, Lineage, Phase, State, WaitsFor};
use addon_signer_core::conditions::{AUTHORITY_MISSING, AUTHORITY_UNREADABLE};
use addon_signer_core::timestamp::Timestamp;

/// The authorities of a lineage as the status shows them.
pub fn authorities(lineage: &Lineage) -> Vec<AuthorityStatus> {
    lineage
        .members()
        .iter()
        .map(|member| AuthorityStatus {
            id: member.authority.id().to_string(),
            state: match member.state {
                State::Next => AuthorityState::Next,
                State::Active => AuthorityState::Active,
                State::Old => AuthorityState::Old,
            },
            not_before: member.authority.not_before(),
            not_after: member.authority.not_after(),
            last_leaf_expires: member.leaves_expire,
            tainted: member.tainted,
            to_revoke: member.to_revoke.is_some(),
            renew_within: None,
            certificate: Some(member.authority.pem()),
        })
        .collect()
}

/// The rotation under way: with a Next it waits to activate it, and with only an Old it waits to finish.
pub fn rotation(lineage: &Lineage, waiting: Option<&WaitsFor>) -> Option<RotationStatus> {
    let (phase, state) = match lineage.phase() {
        Phase::Settled => return None,
        Phase::Activate => (RotationPhase::Activate, State::Next),
        Phase::Finish => (RotationPhase::Finish, State::Old),
    };
    let since = lineage.members().iter().filter(|member| member.state == state).map(|member| member.since).max()?;
    let (ready, total) = waiting.and_then(WaitsFor::progress).unzip();
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    Some(RotationStatus {
        phase,
        since,
        ready: ready.map(count),
        total: total.map(count),
        stragglers: waiting
            .map(WaitsFor::stragglers)
            .unwrap_or_default()
            .into_iter()
            .map(ToString::to_string)
            .collect(),
        waiting_for: waiting.map(ToString::to_string),
    })
}

/// Reports that the lineage's authority was activated without evidence, if that may still matter.
pub fn forced(lineage: &Lineage, now: Timestamp) -> Option<String> {
    let active = lineage.forced(now)?;
    Some(format!(
        "The authority {} has been signing since {} without evidence that it is trusted everywhere, because the one \
         before it was about to expire or was revoked.",
        active.authority.id(),
        active.since
    ))
}

/// What every sentence about an authority from outside that is not used contains, after the name of the authority.
pub const NOT_USED: &str = " is not used: ";

/// What the lineage does then.
pub const GOES_ON: &str = "The lineage continues with its present authorities.";

/// How the message of `Rotating` begins while a step waits.
pub const WAITS: &str = "Waiting for: ";

/// How every sentence about a rollback that is not done begins.
pub const NOT_ROLLED_BACK: &str = "The rollback of ";

/// How the sentence begins for the rollback of this authority.
pub fn refusal(id: &str) -> String {
    format!("{NOT_ROLLED_BACK}{id} is not done: ")
}

/// Why the requested rollback is not done; `None` without a request, or if it can be done.
pub fn not_rolled_back(lineage: &Lineage, evidence: &Evidence<'_>) -> Option<String> {
    let why = lineage.previous(evidence)?.err()?;
    Some(format!("{}{why}.", refusal(evidence.roll_back?.as_str())))
}

/// The reasons why a lineage does not sign while its Secret is missing or cannot be used.
pub const UNREADABLE: [&str; 2] = [AUTHORITY_MISSING, AUTHORITY_UNREADABLE];

/// The report of a lineage of the gateway, in its ConfigMap as `status.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayLineageReport {
    /// The authorities.
    pub authorities: Vec<AuthorityStatus>,
    /// The rotation under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<RotationStatus>,
    /// Why the lineage does not sign, what its next step waits for, or that an authority was activated without
    /// evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether its Secret is missing or unusable: the hub takes no step until it can use it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
    /// What a rotation that has not begun waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The last request for a rotation that the hub has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_request: Option<String>,
    /// The roots in PEM that agents trust, if they do not trust the authorities themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchors: Option<String>,
    /// Whether its authorities come from an issuer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub issued: bool,
    /// Why the authority that the issuer offers is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_used: Option<String>,
    /// The CSR of the next authority in PEM, if `ca import` brings authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The report of a lineage of the gateway as JSON.
///
/// # Errors
/// The error of serde, which does not occur for these types.
pub fn render(
    lineage: &Lineage,
    waiting: Option<&WaitsFor>,
    not_rolled_back: Option<String>,
    outside: Option<OutsideReport>,
    now: Timestamp,
) -> Result<String, serde_json::Error> {
    let rotation = rotation(lineage, waiting);
    let waits = waiting.filter(|_| rotation.is_none()).map(ToString::to_string);
    let begins = waits.as_ref().map(|what| format!("A rotation waits for: {what}."));
    let issued = outside.is_some();
    let OutsideReport { refused: not_used, request, unnamed_root } = outside.unwrap_or_default();
    let not_used = not_used.map(|why| format!("{why}. {GOES_ON}"));
    serde_json::to_string(&GatewayLineageReport {
        authorities: authorities(lineage),
        rotation,
        problem: forced(lineage, now).or(not_rolled_back).or(not_used.clone()).or(unnamed_root).or(begins),
        unreadable: false,
        waits,
        handled_request: lineage.handled_request().map(str::to_owned),
        anchors: lineage
            .anchors()
            .ok()
            .filter(|anchors| lineage.bundle().as_ref() != Ok(anchors))
            .map(|anchors| anchors.pem()),
        issued,
        not_used,
        request,
    })
}

/// Adds to the report in this ConfigMap why the lineage does not sign, and the CSR of its next authority. The rest of
/// the report stays unchanged. A lineage without an authority has a ConfigMap only for that CSR.
pub async fn write_problem(
    leads: &Leads,
    maps: &Api<Lenient<ConfigMap>>,
    names: &LineageNames,
    reason: &str,
    problem: &str,
    request: Option<String>,
) -> Result<(), NotWritten> {
    let name = &names.config_map;
    let found = maps.get_opt(name).await?;
    let is_new = found.is_none();
    let Some(mut map) = found.or_else(|| request.is_some().then(|| names.new_config_map())) else { return Ok(()) };
    let data = map.object.data.get_or_insert_default();
    let known = data.get(STATUS_KEY).and_then(|text| serde_json::from_str(text).ok());
    let (problem, unreadable) = (Some(problem.to_owned()), UNREADABLE.contains(&reason));
    let report = GatewayLineageReport { problem, unreadable, request, ..known.unwrap_or_default() };
    let text = serde_json::to_string(&report).map_err(kube::Error::SerdeError)?;
    if data.insert(STATUS_KEY.to_owned(), text.clone()) == Some(text) {
        return Ok(());
    }
    match is_new {
        true => leads.write(maps.create(&PostParams::default(), &map)).await.map(drop),
        false => leads.write(maps.replace(name, &PostParams::default(), &map)).await.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ring::rand::SystemRandom;
    use serde_json::json;

    use super::*;
    use addon_signer_core::ca::authority::Authority;
    use addon_signer_core::keys::private::PrivateKey;
    use addon_signer_core::keys::public::KeyKind;

    /// A certificate with this time never expires (RFC 5280, section 4.1.2.5). jiff has no such time.
    #[test]
    fn authority_without_an_end_is_shown_as_such() {
        let (now, rng) = (Timestamp::from_unix(1_800_000_000), SystemRandom::new());
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let life = now.until(Timestamp::from_rfc3339("9999-12-31T23:59:59Z").unwrap());
        let authority = Authority::self_signed("company", &key, now, life, &rng).unwrap();
        let reported = &authorities(&Lineage::default().begin(authority, now))[0];
        let written = serde_json::to_value(reported).unwrap();
        assert_eq!(written["notAfter"], json!("9999-12-31T23:59:59Z"));
        assert_eq!(serde_json::from_value::<AuthorityStatus>(written).unwrap(), *reported);
        assert_eq!(reported.not_before, now.minus(Duration::from_secs(300)));
    }
}
