//! The state of an addon on a cluster, and what it waits for.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::state::AgentState;
use addon_signer_api::registrations::certificate_reported;
use addon_signer_core::certification::{Certification, Newest, OpenCsr, read_issued};
use addon_signer_core::conditions::CERTIFICATES_REVOKED;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::names::CONDITION_CERTIFICATE;
use addon_signer_core::timestamp::Timestamp;

/// What an agent with a certificate from a removed authority waits for: it does not check the issuer, so it makes no
/// CSR.
const STALE: &str = "a certificate from a present authority: delete its Secret on the cluster \
                     (docs/runbooks/lost-ca.md)";

/// How many bytes of a condition's message are shown: a cluster may write it.
const LONGEST_MESSAGE: usize = 512;

/// What brings the gateway's trust bundle to an addon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(in crate::cli) enum TrustBy {
    /// The hub's ManifestWork.
    ManifestWork,
    /// The CSR, to an agent that makes its own.
    Agent,
    /// No ManifestWork, although the AddOnSigner leaves it to them. Only addon-signer-agent gets it by itself.
    Nothing,
    /// Another way, or unknown: the AddOnSigner says so, no hub has reported, or the ConfigMap has no place.
    #[default]
    Other,
}

/// A valid certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) valid_until: Timestamp,
    pub(super) authority: String,
    /// When it, or another valid one of the addon, was last used at the gateway.
    pub(super) last_seen: Option<Timestamp>,
}

/// What the hub reports in the condition of an addon. The cluster may write that condition too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reported {
    /// Its certificate.
    Issued(Held),
    /// What it waits for.
    Waits {
        /// Because its certificates were revoked.
        is_revoked: bool,
        /// As the object of "waits for".
        waits_for: String,
    },
}

impl Reported {
    /// Reads the status of a ManagedClusterAddOn. `since`: certificates that begin earlier are refused; are revoked.
    pub(super) fn read(status: &Value, now: Timestamp, since: [Option<Timestamp>; 2]) -> Option<Self> {
        let (holds, reason, message) = certificate_reported(status)?;
        if let Some(known) = [Certification::NoCsr, Certification::Revoked].iter().find(|it| it.message() == message) {
            return Some(Self::waits(known));
        }
        if !holds {
            let message = &message[..message.floor_char_boundary(LONGEST_MESSAGE)];
            let waits_for = format!("what its condition {CONDITION_CERTIFICATE} says: {message}");
            return Some(Self::Waits { is_revoked: reason == CERTIFICATES_REVOKED, waits_for });
        }
        let Newest { not_before, not_after: valid_until, authority } = read_issued(message)?;
        let [is_early, is_revoked] = since.map(|since| since.is_some_and(|since| not_before < since));
        Some(match (is_early || is_revoked, valid_until > now) {
            (true, _) => Self::waits(if is_revoked { &Certification::Revoked } else { &Certification::NoCsr }),
            (_, true) => Self::Issued(Held { valid_until, authority: authority.to_string(), last_seen: None }),
            (_, false) => Self::waits(&Certification::Expired(valid_until)),
        })
    }

    fn waits(known: &Certification) -> Self {
        let is_revoked = known.reason() == CERTIFICATES_REVOKED;
        Self::Waits { is_revoked, waits_for: known.waits_for().unwrap_or_default() }
    }
}

/// The gathered facts about one addon on one cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Why it is not eligible.
    pub(super) not_eligible: Option<&'static str>,
    /// When certificates are accepted again, if that is in the future.
    pub(super) revoked_until: Option<Timestamp>,
    /// The signer name, if `status.registrations` lacks it and the addon's own agent may not ask.
    pub(super) unregistered: Option<String>,
    /// `None`: the ledger was not asked.
    pub(super) certificate: Option<Option<Held>>,
    /// Whether it has a certificate whose authority was removed.
    pub(super) has_stale: bool,
    /// Whether it has a certificate that was revoked.
    pub(super) has_revoked: bool,
    /// The authorities on whose certificates its agents depend, and whether that is certain.
    pub(super) depends_on: BTreeMap<String, bool>,
    /// Its newest CSR, unless a later one has a certificate.
    pub(super) csr: Option<OpenCsr>,
    /// What the hub reports.
    pub(super) reported: Option<Reported>,
    /// Whether a ManifestWork has brought the present trust bundle; `None` if none should.
    pub(super) trust: Option<bool>,
    pub(super) trust_by: TrustBy,
    /// Whether standalone gateways run: these report no uses.
    pub(super) has_gateways_apart: bool,
}

/// One row of the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Row {
    pub(in crate::cli) cluster: String,
    pub(in crate::cli) addon: String,
    pub(in crate::cli) state: AgentState,
    /// Whether OCM's agent is told to request a certificate, or the addon's own agent requests it.
    pub(in crate::cli) registered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) valid_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) authority: Option<String>,
    #[serde(skip)]
    pub(in crate::cli) depends_on: BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) last_seen: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) has_trust: Option<bool>,
    pub(in crate::cli) trust_by: TrustBy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) waits_for: Option<String>,
    /// Whether the ledger says which certificates it has. The hub's report may be older than the last certificate, and
    /// a cluster may write it, so no dangerous step relies on it.
    #[serde(skip)]
    pub(in crate::cli) is_recorded: bool,
}

