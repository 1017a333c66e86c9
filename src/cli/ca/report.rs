//! Which lineage a command is about, and what the commands show of it.

use std::fmt;
use std::time::Duration;

use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;

use crate::cli::signer_object;
use crate::output::Rows;
use addon_signer_api::GuardedSigner;
use addon_signer_api::status::{
    AddOnSignerStatus, AuthorityState, AuthorityStatus, CONDITION_AUTHORITY_ISSUED, CONDITION_ROTATING, RotationStatus,
};
use addon_signer_core::conditions::WAITING;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::lineage_report::{NOT_ROLLED_BACK, UNREADABLE, WAITS};

/// One lineage of authorities as `ca status --output json` prints it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LineageReport {
    /// The AddOnSigner, `(serving)` or `(gateway-client)`.
    pub(super) lineage: String,
    pub(super) authorities: Vec<AuthorityStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rotation: Option<RotationStatus>,
    /// Why it does not sign, or does not do what was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    /// The CSR of the next authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<String>,
    /// Why the authority that the issuer offers is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_used: Option<String>,
    /// What a rotation that has not begun waits for.
    #[serde(skip)]
    pub(super) waits: Option<String>,
    /// Whether the hub cannot read its authorities: it takes no step until it can.
    #[serde(skip)]
    pub(super) is_unreadable: bool,
    /// Whether its authorities come from an issuer.
    #[serde(skip)]
    pub(super) is_issued: bool,
    /// Whether agents trust the root above its authorities.
    #[serde(skip)]
    pub(super) is_trusted_by_root: bool,
}

impl LineageReport {
    /// Its authority with this id.
    pub(super) fn authority(&self, id: &str) -> Option<&AuthorityStatus> {
        self.authorities.iter().find(|authority| authority.id == id)
    }

    /// A sentence that it has no authority with this id.
    pub(super) fn unknown(&self, id: &str) -> String {
        format!("{} has no authority {id}: `addon-signer ca status` lists them", self.lineage)
    }

    /// Its authorities, each with its state.
    pub(super) fn states(&self) -> Vec<(&str, AuthorityState)> {
        self.authorities.iter().map(|authority| (&*authority.id, authority.state)).collect()
    }

    /// Its authority that will be revoked as soon as another one can sign.
    pub(super) fn to_revoke(&self) -> Option<&AuthorityStatus> {
        self.authorities.iter().find(|authority| authority.to_revoke)
    }

    /// Its authority in this state, or one of them.
    pub(super) fn in_state(&self, state: AuthorityState) -> Option<&AuthorityStatus> {
        self.authorities.iter().find(|authority| authority.state == state)
    }
}

/// What it does now, for `--watch`, without the refusal of an earlier import.
pub(super) fn progress(report: &LineageReport, earlier: Option<&String>) -> String {
    let mut text = match &report.rotation {
        Some(RotationStatus { phase, waiting_for: Some(what), .. }) => format!("{phase:?}: waiting for {what}"),
        Some(RotationStatus { phase, .. }) => format!("{phase:?}"),
        None => format!("waiting for {}", report.waits.as_deref().unwrap_or("the hub")),
    };
    report.not_used.iter().filter(|why| Some(*why) != earlier).for_each(|why| text.push_str(&format!("\n{why}")));
    text
}

/// The report of an AddOnSigner's lineage.
pub(super) fn client_report(object: GuardedSigner) -> LineageReport {
    let lineage = object.name_any();
    let status = match object.read() {
        Ok(signer) => signer.status.unwrap_or_default(),
        Err(error) => {
            let problem = Some(format!("it cannot be read: {error}"));
            return LineageReport { lineage, problem, ..LineageReport::default() };
        }
    };
    let failing = status.conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status != "True");
    let is_unreadable = failing.is_some_and(|condition| UNREADABLE.contains(&&*condition.reason));
    let problem = failing.map(|condition| format!("{}: {}", condition.reason, condition.message));
    let refused = status.conditions.iter().find_map(|condition| {
        let at = condition.message.find(NOT_ROLLED_BACK)?;
        condition.message.get(at..).map(str::to_owned)
    });
    let issued = status.conditions.iter().find(|it| it.type_ == CONDITION_AUTHORITY_ISSUED);
    let not_used = issued.filter(|condition| condition.status != "True").map(|condition| condition.message.clone());
    // Only this condition reports a rotation that has not begun.
    let is_waiting =
        |it: &&Condition| it.type_ == CONDITION_ROTATING && it.reason == WAITING && status.rotation.is_none();
    let waits = status.conditions.iter().find(is_waiting).map(|condition| condition.message.as_str());
    let problem = problem.or(refused).or_else(|| not_used.clone()).or_else(|| waits.map(str::to_owned));
    let waits = waits.map(|message| message.trim_start_matches(WAITS).trim_end_matches('.').to_owned());
    let is_issued = issued.is_some() || status.authority_request.is_some();
    let AddOnSignerStatus { authorities, rotation, authority_request: request, .. } = status;
    let is_trusted_by_root = false;
    LineageReport {
        lineage,
        authorities,
        rotation,
        problem,
        request,
        not_used,
        waits,
        is_unreadable,
        is_issued,
        is_trusted_by_root,
    }
}

