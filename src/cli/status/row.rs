//! The state of an addon on a cluster, and what it waits for.

use std::collections::BTreeMap;

use serde::Serialize;

use super::certificates::Holding;
use super::reported::Reported;
use super::signers::TrustBy;
use super::state::AgentState;
use addon_signer_core::certification::{AgentFacts, Certification, OpenCsr};
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::timestamp::Timestamp;

/// The gathered facts about one addon on one cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Why it is not eligible.
    pub(super) not_eligible: Option<&'static str>,
    /// Certificates that begin earlier are refused.
    pub(super) valid_from: Option<Timestamp>,
    /// Certificates that begin earlier are revoked.
    pub(super) revoked_before: Option<Timestamp>,
    /// The signer name, if `status.registrations` lacks it and the addon's own agent may not ask.
    pub(super) unregistered: Option<String>,
    /// Whether the ledger was asked.
    pub(super) is_recorded: bool,
    /// Its certificates, by the ledger, or else by the hub's report.
    pub(super) holding: Holding,
    /// Whether the gateway may know the authority of the newest one.
    pub(super) is_trusted: bool,
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
    /// Judges the facts at this time.
    pub(super) fn of(key: &AddOnKey, facts: Facts, now: Timestamp) -> Self {
        let certification = facts.certification(now);
        let (state, waits_for) = facts.judge(&certification);
        let Facts { unregistered, is_recorded, holding, trust, trust_by, .. } = facts;
        let mut depends_on = holding.depends_on();
        let held = match certification {
            Certification::Issued { until, authority, .. } => Some((until, authority.to_string())),
            _ => None,
        };
        if let (false, Some((_, authority))) = (is_recorded, &held) {
            depends_on.insert(authority.clone(), false);
        }
        Self {
            cluster: key.cluster.to_string(),
            addon: key.addon.to_string(),
            state,
            registered: unregistered.is_none(),
            last_seen: holding.last_seen.filter(|_| held.is_some()),
            valid_until: held.as_ref().map(|(until, _)| *until),
            authority: held.map(|(_, authority)| authority),
            depends_on,
            has_trust: trust,
            trust_by,
            waits_for,
            is_recorded,
        }
    }
}

impl Facts {
    /// What the hub would report of these facts; whether the addon is eligible is judged apart.
    fn certification(&self, now: Timestamp) -> Certification {
        let facts = AgentFacts {
            eligibility: Ok(()),
            valid_from: self.valid_from,
            revoked_before: self.revoked_before,
            newest: self.holding.newest.as_ref(),
            is_trusted: self.is_trusted,
            open: self.csr.as_ref(),
        };
        Certification::of(&facts, now)
    }

    fn judge(&self, certification: &Certification) -> (AgentState, Option<String>) {
        if let Some(why) = self.not_eligible {
            return (AgentState::NotEligible, Some(why.to_owned()));
        }
        let waits_for = certification.waits_for();
        match certification {
            Certification::Issued { refused: Some(_), .. } => {
                (AgentState::RenewalRefused, self.csr.clone().and_then(|csr| Certification::Open(csr).waits_for()))
            }
            Certification::Issued { .. } => self.with_certificate(),
            Certification::Open(OpenCsr::Refused { .. }) => (AgentState::Refused, waits_for),
            Certification::RevokedUntil(_) | Certification::Revoked => (AgentState::Revoked, waits_for),
            Certification::NoCsr => self.without_csr(),
            _ => (self.none(), waits_for),
        }
    }

    /// The state of an addon with a valid certificate.
    fn with_certificate(&self) -> (AgentState, Option<String>) {
        // A refusal counts until there is another certificate, which may begin at the same time.
        if let Some(Reported::Issued { newest, refused: Some(refused) }) = &self.reported
            && self.holding.newest.as_ref() == Some(newest)
        {
            return (AgentState::RenewalRefused, Some(refused.clone()));
        }
        if self.trust == Some(false) {
            return (AgentState::NoTrust, Some("its cluster to apply the present trust bundle".to_owned()));
        }
        let knows_uses = self.is_recorded && !self.has_gateways_apart;
        if knows_uses && self.holding.last_seen.is_none() {
            return (AgentState::NeverSeen, Some("its first request at the gateway".to_owned()));
        }
        (AgentState::Certified, None)
    }