impl Row {
    /// Judges the facts.
    pub(super) fn of(key: &AddOnKey, facts: Facts) -> Self {
        let (state, waits_for) = facts.judge();
        let is_recorded = facts.certificate.is_some();
        let held = facts.held().cloned();
        let Facts { unregistered, certificate, trust, trust_by, mut depends_on, .. } = facts;
        if let (None, Some(held)) = (certificate, &held) {
            depends_on.insert(held.authority.clone(), false);
        }
        Self {
            cluster: key.cluster.to_string(),
            addon: key.addon.to_string(),
            state,
            registered: unregistered.is_none(),
            valid_until: held.as_ref().map(|held| held.valid_until),
            authority: held.as_ref().map(|held| held.authority.clone()),
            depends_on,
            last_seen: held.and_then(|held| held.last_seen),
            has_trust: trust,
            trust_by,
            waits_for,
            is_recorded,
        }
    }
}

impl Facts {
    /// The certificate that it has, by the ledger, or else by the hub's report.
    fn held(&self) -> Option<&Held> {
        match (&self.certificate, &self.reported) {
            (Some(held), _) => held.as_ref(),
            (None, Some(Reported::Issued(held))) => Some(held),
            (None, _) => None,
        }
    }

    fn judge(&self) -> (AgentState, Option<String>) {
        if let Some(why) = self.not_eligible {
            return (AgentState::NotEligible, Some(why.to_owned()));
        }
        if let Some(refused @ OpenCsr::Refused { .. }) = &self.csr {
            let is_valid = self.held().is_some() && self.revoked_until.is_none();
            let state = if is_valid { AgentState::RenewalRefused } else { AgentState::Refused };
            return (state, Certification::Open(refused.clone()).waits_for());
        }
        if let Some(until) = self.revoked_until {
            return (AgentState::Revoked, Certification::RevokedUntil(until).waits_for());
        }
        let knows_uses = self.certificate.is_some() && !self.has_gateways_apart;
        match self.held() {
            None if self.certificate.is_none() && self.reported.is_none() => (AgentState::Unknown, None),
            None => self.missing(),
            Some(_) if self.trust == Some(false) => {
                (AgentState::NoTrust, Some("its cluster to apply the present trust bundle".to_owned()))
            }
            Some(Held { last_seen: None, .. }) if knows_uses => {
                (AgentState::NeverSeen, Some("its first request at the gateway".to_owned()))
            }
            Some(_) => (AgentState::Certified, None),
        }
    }

