//! How an attempt to keep the credentials valid ended.

use super::enrol::EnrolError;
use super::gateway::GatewayError;
use super::on_renew::CommandError;
use super::store::StoreError;
use addon_signer_core::timestamp::Timestamp;

/// Why there is no new certificate in the store, or why a program may not know of it.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The hub issued no certificate.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// The new certificate could not be proven at the gateway. The old one is still good and stays.
    #[error("the new certificate could not be proven at the gateway, so the old one stays: {0}")]
    NotProven(GatewayError),
    /// The signer and the gateway do not agree on the time, or on what is revoked.
    #[error(
        "the hub issued a certificate that the gateway reports as revoked; the agent will request another one \
             later"
    )]
    RevokedAtOnce,
    /// The program that uses the certificate may not know of it.
    #[error("the stored certificate is good, but the command of --on-renew failed: {0}")]
    NotNotified(#[from] CommandError),
}

impl AgentError {
    /// Whether the hub has issued a certificate that is of no use. Each one costs the hub an entry of its ledger.
    pub(crate) fn has_cost_a_certificate(&self) -> bool {
        match self {
            Self::RevokedAtOnce | Self::Enrol(EnrolError::Unsuitable(..) | EnrolError::NoTrust(_)) => true,
            Self::Enrol(EnrolError::WrongClock { is_kept, .. }) => !is_kept,
            _ => false,
        }
    }
}

/// The result of [`Agent::once`](crate::Agent::once).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The stored certificate is good.
    Valid {
        /// When renewal is due.
        renew_at: Timestamp,
    },
    /// A new certificate is stored.
    Enrolled {
        /// When renewal is due.
        renew_at: Timestamp,
    },
}