    /// The state of an addon without a certificate, as far as that is known.
    fn none(&self) -> AgentState {
        if self.is_recorded || self.reported.is_some() { AgentState::NoCertificate } else { AgentState::Unknown }
    }

    /// The state of an addon of which neither a certificate nor a CSR is known.
    fn without_csr(&self) -> (AgentState, Option<String>) {
        match (&self.unregistered, &self.reported) {
            (Some(signer), _) => {
                (self.none(), Some(format!("{signer} in status.registrations of its ManagedClusterAddOn")))
            }
            (_, Some(Reported::Waits { is_revoked: true, waits_for })) => {
                (AgentState::Revoked, Some(waits_for.clone()))
            }
            (_, Some(Reported::Waits { waits_for, .. })) => (self.none(), Some(waits_for.clone())),
            _ if self.none() == AgentState::Unknown => (AgentState::Unknown, None),
            _ => (self.none(), Certification::NoCsr.waits_for()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::certification::Newest;

    const NOW: Timestamp = Timestamp::from_unix(50);

    /// Facts about an addon that has a certificate by the ledger.
    fn holds(last_seen: Option<i64>) -> Facts {
        let (not_before, not_after) = (Timestamp::from_unix(10), Timestamp::from_unix(100));
        let newest = Some(Newest { authority: "a".into(), not_before, not_after });
        let mut holding = Holding::default();
        (holding.newest, holding.last_seen) = (newest, last_seen.map(Timestamp::from_unix));
        Facts { is_recorded: true, holding, is_trusted: true, ..Facts::default() }
    }

    /// Facts about an addon of which the ledger has no certificate.
    fn lacks() -> Facts {
        Facts { is_recorded: true, ..Facts::default() }
    }

    fn refused() -> Option<OpenCsr> {
        Some(OpenCsr::Refused {
            name: "r".to_owned(),
            why: "SubjectOfAnotherCluster: no.".to_owned(),
            is_deleted: false,
        })
    }

    fn assert_judged(facts: &Facts, state: AgentState, waits_for: Option<&str>) {
        let (judged, text) = facts.judge(&facts.certification(NOW));
        assert_eq!((judged, text.is_some()), (state, waits_for.is_some()), "{facts:?}: {text:?}");
        let text = text.unwrap_or_default();
        assert!(text.starts_with(waits_for.unwrap_or_default()), "{facts:?}: {text}");
    }

    #[test]
    fn the_worst_that_is_known_is_said_with_what_ends_it() {
        let pending = || Some(OpenCsr::Pending { waits_for: "x".to_owned() });
        let unregistered = || Some("example.com/a".to_owned());
        let at = |seconds| Some(Timestamp::from_unix(seconds));
        let outdated = "a new CSR, because its certificate is older than its ManagedClusterAddOn";
        for (facts, state, waits_for) in [
            (Facts { not_eligible: Some("x"), csr: refused(), ..lacks() }, AgentState::NotEligible, Some("x")),
            (
                Facts { revoked_before: at(60), csr: refused(), ..holds(None) },
                AgentState::Revoked,
                Some("1970-01-01T00:01:00Z; until then"),
            ),
            (
                Facts { revoked_before: at(11), ..holds(None) },
                AgentState::Revoked,
                Some("a new CSR, because its certificates were revoked: addon-signer-agent makes one by itself"),
            ),
            (Facts { valid_from: at(11), ..holds(None) }, AgentState::NoCertificate, Some(outdated)),
            (
                Facts { csr: refused(), ..holds(Some(1)) },
                AgentState::RenewalRefused,
                Some("a valid CSR instead of r, which was refused: SubjectOfAnotherCluster: no. Fix the cause first"),
            ),
            (Facts { csr: refused(), ..lacks() }, AgentState::Refused, Some("a valid CSR instead of r")),
            (Facts { is_trusted: false, csr: pending(), ..holds(None) }, AgentState::NoCertificate, Some("x")),
            (
                Facts { is_trusted: false, ..holds(None) },
                AgentState::NoCertificate,
                Some("a certificate from a present authority instead of a: delete its Secret"),
            ),
            (
                Facts { unregistered: unregistered(), ..lacks() },
                AgentState::NoCertificate,
                Some("example.com/a in status.registrations of its ManagedClusterAddOn"),
            ),
            (lacks(), AgentState::NoCertificate, Some("its agent to make a CSR")),
            (Facts { trust: Some(false), ..holds(Some(1)) }, AgentState::NoTrust, Some("its cluster to apply")),
            (Facts { trust: Some(true), ..holds(None) }, AgentState::NeverSeen, Some("its first request")),
            (holds(Some(1)), AgentState::Certified, None),
            (Facts { has_gateways_apart: true, ..holds(None) }, AgentState::Certified, None),
            // Neither the ledger nor the hub has told whether it has a certificate.
            (Facts::default(), AgentState::Unknown, None),
            (Facts { csr: pending(), ..Facts::default() }, AgentState::Unknown, Some("x")),
            (Facts { csr: refused(), ..Facts::default() }, AgentState::Refused, Some("a valid CSR instead of r")),
            (
                Facts { unregistered: unregistered(), ..Facts::default() },
                AgentState::Unknown,
                Some("example.com/a in status.registrations"),
            ),
        ] {
            assert_judged(&facts, state, waits_for);
        }
    }

    #[test]
    fn the_hubs_report_answers_where_the_ledger_does_not() {
        let waits = |is_revoked| Some(Reported::Waits { is_revoked, waits_for: "y".to_owned() });
        let newest = || holds(None).holding.newest.unwrap();
        let issued =
            |refused: Option<&str>| Some(Reported::Issued { newest: newest(), refused: refused.map(str::to_owned) });
        let by_report = |reported: Option<Reported>| {
            let holding = Holding::reported(reported.as_ref());
            Facts { is_trusted: holding.newest.is_some(), holding, reported, ..Facts::default() }
        };
        for (facts, state, waits_for) in [
            (by_report(waits(false)), AgentState::NoCertificate, Some("y")),
            (by_report(waits(true)), AgentState::Revoked, Some("y")),
            (by_report(issued(None)), AgentState::Certified, None),
            (by_report(issued(Some("z"))), AgentState::RenewalRefused, Some("z")),
            (
                Facts { is_trusted: false, ..by_report(issued(None)) },
                AgentState::NoCertificate,
                Some("a certificate from a present authority instead of a"),
            ),
            (Facts { reported: waits(false), ..lacks() }, AgentState::NoCertificate, Some("y")),
            (Facts { reported: issued(None), ..lacks() }, AgentState::NoCertificate, Some("its agent to make a CSR")),
            (Facts { reported: waits(false), ..holds(None) }, AgentState::NeverSeen, Some("its first request")),
            (Facts { reported: issued(Some("z")), ..holds(None) }, AgentState::RenewalRefused, Some("z")),
        ] {
            assert_judged(&facts, state, waits_for);
        }
        let mut renewed = Facts { reported: issued(Some("z")), ..holds(Some(1)) };
        renewed.holding.newest.as_mut().unwrap().not_after = Timestamp::from_unix(101);
        assert_judged(&renewed, AgentState::Certified, None);
        let key = AddOnKey { cluster: "c".parse().unwrap(), addon: "t".parse().unwrap() };
        let row = Row::of(&key, by_report(issued(None)), NOW);
        assert!(!row.is_recorded);
        assert_eq!((row.depends_on, row.last_seen), (BTreeMap::from([("a".to_owned(), false)]), None));
        assert_eq!(Row::of(&key, by_report(issued(None)), Timestamp::from_unix(100)).valid_until, None, "it has ended");
    }
}
