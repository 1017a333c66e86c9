//! The states of an addon on a cluster.

use serde::Serialize;

/// The state of an addon on a cluster; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(in crate::cli) enum AgentState {
    /// The hub refused its last CSR.
    Refused,
    /// Its certificates were revoked, and it has made no CSR since.
    Revoked,
    /// It has no valid certificate.
    NoCertificate,
    /// The hub refused its last CSR, but it has a certificate that is still valid.
    RenewalRefused,
    /// It may not have the present trust bundle.
    NoTrust,
    /// It has a certificate that was never used at the gateway.
    NeverSeen,
    /// Neither the ledger nor the hub's report says whether it has a certificate.
    Unknown,
    /// The cluster is not accepted, or the addon is suspended or being deleted.
    NotEligible,
    /// It has a valid certificate, and uses it, as far as gateways report that.
    Certified,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_come_first() {
        let order = [
            AgentState::Refused,
            AgentState::Revoked,
            AgentState::NoCertificate,
            AgentState::RenewalRefused,
            AgentState::NoTrust,
            AgentState::NeverSeen,
            AgentState::Unknown,
            AgentState::NotEligible,
            AgentState::Certified,
        ];
        assert!(order.is_sorted());
    }
}
