//! A gateway whose certificate the stored anchors do not verify: its line of authorities was replaced while the agent
//! was away. A new certificate brings the present anchors.

use std::time::Duration;

use tokio::time::Instant;

use crate::retry::Backoff;

/// The longest pause between two requests because of it. Where something ends TLS before the gateway, no certificate
/// helps, and each request costs the hub an entry in its ledger.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Whether the gateway's certificate verified when it was last seen, and when a certificate may be requested because it
/// did not.
#[derive(Debug)]
pub(crate) struct Distrust {
    is_untrusted: bool,
    requested: Instant,
    again: Instant,
    first_pause: Duration,
    pauses: Backoff,
}

impl Distrust {
    pub(crate) fn new(first_pause: Duration) -> Self {
        let (now, pauses) = (Instant::now(), Backoff::new(first_pause, LONGEST));
        Self { is_untrusted: false, requested: now, again: now, first_pause, pauses }
    }

    /// Notes whether the gateway's certificate verified. The pauses stay: behind some load balancers only one of
    /// several gateways can be verified.
    pub(crate) fn saw(&mut self, is_untrusted: bool) {
        self.is_untrusted = is_untrusted;
    }

    /// Whether a certificate may be requested now, because the gateway's did not verify.
    pub(crate) fn is_due(&self) -> bool {
        self.is_untrusted && self.again <= Instant::now()
    }

    /// A certificate came, with other anchors than the stored ones or with the same.
    pub(crate) fn came(&mut self, has_other_anchors: bool) {
        if has_other_anchors || self.requested.elapsed() >= 2 * LONGEST {
            self.pauses = Backoff::new(self.first_pause, LONGEST);
        }
        self.requested = Instant::now();
        self.again = self.requested + self.pauses.after_failure();
    }
}