    /// The state of an addon without a certificate.
    fn missing(&self) -> (AgentState, Option<String>) {
        let (none, revoked) = (AgentState::NoCertificate, AgentState::Revoked);
        // A CSR for another program's signer does not end the revocation.
        let counts = |open: &&OpenCsr| !(self.has_revoked && matches!(open, OpenCsr::NoSuchSigner { .. }));
        match (self.csr.as_ref().filter(counts), &self.unregistered, &self.reported) {
            (Some(open), ..) => (none, Certification::Open(open.clone()).waits_for()),
            (_, Some(signer), _) => {
                (none, Some(format!("{signer} in status.registrations of its ManagedClusterAddOn")))
            }
            _ if self.has_revoked => (revoked, Certification::Revoked.waits_for()),
            _ if self.has_stale => (none, Some(STALE.to_owned())),
            (.., Some(Reported::Waits { is_revoked: true, waits_for })) => (revoked, Some(waits_for.clone())),
            (.., Some(Reported::Waits { waits_for, .. })) => (none, Some(waits_for.clone())),
            _ => (none, Certification::NoCsr.waits_for()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn held(last_seen: Option<i64>) -> Option<Option<Held>> {
        let valid_until = Timestamp::from_unix(100);
        Some(Some(Held { valid_until, authority: "a".to_owned(), last_seen: last_seen.map(Timestamp::from_unix) }))
    }

    fn refused() -> Option<OpenCsr> {
        Some(OpenCsr::Refused { name: "r".to_owned(), why: "SubjectOfAnotherCluster: no.".to_owned() })
    }

    #[test]
    fn the_worst_that_is_known_is_said_with_what_ends_it() {
        let none = Some(None);
        let pending = |waits_for: &str| OpenCsr::Pending { waits_for: waits_for.to_owned() };
        let unregistered = Some("example.com/a".to_owned());
        for (facts, state, waits_for) in [
            (Facts { not_eligible: Some("x"), csr: refused(), ..Facts::default() }, AgentState::NotEligible, Some("x")),
            (
                Facts { revoked_until: Some(Timestamp::from_unix(0)), ..Facts::default() },
                AgentState::Revoked,
                Some(
                    "1970-01-01T00:00:00Z; until then its annotation addon-signer.io/revoke-before revokes \
                      everything",
                ),
            ),
            (
                Facts { certificate: held(Some(1)), csr: refused(), ..Facts::default() },
                AgentState::RenewalRefused,
                Some(
                    "a valid CSR instead of r, which was refused: SubjectOfAnotherCluster: no. addon-signer-agent \
                     makes one by itself; OCM's agent makes one when that is deleted: `kubectl delete csr r`.",
                ),
            ),
            (
                Facts { certificate: none.clone(), has_stale: true, csr: Some(pending("x")), ..Facts::default() },
                AgentState::NoCertificate,
                Some("x"),
            ),
            (
                Facts { certificate: none.clone(), unregistered, ..Facts::default() },
                AgentState::NoCertificate,
                Some("example.com/a in status.registrations of its ManagedClusterAddOn"),
            ),
            (
                Facts { certificate: none.clone(), ..Facts::default() },
                AgentState::NoCertificate,
                Some("its agent to make a CSR"),
            ),
            (
                Facts { certificate: none.clone(), has_stale: true, ..Facts::default() },
                AgentState::NoCertificate,
                Some(STALE),
            ),
            (
                Facts { certificate: held(Some(1)), trust: Some(false), ..Facts::default() },
                AgentState::NoTrust,
                Some("its cluster to apply the present trust bundle"),
            ),
            (
                Facts { certificate: held(None), trust: Some(true), ..Facts::default() },
                AgentState::NeverSeen,
                Some("its first request at the gateway"),
            ),
            (Facts { certificate: held(Some(1)), ..Facts::default() }, AgentState::Certified, None),
            (
                Facts { certificate: held(None), has_gateways_apart: true, ..Facts::default() },
                AgentState::Certified,
                None,
            ),
        ] {
            assert_eq!(facts.judge(), (state, waits_for.map(str::to_owned)), "{facts:?}");
        }
    }

    #[test]
    fn the_hubs_report_answers_where_the_ledger_does_not() {
        let waits = || Some(Reported::Waits { is_revoked: false, waits_for: "y".to_owned() });
        let revoked = || Some(Reported::Waits { is_revoked: true, waits_for: "z".to_owned() });
        let (issued, none) = (|| held(None).flatten().map(Reported::Issued), Some(None));
        for (certificate, reported, state, waits_for) in [
            (None, None, AgentState::Unknown, None),
            (None, waits(), AgentState::NoCertificate, Some("y")),
            (None, revoked(), AgentState::Revoked, Some("z")),
            (None, issued(), AgentState::Certified, None),
            (none.clone(), waits(), AgentState::NoCertificate, Some("y")),
            (none, issued(), AgentState::NoCertificate, Some("its agent to make a CSR")),
            (held(None), waits(), AgentState::NeverSeen, Some("its first request at the gateway")),
        ] {
            let facts = Facts { certificate, reported, ..Facts::default() };
            assert_eq!(facts.judge(), (state, waits_for.map(str::to_owned)), "{facts:?}");
        }
        let row = Row::of(
            &AddOnKey { cluster: "c".parse().unwrap(), addon: "t".parse().unwrap() },
            Facts { reported: issued(), ..Facts::default() },
        );
        assert!(!row.is_recorded);
        assert_eq!((row.depends_on, row.last_seen), (BTreeMap::from([("a".to_owned(), false)]), None));
    }

    #[test]
    fn a_revoked_certificate_says_what_brings_the_agent_back() {
        let revoked = Facts { certificate: Some(None), has_stale: true, has_revoked: true, ..Facts::default() };
        assert_eq!(revoked.judge(), (AgentState::Revoked, Certification::Revoked.waits_for()));
        let waiting = Facts { csr: refused(), ..revoked };
        assert_eq!(waiting.judge().0, AgentState::Refused);
    }

    #[test]
    fn a_report_is_read_with_its_end_and_cut() {
        let reported = |value: &str, message: &str| {
            let condition = json!({ "type": CONDITION_CERTIFICATE, "status": value, "message": message });
            let since = [Some(Timestamp::from_unix(20)), Some(Timestamp::from_unix(10))];
            Reported::read(&json!({ "conditions": [condition] }), Timestamp::from_unix(100), since)
        };
        let issued = |from, until| {
            let (from, until) = (Timestamp::from_unix(from), Timestamp::from_unix(until));
            reported("True", &Certification::Issued { from, until, authority: "a".into(), refused: None }.message())
        };
        for (from, revoked) in [(9, true), (10, false)] {
            assert!(matches!(issued(from, 101), Some(Reported::Waits { is_revoked, .. }) if is_revoked == revoked));
        }
        assert!(matches!(issued(20, 101), Some(Reported::Issued(_))));
        let ended = issued(20, 100);
        assert!(matches!(ended, Some(Reported::Waits { waits_for, .. }) if waits_for.contains("expired at")));
        assert_eq!(reported("True", "what a cluster wrote"), None);
        let long = reported("False", &"x".repeat(100_000));
        let Some(Reported::Waits { waits_for: long, .. }) = long else { panic!("it is a report") };
        assert!(long.len() < 2 * LONGEST_MESSAGE);
    }
}