/// The lineages as a table, with what each waits for.
pub(super) fn as_table(reports: &[LineageReport]) -> String {
    let mut rows = Rows::new(&["LINEAGE", "AUTHORITY", "STATE", "NOT AFTER", "LAST CERTIFICATE EXPIRES"]);
    for report in reports {
        for authority in &report.authorities {
            let last = authority.last_leaf_expires.map_or_else(|| "-".to_owned(), |end| end.to_string());
            rows.add([
                report.lineage.clone(),
                authority.id.clone(),
                state(authority),
                authority.not_after.to_string(),
                last,
            ]);
        }
        if report.authorities.is_empty() {
            rows.add([report.lineage.as_str(), "-", "-", "-", "-"]);
        }
    }
    let mut text = rows.render();
    for report in reports {
        let not_used = report.not_used.as_ref().filter(|why| Some(*why) != report.problem.as_ref());
        for problem in report.problem.iter().chain(not_used) {
            text.push_str(&format!("\n{}: {problem}\n", report.lineage));
        }
        if let Some(RotationStatus { waiting_for: Some(what), .. }) = &report.rotation {
            text.push_str(&format!("\n{} is waiting for: {what}\n", report.lineage));
        }
    }
    text
}

/// `Old`, or `Old, tainted`.
fn state(authority: &AuthorityStatus) -> String {
    let distrust = match (authority.to_revoke, authority.tainted) {
        (true, _) => ", to be revoked",
        (false, true) => ", tainted",
        (false, false) => "",
    };
    format!("{:?}{distrust}", authority.state)
}

/// The first count, and its time.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<(Duration, i64)>);

impl Pace {
    /// A sentence on how many have become ready per minute since the first count, and how long the rest takes at this
    /// rate. Empty while unknown. `elapsed` is the time since the command began, `counts` the ready ones and the total.
    pub(super) fn text_at(&mut self, elapsed: Duration, counts: Option<(i64, i64)>) -> String {
        let Some((ready, total)) = counts else {
            self.0 = None;
            return String::new();
        };
        let (began, first) = *self.0.get_or_insert((elapsed, ready));
        let (more, seconds) = (ready - first, elapsed.saturating_sub(began).as_secs_f64());
        if more <= 0 || seconds <= 0.0 || ready >= total {
            return String::new();
        }
        let per_second = more as f64 / seconds;
        let rest = (total - ready) as f64 / per_second;
        let rest = if rest < 90.0 { format!("{rest:.0} s") } else { format!("{:.0} min", rest / 60.0) };
        format!(" ({:.0} per minute, about {rest} left)", per_second * 60.0)
    }
}

/// The arguments that name a lineage.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub(super) struct LineageArgs {
    /// The AddOnSigner's name.
    #[arg(value_parser = signer_object)]
    signer: Option<String>,
    /// The authority of the gateway's certificate for agents.
    #[arg(long)]
    serving: bool,
    /// The authority of the certificate that the gateway shows to backends.
    #[arg(long)]
    gateway_client: bool,
}

/// A lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineageName {
    /// The lineage of the AddOnSigner with this name.
    Signer(String),
    /// One of the gateway.
    Gateway(GatewayCertificate),
}

/// In the form of the commands' arguments.
impl fmt::Display for LineageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signer(name) => name,
            Self::Gateway(GatewayCertificate::Serving) => "--serving",
            Self::Gateway(GatewayCertificate::Client) => "--gateway-client",
        })
    }
}

impl LineageArgs {
    /// The lineage; `None` if the arguments name none.
    pub(super) fn name(&self) -> Option<LineageName> {
        if self.serving {
            return Some(LineageName::Gateway(GatewayCertificate::Serving));
        }
        if self.gateway_client {
            return Some(LineageName::Gateway(GatewayCertificate::Client));
        }
        self.signer.clone().map(LineageName::Signer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_told_once_more_are_ready() {
        let mut pace = Pace::default();
        let mut text_at = |seconds, counts| pace.text_at(Duration::from_secs(seconds), counts);
        assert_eq!(text_at(5, Some((100, 1_000))), "");
        assert_eq!(text_at(15, Some((100, 1_000))), "");
        assert_eq!(text_at(25, Some((300, 1_000))), " (600 per minute, about 70 s left)");
        assert_eq!(text_at(125, Some((400, 1_000))), " (150 per minute, about 4 min left)");
        assert_eq!(text_at(130, Some((1_000, 1_000))), "");
        assert_eq!(text_at(140, None), "");
        assert_eq!(text_at(150, Some((0, 10))), "", "another step begins anew");
        assert_eq!(text_at(160, Some((5, 10))), " (30 per minute, about 10 s left)");
    }
}
