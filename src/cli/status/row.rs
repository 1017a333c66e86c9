//! The state of an addon on a cluster, and what it waits for.

use std::collections::BTreeMap;

use serde::Serialize;

use addon_signer_core::identity::AddOnKey;
use addon_signer_core::timestamp::Timestamp;

/// What an agent with a certificate from a removed authority waits for: it does not check the issuer, so it makes no
/// CSR.
const STALE: &str = "a certificate from a present authority: delete its Secret on the cluster \
                     (docs/runbooks/lost-ca.md)";

/// The state of an addon on a cluster; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(in crate::cli) enum AgentState {
    /// The hub refused its last CSR.
    Refused,
    /// It has no valid certificate.
    NoCertificate,
    /// It may not have the present trust bundle.
    NoTrust,
    /// It has a certificate that was never used at the gateway.
    NeverSeen,
    /// The ledger was not asked, so it is unknown whether it has a certificate.
    Unknown,
    /// The cluster is not accepted, or the addon is suspended or being deleted.
    NotEligible,
    /// It has a certificate and uses it, as far as gateways report that.
    Ready,
}

/// A valid certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) valid_until: Timestamp,
    /// The id of the authority that signed it.
    pub(super) authority: String,
    /// When it, or another valid one of the addon, was last used at the gateway.
    pub(super) last_seen: Option<Timestamp>,
}

/// The newest CSR of an addon on a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// It was denied or has failed; the sentence begins with the reason.
    Refused { name: String, why: String },
    /// It was not answered yet, or is approved but not signed.
    Open { waits_for: String },
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
    /// The authorities on whose certificates its agents depend, and whether that is certain.
    pub(super) depends_on: BTreeMap<String, bool>,
    pub(super) request: Option<Request>,
    /// Whether a ManifestWork has brought the present trust bundle; `None` if none should.
    pub(super) trust: Option<bool>,
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
    /// The id of the authority, as `ca status` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) authority: Option<String>,
    /// The authorities on whose certificates its agents depend, and whether that is certain.
    #[serde(skip)]
    pub(in crate::cli) depends_on: BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) last_seen: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) has_trust: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) waits_for: Option<String>,
}

impl Row {
    /// Judges the facts.
    pub(super) fn of(key: &AddOnKey, facts: Facts) -> Self {
        let (state, waits_for) = facts.judge();
        let Facts { unregistered, certificate, trust, depends_on, .. } = facts;
        let held = certificate.flatten();
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
            waits_for,
        }
    }
}

impl Facts {
    fn judge(&self) -> (AgentState, Option<String>) {
        if let Some(why) = self.not_eligible {
            return (AgentState::NotEligible, Some(why.to_owned()));
        }
        if let Some(Request::Refused { name, why }) = &self.request {
            return (AgentState::Refused, Some(format!("a valid CSR instead of {name}: {why}")));
        }
        if let Some(until) = self.revoked_until {
            let waits_for = format!(
                "{until}; until then its annotation addon-signer.io/revoke-before revokes \
                                     everything"
            );
            return (AgentState::NoCertificate, Some(waits_for));
        }
        match &self.certificate {
            None => (AgentState::Unknown, None),
            Some(None) => (AgentState::NoCertificate, Some(self.missing())),
            Some(Some(_)) if self.trust == Some(false) => {
                (AgentState::NoTrust, Some("its cluster to apply the present trust bundle".to_owned()))
            }
            Some(Some(Held { last_seen: None, .. })) if !self.has_gateways_apart => {
                (AgentState::NeverSeen, Some("its first request at the gateway".to_owned()))
            }
            Some(Some(_)) => (AgentState::Ready, None),
        }
    }

    /// What an addon without a certificate waits for.
    fn missing(&self) -> String {
        match (&self.request, &self.unregistered) {
            (Some(Request::Open { waits_for }), _) => waits_for.clone(),
            (_, Some(signer)) => format!("{signer} in status.registrations of its ManagedClusterAddOn"),
            (_, None) if self.has_stale => STALE.to_owned(),
            (_, None) => "its agent to make a CSR".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(last_seen: Option<i64>) -> Option<Option<Held>> {
        let valid_until = Timestamp::from_unix(100);
        Some(Some(Held { valid_until, authority: "a".to_owned(), last_seen: last_seen.map(Timestamp::from_unix) }))
    }

    fn refused() -> Option<Request> {
        Some(Request::Refused { name: "r".to_owned(), why: "SubjectOfAnotherCluster: no".to_owned() })
    }

    #[test]
    fn the_worst_that_is_known_is_said_with_what_ends_it() {
        let none = Some(None);
        let request = |request| Facts { certificate: none.clone(), request: Some(request), ..Facts::default() };
        let unregistered = Some("example.com/a".to_owned());
        for (facts, state, waits_for) in [
            (
                Facts { not_eligible: Some("x"), request: refused(), ..Facts::default() },
                AgentState::NotEligible,
                Some("x"),
            ),
            (
                Facts { revoked_until: Some(Timestamp::from_unix(0)), ..Facts::default() },
                AgentState::NoCertificate,
                Some(
                    "1970-01-01T00:00:00Z; until then its annotation addon-signer.io/revoke-before revokes \
                      everything",
                ),
            ),
            (
                Facts { certificate: held(Some(1)), request: refused(), ..Facts::default() },
                AgentState::Refused,
                Some("a valid CSR instead of r: SubjectOfAnotherCluster: no"),
            ),
            (Facts::default(), AgentState::Unknown, None),
            (
                Facts { has_stale: true, ..request(Request::Open { waits_for: "x".to_owned() }) },
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
            (Facts { certificate: held(Some(1)), ..Facts::default() }, AgentState::Ready, None),
            (Facts { certificate: held(None), has_gateways_apart: true, ..Facts::default() }, AgentState::Ready, None),
        ] {
            assert_eq!(facts.judge(), (state, waits_for.map(str::to_owned)), "{facts:?}");
        }
    }

    #[test]
    fn the_worst_come_first() {
        let order = [
            AgentState::Refused,
            AgentState::NoCertificate,
            AgentState::NoTrust,
            AgentState::NeverSeen,
            AgentState::Ready,
        ];
        assert!(order.is_sorted());
    }
}
