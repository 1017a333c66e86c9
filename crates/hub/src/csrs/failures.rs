//! Logs why work on CSRs failed: a few lines for each cluster, and how many more there were.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info};

use crate::csrs::signer::SignerError;
use addon_signer_core::throttle::{Quota, Throttle};
use addon_signer_platform::clock::Clock;

/// How many failures of one cluster's CSRs are logged; the others are counted.
const LOGGED: Quota = Quota { first: 5, window: Duration::from_secs(60) };

/// The failures of each cluster.
pub(super) struct Failures {
    throttle: Throttle<Arc<str>>,
    clock: Clock,
}

impl Failures {
    pub(super) fn new(clock: Clock) -> Self {
        Self { throttle: Throttle::new(LOGGED), clock }
    }

    /// Logs that the work on a CSR of this tenant failed.
    pub(super) fn report(&mut self, name: &str, tenant: &Arc<str>, error: &SignerError) {
        let now = self.clock.now();
        let taken = self.throttle.take(tenant, now);
        for sum in self.throttle.ended(now).into_iter().chain(taken.before) {
            info!(requester = &*sum.cause, count = sum.count, "More failures on CSRs were not logged");
        }
        match error {
            // The ledger's writer has logged the error, once for all CSRs that wait.
            SignerError::Ledger(_) => debug!(csr = name, %error, "A CSR waits for the ledger"),
            _ if taken.write => info!(csr = name, %error, "Could not work on a CSR; the hub retries"),
            _ => {}
        }
    }
}
