//! The settings of an agent.

use std::path::PathBuf;
use std::time::Duration;

use crate::gateway::Gateway;
use addon_signer_core::identity::{Convention, PeerIdentity};
use addon_signer_platform::kubeconfig::Plugins;

/// Intervals, pauses and time limits.
#[derive(Debug, Clone)]
pub struct Timing {
    /// The longest pause between two checks of the store and of the clock, which may jump.
    pub poll: Duration,
    /// The longest wait for the hub's decision. If the CSR is still pending then, the agent waits for it again.
    pub answer: Duration,
    /// The pause after the first failure, doubled with each further one.
    pub retry_first: Duration,
    /// The longest pause after a failure.
    pub retry_cap: Duration,
    /// The pause between two requests for the gateway's anchors.
    pub refresh: Duration,
    /// The pause between two renewals of the health Lease.
    pub health: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(30),
            answer: Duration::from_secs(60),
            retry_first: Duration::from_secs(30),
            retry_cap: Duration::from_secs(600),
            refresh: Duration::from_secs(300),
            health: Duration::from_secs(60),
        }
    }
}

/// The settings of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The identity that the certificate must have.
    pub identity: PeerIdentity,
    /// How the signer writes identities.
    pub convention: Convention,
    /// `spec.signerName` of the CSRs.
    pub signer_name: String,
    /// The lifetime to request, in seconds; `None` leaves it to the signer.
    pub expiration_seconds: Option<i32>,
    /// The cluster's kubeconfig for the hub, read again for every request.
    pub hub_kubeconfig: PathBuf,
    /// Whether programs that the kubeconfig names are run.
    pub plugins: Plugins,
    /// The gateway that the certificate is for.
    pub gateway: Gateway,
    /// The intervals and pauses.
    pub timing: Timing,
}
